"""How Sphinx makes the site: `make docs` (scripts/docs.py) copies the pages into one folder, and this beside them."""

from __future__ import annotations

import re

project = "Floodmark"
author = "The Floodmark authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.header", "toc.not_included"]  # pages that others link to are found without the side bar

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True}
python_use_unqualified_type_names = True
default_role = "code"  # docstrings write names between single backticks, as the pages do
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "Floodmark"
html_show_sphinx = False
html_copy_source = False
html_static_path = ["site.css"]
html_css_files = ["site.css"]
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True

CODE_OR_MARK = re.compile(r"(?P<code>`[^`]*`)|(?P<mark>[*|_])")
DEEP = "    "


def plain(_app: object, _what: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    """Docstrings are plain text with names between backticks: reStructuredText must find no other marks in them."""
    text: list[str] = []
    in_example = False
    for line in lines:
        in_example = line.startswith(">>>") or (in_example and bool(line.strip()))  # its output ends at an empty line
        is_drawing = line.startswith(DEEP) and not in_example
        begins_drawing = is_drawing and not (text and text[-1].startswith(DEEP))
        text += ["", "::", ""] if begins_drawing else []
        text.append(line if in_example or is_drawing else CODE_OR_MARK.sub(_escaped, line))
    lines[:] = text


def _escaped(part: re.Match[str]) -> str:
    return part["code"] or f"\\{part['mark']}"


def setup(app) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - Sphinx is not among the packages of this code
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", plain)

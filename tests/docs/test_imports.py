"""Docs and examples import from where users should: a package that says what is public, or a contract."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, all_blocks

TEXTS = {
    **{str(block): block.text for block in all_blocks("python")},
    **{str(path.relative_to(ROOT)): path.read_text() for path in sorted((ROOT / "examples").rglob("*.py"))},
}


def modules_imported(text: str) -> Iterator[tuple[str, str]]:
    """Every module of ours and the name that is taken from it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "floodmark":
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            ours = (alias.name for alias in node.names if alias.name.startswith("floodmark."))
            yield from ((name, "") for name in ours)


def is_public(module: str, name: str) -> bool:
    """A contract, a door, a module right under the package, or a package whose `__all__` has the name."""
    if module.endswith(".contract") or module.startswith("floodmark.compat."):
        return True  # a door's paths are those of the original
    home = import_module(module)
    is_package = Path(home.__file__ or "").stem == "__init__"
    names = getattr(home, "__all__", ())
    return (name in names if name else bool(names)) if is_package else module.count(".") == 1


@pytest.mark.parametrize("place", TEXTS)
def test_docs_and_examples_import_public_names_alone(place: str) -> None:
    """What a page imports is what its readers rely on, so it may not move."""
    imported = modules_imported(TEXTS[place])
    assert [f"{module}: {name}" for module, name in imported if not is_public(module, name)] == []


@pytest.mark.parametrize(
    ("line", "is_allowed"),
    [
        ("from floodmark.medallion import fact", True),
        ("from floodmark.sinks.contract import Batch", True),
        ("from floodmark.machine import file_lock", True),
        ("from floodmark.medallion.facts import fact", False),
        ("from floodmark.medallion import net_changes", False),
        ("import floodmark.medallion.facts", False),
    ],
)
def test_an_import_from_inside_a_package_is_seen(line: str, is_allowed: bool) -> None:
    """Also where the name exists there."""
    assert all(is_public(module, name) for module, name in modules_imported(line)) is is_allowed


def test_no_module_has_the_name_of_a_public_function_of_its_package() -> None:
    """It would take the function's place as soon as somebody imports it."""
    source = ROOT / "src"
    folders = {file.parent: file.parent.relative_to(source) for file in (source / "floodmark").rglob("__init__.py")}
    public = {folder: import_module(".".join(name.parts)) for folder, name in folders.items()}
    names = [(folder, name) for folder, package in public.items() for name in getattr(package, "__all__", ())]
    assert [f"{folder.name}.{name}" for folder, name in names if (folder / f"{name}.py").exists()] == []

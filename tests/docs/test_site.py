"""The site of the docs: every page has its place in it, and a link that leads nowhere is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.conf import plain
from scripts.docs import API, LINK, ROOT, broken_links, contents, for_the_site
from tests.docs.pages import PAGES

PATH = ROOT / "docs" / "README.md"


def test_every_page_has_its_place_on_the_path() -> None:
    """A page that the path does not name is found by nobody."""
    named = {found["target"] for found in LINK.finditer(PATH.read_text())}
    pages = {page.name for page in PAGES if page.parent.name == "docs"} - {"README.md"}
    assert pages - named == set()


def test_the_side_bar_has_the_path_and_the_packages() -> None:
    """In the order of docs/README.md."""
    lines = list(contents())
    assert lines.index("docs/tutorial") < lines.index("docs/projects") < lines.index("docs/architecture")
    assert [module for module in API if f"api/{module}" not in lines] == []


def test_public_packages_are_in_the_api() -> None:
    """What `import floodmark as fm` shows, and what pages import from."""
    import floodmark

    packages = {f"floodmark.{name}" for name in floodmark.__all__ if (ROOT / "src" / "floodmark" / name).is_dir()}
    assert packages - set(API) == set()


def test_a_page_of_the_tree_becomes_one_of_the_site(tmp_path: Path) -> None:
    """The README is the front page there; a folder has no page; arrows become a table."""
    text = (
        "[home](../README.md#a) [files](../examples) ![k](pictures/kill.svg)\n\n```mermaid\n  a --> b\n  a --> c\n```\n"
    )
    assert for_the_site(text, ROOT / "docs" / "page.md").splitlines() == [
        "[home](../index.md#a) files ![k](pictures/kill.svg)",
        "",
        "| layer | imports |",
        "|---|---|",
        "| `a` | `b`, `c` |",
    ]


def test_the_output_of_an_example_stands_in_the_api_as_it_is_printed() -> None:
    """Marks of the markup are escaped in the words around it only."""
    lines = ["A *mark* of `a_b`.", "", ">>> job.run().status", "'nothing_new'", "", "Its row_count."]
    plain(None, "", "", None, None, lines)
    expected = ["A \\*mark\\* of `a_b`.", "", ">>> job.run().status", "'nothing_new'", "", "Its row\\_count."]
    assert lines == expected


@pytest.mark.parametrize(
    ("html", "problems"),
    [
        ('<a href="b.html#there">b</a><a href="https://example.org">x</a><h1 id="top">t</h1><a href="#top">t</a>', []),
        ('<a href="c.html">c</a>', ["a.html: c.html leads nowhere"]),
        ('<a href="b.html#gone">b</a>', ["a.html: b.html#gone names a heading that is not there"]),
        ('<script src="https://cdn.example.org/x.js"></script>',
         ["a.html: loads https://cdn.example.org/x.js from elsewhere"]),
    ],
    ids=["all lead somewhere", "no page", "no heading", "not offline"],
)  # fmt: skip
def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, html: str, problems: list[str]) -> None:
    """In the finished site, whoever made the link; and nothing in it comes from elsewhere."""
    (tmp_path / "a.html").write_text(html)
    (tmp_path / "b.html").write_text('<h2 id="there">there</h2>')
    assert list(broken_links(tmp_path)) == problems

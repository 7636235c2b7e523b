"""The page on the architecture: its picture is what the code imports, and every path on it is there."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import CODE, ROOT, sections
from tests.test_layers import FREE, PACKAGE, imported_layers, layer_of, modules, package_of

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "architecture.md"
Edges = frozenset[tuple[str, str]]


def drawn() -> Edges:
    """The arrows of the picture."""
    picture = PAGE.read_text().split("```mermaid")[1].split("```")[0]
    return frozenset(re.findall(r"^\s*(\w+) --> (\w+)$", picture, re.MULTILINE))


def imported() -> Edges:
    """Which layer imports which, without the modules that everyone may import."""
    found = {(layer_of(m), name) for m in modules() for name in imported_layers(m.read_text(), package_of(m))}
    return frozenset((one, other) for one, other in found if one != other and other not in {*FREE, "__version__"})


def reachable(edges: Edges, start: str) -> frozenset[str]:
    """Every layer that some way of arrows leads to."""
    found: set[str] = set()
    newest = {start}
    while newest:
        newest = {other for one, other in edges if one in newest} - found
        found |= newest
    return frozenset(found)


def needed(edges: Edges) -> Edges:
    """The arrows that do not follow from others."""
    return frozenset(
        (one, other) for one, other in edges if one not in FREE and other not in reachable(edges - {(one, other)}, one)
    )


def test_the_picture_is_what_the_layers_import() -> None:
    """An arrow for every import that does not follow from others; none that nobody makes."""
    assert drawn() == needed(imported())


def test_every_path_on_the_page_exists() -> None:
    """A page that names a file which was moved sends its reader astray."""
    paths = [code for code in CODE.findall(PAGE.read_text()) if code.endswith(".py")]
    assert len(paths) > 100
    assert [path for path in paths if path != "__init__.py" and not exists(path)] == []


def exists(path: str) -> bool:
    return (PACKAGE / path).is_file() or path == "contract.py"


def test_the_table_of_changes_has_twenty_rows_and_more() -> None:
    """Each with a file to open."""
    rows = [line for line in sections(PAGE)["Where do I change …"].splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 20
    assert [row for row in rows if ".py`" not in row] == []

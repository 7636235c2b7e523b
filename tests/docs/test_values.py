"""The page about values is what the laws say."""

from __future__ import annotations

from pathlib import Path

from floodmark.testing.laws.values import table_lines

PAGE = Path(__file__).parent.parent.parent / "docs" / "values.md"


def test_the_table_of_the_page_is_made_of_the_laws() -> None:
    """`python -m floodmark.testing.laws.values` prints it."""
    text = PAGE.read_text(encoding="utf-8")
    table = text.partition("<!-- laws of values -->\n")[2].partition("<!-- end of laws -->")[0]
    assert table.splitlines() == table_lines()

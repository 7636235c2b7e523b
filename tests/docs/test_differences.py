"""docs/differences.md claims nothing that no test shows."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| |", "|---"))]
TEST = re.compile(r"`(?P<file>tests/[\w/]+\.py)::(?P<name>test_\w+)`")


def test_every_row_names_a_test() -> None:
    """A difference without one would be a rumour."""
    assert len(ROWS) > 15
    assert [row for row in ROWS if not TEST.search(row)] == []


def test_every_test_that_the_page_names_exists() -> None:
    """By file and name."""
    named = [(ROOT / found["file"], f"def {found['name']}(") for found in TEST.finditer(PAGE)]
    assert [f"{file}: {name}" for file, name in named if name not in file.read_text(encoding="utf-8")] == []

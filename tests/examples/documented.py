"""What TABLES.md says: the columns of every table and view that it has a heading for."""

from __future__ import annotations

import re
from pathlib import Path

HEADING = re.compile(r"^### (\w+)$", re.MULTILINE)
CELL = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)


def columns_in(page: Path) -> dict[str, list[str]]:
    """By table: the first cell of every row below its heading."""
    _, *parts = HEADING.split(page.read_text(encoding="utf-8"))
    return {name: CELL.findall(text) for name, text in zip(parts[::2], parts[1::2], strict=True)}

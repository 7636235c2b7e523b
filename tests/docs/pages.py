"""The pages that users read, cut into the pieces that can be run or checked.

A python block whose first line is a comment with a file name is that file. A text block right behind a python block is
what the block prints. `<!-- not run: reason -->` right before a block keeps it from being run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = tuple(sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")]))

FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: (?P<reason>[^>]+) -->\s*\Z")
FILE_NAME = re.compile(r"# (?P<name>[\w/]+\.py)\n")
LINK = re.compile(r"\]\((?P<target>[^)#\s]+)[^)]*\)")
CODE = re.compile(r"`(?P<code>[^`\n]+)`")
HEADING = re.compile(r"^#{1,6} (?P<title>.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block: where it stands, what it says, what it prints if the page says so, why it is not run if so."""

    page: Path
    line: int
    language: str
    text: str
    prints: str | None
    not_run: str | None

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def file(self) -> str | None:
        """The file that the block is, if it says so."""
        found = FILE_NAME.match(self.text)
        return found["name"] if found else None


def blocks(page: Path, language: str) -> list[Block]:
    """The page's blocks of one language, in order."""
    text = page.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    behind = [*found[1:], None]
    return [_block(page, text, *pair) for pair in zip(found, behind, strict=False) if pair[0]["language"] == language]


def all_blocks(language: str) -> list[Block]:
    """The blocks of one language on every page."""
    return [block for page in PAGES for block in blocks(page, language)]


def _block(page: Path, text: str, fence: re.Match[str], behind: re.Match[str] | None) -> Block:
    is_output = behind is not None and behind["language"] == "text" and not text[fence.end() : behind.start()].strip()
    reason = NOT_RUN.search(text, 0, fence.start())
    return Block(
        page,
        line=text.count("\n", 0, fence.start()) + 2,
        language=fence["language"],
        text=fence["text"],
        prints=behind["text"] if behind and is_output else None,
        not_run=reason["reason"] if reason else None,
    )


def links(page: Path) -> list[str]:
    """Where the page points to within the repository."""
    found = [link["target"] for link in LINK.finditer(FENCE.sub("", page.read_text(encoding="utf-8")))]
    return [target for target in found if "://" not in target]


def sections(page: Path) -> dict[str, str]:
    """The text under each heading, up to the next one of any level, without its blocks."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found = list(HEADING.finditer(text))
    ends = [*(heading.start() for heading in found[1:]), len(text)]
    titles = [heading["title"].replace("`", "") for heading in found]
    return {title: text[heading.end() : end] for title, heading, end in zip(titles, found, ends, strict=True)}


def first_cells(section: str) -> list[str]:
    """The names in the first column of a section's tables, written as code; `a`, `b` in one cell are two."""
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return [code["code"] for row in rows for code in CODE.finditer(row)]

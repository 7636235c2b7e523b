"""Commands that pages tell people to type are ones that the program takes, and tests that they name are there."""

from __future__ import annotations

import ast
import re
import shlex
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from floodmark.cli.app import GLOBAL_OPTIONS, load_command, options_first
from floodmark.project.python_jobs import SINKS, SOURCES
from tests.docs.pages import PAGES, ROOT, Block, blocks
from tests.proofs import KILLS, kills

CALL = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?P<call>floodmark .+?)(?:\s+#.*)?$", re.MULTILINE)
INLINE = re.compile(r"`(?P<call>floodmark [a-z][^`]*)`")
TEST = re.compile(r"`(?P<name>test_\w+)`")
STEPS = ("runbook.md", "tutorial.md", "scheduling.md", "guarantees.md", "best-practices.md")
"""Pages that people follow by hand."""


def calls(page: Path) -> list[str]:
    """Every call in a block, and in the text of a page that people follow: whole, not `floodmark marks …`."""
    shown = [found["call"] for block in blocks(page, "sh") for found in CALL.finditer(block.text)]
    told = [found["call"] for found in INLINE.finditer(page.read_text(encoding="utf-8")) if page.name in STEPS]
    return [call for call in [*shown, *told] if "…" not in call and "[" not in call and "|" not in call]


ALL_CALLS = sorted({(page.name, call) for page in PAGES for call in calls(page)})


@pytest.mark.parametrize(("page", "call"), ALL_CALLS)
def test_a_command_on_a_page_is_one_that_the_program_takes(page: str, call: str) -> None:
    """Its name, its options and their values, its arguments; nothing is run."""
    lexer = shlex.shlex(call, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(takewhile(lambda word: word not in ("&&", "&", ">"), lexer))[1:]
    name, *rest = without_global_options(words)
    command, rest = inner_command(load_command(name), rest)
    with command.make_context(name, rest) as context:
        assert context.command is command


def without_global_options(words: list[str]) -> list[str]:
    """What is left for the command; `--project FILE` may stand anywhere."""
    first = options_first(words)
    count = sum(2 for word in first if word in GLOBAL_OPTIONS)
    return first[count:]


def inner_command(command: Any, rest: list[str]) -> tuple[Any, list[str]]:  # noqa: ANN401 (typer gives no public type)
    """The command of a group, if it is one."""
    return (command.commands[rest[0]], rest[1:]) if hasattr(command, "commands") else (command, rest)


def test_the_runbook_has_a_command_for_every_step() -> None:
    """Detect, investigate, roll back, fix, rerun."""
    text = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[1:6]
    assert [part.split("\n")[0] for part in parts if "floodmark " not in part] == []


def test_every_test_that_a_page_names_is_there() -> None:
    """A guarantee that no test shows is a hope."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    known = {name for text in sources for name in re.findall(r"def (test_\w+)", text)}
    known |= {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    named = {found["name"] for page in PAGES for found in TEST.finditer(page.read_text(encoding="utf-8"))}
    assert named - known == set()


PROVED = (
    "shown by", "what it never loses", "what stops it (exit 5, with a choice)",
    "how a repeat changes nothing", "killed inside a write", "an old run that wakes up",
)  # fmt: skip
"""Columns of the guarantees that say what happens: a cell names the tests that show it, or what has the same."""


def guarantees() -> list[tuple[str, str, str]]:
    """(row, column, cell) of those columns, without the cells in which nothing is said."""
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    tables = [table.splitlines() for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)]
    named = [dict(zip(cells(head), cells(row), strict=True)) for head, _, *rows in tables for row in rows]
    return [(next(iter(row.values())), column, row[column]) for row in named for column in PROVED if row.get(column)]


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


@pytest.mark.parametrize(("row", "column", "cell"), guarantees())
def test_a_guarantee_names_the_tests_that_show_it(row: str, column: str, cell: str) -> None:
    """Cell by cell, since each is a promise of its own."""
    assert TEST.search(cell) or cell == "the same", f"{row}, {column}"


def test_the_table_of_kills_is_made_of_the_tests_that_kill() -> None:
    """Whoever adds a point to a test, or a test, finds here what the page has to say."""
    begin, end = KILLS
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    assert text.partition(f"{begin}\n")[2].partition(end)[0].splitlines() == kills()


def test_every_source_and_sink_of_a_project_has_its_row_of_guarantees() -> None:
    """But a fact, which reads Delta tables."""
    rows = ", ".join(row for row, _, _ in guarantees()).lower()
    kinds = {kind for _, kind in [*SOURCES.values(), *SINKS.values()]}
    assert {kind for kind in kinds if kind not in rows} == {"fact"}


@pytest.mark.parametrize("block", [b for page in PAGES for b in blocks(page, "py")], ids=str)
def test_code_that_needs_others_to_run_is_python_at_least(block: Block) -> None:
    """The before and after of a migration: one side needs a library that we do not have, the other a server."""
    assert ast.parse(block.text).body

"""Every python block of README.md and docs/ is run, on a real Spark where it asks for one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark.hwm import mark as kinds
from floodmark.stores import opening
from tests.docs.pages import PAGES, ROOT, Block, all_blocks, blocks
from tests.docs.running import run_blocks, write_input
from tests.tables import sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

README = ROOT / "README.md"
KILLS = ("failpoints.md",)
"""Pages whose examples kill processes: for `make crash`."""
WITH_PYTHON = [
    pytest.param(page, marks=[pytest.mark.crash] if page.name in KILLS else [], id=page.name)
    for page in PAGES
    if blocks(page, "python") and page != README
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a page: `incoming/` is there, and what the page writes or registers ends with it."""
    write_input(tmp_path)
    monkeypatch.setattr(kinds, "_kinds", dict(kinds._kinds))
    monkeypatch.setattr(opening, "LOADERS", dict(opening.LOADERS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.spark
@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_python_of_a_page_runs_and_prints_what_the_page_says(
    page: Path, spark: SparkSession, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blocks of one page share their names; a text block right behind one is its output."""
    answers = run_blocks(blocks(page, "python"), lambda: capsys.readouterr().out)
    assert [printed for _, printed in answers] == [expected for expected, _ in answers]


@pytest.mark.spark
def test_the_readme_prints_four_rows_read_and_three_orders_merged(
    spark: SparkSession, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four records, one of them a correction: the merged table holds three orders, the files all four records."""
    run_blocks(blocks(README, "python"), lambda: "")
    assert capsys.readouterr().out == "done 4 {'delta': 3, 'files': 4}\n"
    assert sorted_rows(folder / "lake" / "orders", "id", "cents") == [(1, 1990), (2, 600), (3, 4200)]


def test_only_a_page_that_needs_a_server_may_show_what_is_not_run() -> None:
    """Whatever needs none is run."""
    assert {block.page.name for block in all_blocks("python") if block.not_run} <= {"kafka.md", "streams.md"}


@pytest.mark.parametrize("block", blocks(ROOT / "docs" / "write-your-own.md", "python"), ids=str)
def test_an_example_to_copy_fits_on_a_screen(block: Block) -> None:
    """Under 60 lines each."""
    assert block.text.count("\n") < 60

"""`floodmark demo`: it counts what is there and not what should be, and touches no folder but its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from floodmark.cli import demo
from floodmark.cli.app import run
from floodmark.sinks.files.folders import batch_folder

ARRIVED = [{"id": number, "ordered_at": f"2026-03-02T0{number}:00:00Z"} for number in (1, 2, 3)]


def shop_with(folder: Path, lake: Sequence[int], export: Sequence[int]) -> demo.Shop:
    """A shop where three orders and the broken one arrived, and these are in its tables."""
    shop = demo.Shop(folder)
    shop.open()
    shop.arrive("today", [*ARRIVED, demo.BROKEN])
    write_deltalake(str(folder / "lake/orders"), pa.table({"id": lake}))
    aside = {"id": ["x"], "kind": ["quarantine"], "job": ["orders"], "number": [1], "reasons": [["amount_positive"]]}
    more = {"batch_time": ["2026-03-05T00:00:00+00:00"], "status": ["open"], "record": ['{"id": 9999}']}
    write_deltalake(str(folder / "lake/_quarantine"), pa.table({**aside, **more}))
    batch = batch_folder(folder / "out" / "orders", 1)
    batch.mkdir(parents=True)
    (batch / "part.csv").write_text("".join(f"{line}\n" for line in ["id", *export]))
    return shop


@pytest.mark.parametrize(
    ("lake", "export", "is_good"),
    [
        ((1, 2, 3), (1, 2, 3), True),
        ((1, 2, 3, 3), (1, 2, 3), False),
        ((1, 2, 3), (1, 3), False),
        ((1, 2, 3, 9999), (1, 2, 3), False),
    ],
    ids=["each once", "one twice in the table", "one missing in the files", "the broken one in the table"],
)
def test_the_count_is_of_what_is_in_the_tables(
    tmp_path: Path, lake: Sequence[int], export: Sequence[int], is_good: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """A demo that always says "nothing lost" would prove nothing."""
    assert demo.print_count(shop_with(tmp_path, lake, export)) is is_good
    assert ("Nothing was lost, nothing was doubled." in capsys.readouterr().out) is is_good


def test_a_loop_that_keeps_the_last_value_loses_late_rows_and_doubles_those_of_a_kill() -> None:
    """The comparison is run, not asserted: the same arrivals, killed at the same place."""
    loop = demo.UsualLoop()
    loop.run(ARRIVED[1:2])
    loop.run(ARRIVED[1:], is_killed=True)
    loop.run(ARRIVED[1:])
    loop.run([*ARRIVED, demo.BROKEN][:3])
    assert loop.table == [2, 3, 3]


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It may hold somebody's work."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "floodmark.yaml").write_text("jobs: []\n")
    assert run(["demo", str(tmp_path / "mine")]) == 2
    assert "is already there, and no demo made it; nothing was written." in capsys.readouterr().err
    assert (tmp_path / "mine" / "floodmark.yaml").read_text() == "jobs: []\n"


@pytest.mark.crash
@pytest.mark.spark
def test_the_demo_kills_a_run_and_finds_every_row_once(tmp_path: Path) -> None:
    """As `floodmark demo` and `make demo` do it; then the commands that it names are tried."""
    command = [sys.executable, "-m", "floodmark"]
    said = subprocess.run([*command, "demo", "shop"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    lines = said.stdout.splitlines()
    assert "Killed" in lines
    assert "Nothing was lost, nothing was doubled." in lines
    assert [line for line in lines if len(line) > 80 and "rows read" not in line] == [], "it has to fit a terminal"
    again = subprocess.run(
        [*command, "query", "select count(*) as orders, count(distinct id) as ids from orders", "--json"],
        cwd=tmp_path / "shop", env={**os.environ}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert '"orders": 6030' in again.stdout
    assert '"ids": 6030' in again.stdout

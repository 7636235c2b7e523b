"""`floodmark check`, `backfill` and `reconcile` by the real commands, over a table that changes behind the mark."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from floodmark.cli.invocation import Tools
from tests.cli.conftest import CommandResult
from tests.docs.running import SharedSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = """\
jobs:
  - name: orders
    source: {type: sqlite, path: shop.db, table: o, cursor: seq}
    sinks:
      - {type: delta, name: lake, path: lake/orders, mode: merge, key: [id]}
"""
Command = Callable[..., CommandResult]


@pytest.fixture
def shop(folder: Path) -> Iterator[sqlite3.Connection]:
    """Six orders, and a project that reads them."""
    (folder / "floodmark.yaml").write_text(PROJECT)
    connection = sqlite3.connect(folder / "shop.db", isolation_level=None)
    connection.execute("create table o (id integer not null, seq integer primary key, v text)")
    connection.executemany("insert into o values (?, ?, ?)", [(n, n, f"v{n}") for n in range(1, 7)])
    yield connection
    connection.close()


@pytest.fixture
def command(spark: SparkSession, shop: sqlite3.Connection, floodmark: Command) -> Command:
    tools = Tools(session=lambda settings: SharedSession(lambda: spark))
    return lambda *words: floodmark(*words, tools=tools)


def lake(folder: Path) -> list[tuple[int, str]]:
    rows = DeltaTable(str(folder / "lake" / "orders")).to_pyarrow_table().to_pylist()
    return sorted((row["id"], row["v"]) for row in rows)


def test_a_backfill_and_a_repair_are_told_to_openlineage(
    command: Command, shop: sqlite3.Connection, folder: Path
) -> None:
    """As runs are: each batch has a beginning and an end; a comparison that repairs nothing has none."""
    (folder / "floodmark.yaml").write_text(f"openlineage: {{file: events.jsonl}}\n{PROJECT}")
    command("run")
    command("backfill", "orders", "--from", "1", "--to", "3")
    shop.execute("update o set v = 'silent' where id = 4")
    command("reconcile", "orders")
    assert command("reconcile", "orders", "--repair").code == 0
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"] * 3
    rows = [event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] for event in events[1::2]]
    assert rows == [6, 2, 1]


@pytest.mark.crash
def test_a_job_is_checked_run_backfilled_compared_and_repaired(
    command: Command, shop: sqlite3.Connection, folder: Path
) -> None:
    """The exit code says whether a person has to decide; the mark never moves."""
    assert "orders: sink lake: ok: delta table" in command("check").out
    command("run")
    shop.execute("update o set v = 'silent' where id in (2, 4)")
    shop.execute("delete from o where id = 5")
    filled = command("backfill", "orders", "--from", "1", "--to", "3", "--json")
    entry = json.loads(filled.out)["backfill"]
    assert (filled.code, entry["rows_read"], entry["mark_before"], entry["mark_after"]) == (0, 2, 6, 6)
    found = command("reconcile", "--select", "orders")
    assert (found.code, found.out.splitlines()) == (
        5,
        [
            "orders and lake, from the beginning to the mark: 6 keys compared, 0 missing, 1 extra, 1 different",
            "  different: id 4 in v",
            "  extra: id 5",
            "  Try: --repair",
        ],
    )
    repaired = command("reconcile", "orders", "--repair", "--json")
    assert (repaired.code, json.loads(repaired.out)["reconcile"]["receipt"]["rows_written"]) == (0, {"lake": 2})
    assert lake(folder) == [(1, "v1"), (2, "silent"), (3, "v3"), (4, "silent"), (6, "v6")]
    assert command("backfill", "orders", "--from", "7", "--to", "9").code == 5


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("backfill", "--from", "1", "--to", "2"), 2, "0 jobs are named"),
        (("backfill", "orders", "--select", "other", "--from", "1", "--to", "2"), 2, "2 jobs are named"),
        (("backfill", "orders", "--from", "1", "--to", "2"), 2, "has no mark"),
        (("backfill", "orders", "--from", "1"), 2, "--to"),
        (("reconcile", "orders", "--by", "guess"), 2, "guess"),
        (("reconcile", "nobody"), 2, "no job 'nobody'"),
        (("check", "nobody"), 2, "no job 'nobody'"),
    ],
)
def test_what_is_asked_wrongly_is_told_in_two_lines(
    shop: sqlite3.Connection, floodmark: Command, words: tuple[str, ...], code: int, said: str
) -> None:
    """Without a session, and with what to do."""
    answer = floodmark(*words)
    assert (answer.code, answer.err.splitlines()[0].startswith("Error: "), said in answer.err) == (code, True, True)


def test_check_goes_on_behind_a_part_that_is_not_there(shop: sqlite3.Connection, floodmark: Command) -> None:
    """The exit code is that of the gravest error; `--json` has every line."""
    shop.execute("drop table o")
    answer = floodmark("check", "--json")
    lines = json.loads(answer.out)["checks"]
    assert answer.code == 1
    assert [(line["part"], line["severity"]) for line in lines] == [
        ("mark", "ok"),
        ("source sqlite", "error"),
        ("sink lake", "ok"),
    ]

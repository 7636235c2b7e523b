"""`floodmark diff`: two runs, and what lies between them, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from floodmark import stores
from floodmark.probes.delta import note
from floodmark.stores.record import UPKEEP, Receipt, RuleOutcome
from tests.cli.conftest import CommandResult

Floodmark = Callable[..., CommandResult]
NOON = datetime(2026, 11, 15, 12, tzinfo=timezone.utc)
PROJECT = """store: sqlite:///marks.db
jobs:
  - name: orders
    source: {type: files, path: in}
    transform: {python: "nowhere:clean"}
    sinks: [{type: delta, path: lake/orders}]
"""


def batch(folder: Path, number: int, run: str, rows: pa.Table) -> Receipt:
    properties = CommitProperties(
        custom_metadata={"userMetadata": note("floodmark.default.orders.delta", number, None)}
    )
    write_deltalake(folder / "lake/orders", rows, mode="append", schema_mode="merge", commit_properties=properties)
    return Receipt(
        "orders",
        run,
        "done",
        NOON + timedelta(hours=number),
        1.5,
        number=number,
        rows_read=rows.num_rows,
        rows_written={"delta": rows.num_rows},
        mark_before=number - 1 or None,
        mark_after=number,
        rules=(RuleOutcome("unique(id)", "warn", number - 1, rows.num_rows),),
    )


@pytest.fixture(autouse=True)
def project(folder: Path) -> Path:
    """A job that ran twice; its Python is not there, and nobody needs it."""
    (folder / "floodmark.yaml").write_text(PROJECT)
    store = stores.open("sqlite:///marks.db", folder=folder)
    store.add_run(batch(folder, 1, "a1", pa.table({"id": [1, 2]})))
    store.add_run(batch(folder, 2, "b2", pa.table({"id": [3], "cents": [5]})))
    store.close()
    return folder


def test_two_runs_are_told_in_a_few_lines(floodmark: Floodmark) -> None:
    """Marks, rows, rules, and the table by its versions."""
    said = floodmark("diff", "a1", "b2")
    assert said.code == 0
    assert said.out.splitlines() == [
        "after run a1 (orders, 2026-11-15 13:00:00)",
        "up to run b2 (orders, 2026-11-15 14:00:00)",
        "orders: 1 run, 1.5 s",
        "  mark 1 → 2",
        "  rows read 1, written: delta 1, 0 quarantined, 0 dropped, 0 dead, 0 held back",
        "  rule unique(id) (warn): 1 of 1 failed, before 0 of 2",
        "  lake/orders: version 0 → 1 (1 WRITE), rows +1 ~0 -0, files +1 -0, column +cents long",
    ]


def test_a_program_gets_the_same_as_one_document(floodmark: Floodmark) -> None:
    """With every count under its name."""
    document = json.loads(floodmark("diff", "a1", "b2", "--json").out)
    [change] = document["jobs"]
    [table] = change["tables"]
    assert (document["from"]["run"], document["to"]["number"]) == ("a1", 2)
    assert (change["mark_before"], change["mark_after"], change["rows_refused"], change["rows_dead"]) == (1, 2, 0, 0)
    assert (table["from_version"], table["to_version"], table["columns"]["added"]) == (0, 1, {"cents": "long"})
    assert table["rows"] == {"inserted": 1, "updated": 0, "deleted": 0}


def test_a_stream_that_stands_in_no_file_is_told_by_its_receipts(floodmark: Floodmark, project: Path) -> None:
    """Unless one job is asked for; upkeep is none."""
    store = stores.open("sqlite:///marks.db", folder=project)
    store.add_run(Receipt("clicks", "c3", "done", NOON + timedelta(minutes=90), 1.0, rows_read=4))
    store.add_run(Receipt(UPKEEP, "d4", "done", NOON + timedelta(minutes=91), 1.0))
    store.close()
    everything = json.loads(floodmark("diff", "a1", "b2", "--json").out)
    selected = json.loads(floodmark("diff", "a1", "b2", "--json", "--select", "orders").out)
    assert [(each["job"], each["rows_read"]) for each in everything["jobs"]] == [("orders", 1), ("clicks", 4)]
    assert [each["job"] for each in selected["jobs"]] == ["orders"]


def test_a_run_compared_with_itself_shows_that_nothing_ran(floodmark: Floodmark) -> None:
    """An empty diff is an answer."""
    said = floodmark("diff", "a1", "a1")
    assert (said.code, said.out.splitlines()[-1]) == (0, "nothing ran in between")


def test_an_unknown_run_is_exit_2_and_near_ones_are_named(floodmark: Floodmark) -> None:
    """Ids stand in the first column of `floodmark runs`."""
    said = floodmark("diff", "a2", "b2")
    assert (said.code, said.err) == (
        2,
        "Error: there is no run 'a2'.\nTry: one of: b2, a1; `floodmark runs` shows their ids\n",
    )
    assert [line.split()[0] for line in floodmark("runs").out.splitlines()] == ["run", "b2", "a1"]

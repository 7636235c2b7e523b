"""Tables as health sees them: real Delta tables, written and read without a JVM."""

from __future__ import annotations

import shutil
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from floodmark.health.report import HOUR, Limits, Report, TableWatch
from floodmark.health.tables import TableFacts, TableLooks, freshness, look_at, table_count

NOON = datetime(2026, 11, 15, 12, tzinfo=timezone.utc)
ORDERS = TableWatch("orders", "lake/orders")


def facts(*, hours: float = 1, rows: int | None = 10) -> TableFacts:
    return TableFacts("orders", True, NOON - timedelta(hours=hours), rows, files=1, bytes=100)


def test_a_table_tells_its_rows_files_and_last_change(tmp_path: Path) -> None:
    """All of it from the log."""
    write_deltalake(tmp_path / "orders", pa.table({"id": [1, 2, 3]}))
    write_deltalake(tmp_path / "orders", pa.table({"id": [4]}), mode="append")
    seen = look_at(TableWatch("orders", str(tmp_path / "orders")))
    assert (seen.exists, seen.rows, seen.files, seen.error) == (True, 4, 2, None)
    assert seen.bytes > 0
    assert seen.last_change is not None


def test_compaction_does_not_make_a_table_fresh(tmp_path: Path) -> None:
    """What counts is when rows last came or went."""
    write_deltalake(tmp_path / "orders", pa.table({"id": [1, 2, 3]}))
    write_deltalake(tmp_path / "orders", pa.table({"id": [4]}), mode="append")
    table = TableWatch("orders", str(tmp_path / "orders"))
    before = look_at(table).last_change
    time.sleep(0.05)
    DeltaTable(tmp_path / "orders").optimize.compact()
    after = look_at(table)
    assert (after.files, after.last_change) == (1, before)


def test_a_table_that_is_not_there_and_one_that_cannot_be_read_are_two_things(tmp_path: Path) -> None:
    """And neither is empty."""
    assert not look_at(TableWatch("gone", str(tmp_path / "gone"))).exists
    log = tmp_path / "torn" / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("{not json")
    torn = look_at(TableWatch("torn", str(tmp_path / "torn")))
    assert (torn.exists, torn.error is not None, torn.rows) == (True, True, None)


@pytest.mark.parametrize(
    ("hours", "word", "status"),
    [
        (0, "FRESH", "HEALTHY"),
        (23.9, "FRESH", "HEALTHY"),
        (24, "STALE", "WARNING"),
        (47.9, "STALE", "WARNING"),
        (48, "VERY_STALE", "CRITICAL"),
    ],
)
def test_freshness_has_two_steps(hours: float, word: str, status: str) -> None:
    """24 hours, and twice that."""
    found = freshness(ORDERS, facts(hours=hours), NOON)
    assert (found.facts["freshness"], found.status) == (word, status)


def test_a_table_may_have_a_limit_of_its_own() -> None:
    """A table that is filled once an hour is stale after two."""
    hourly = TableWatch("orders", "lake/orders", Limits(freshness_seconds=2 * HOUR))
    assert freshness(hourly, facts(hours=3), NOON).facts["freshness"] == "STALE"


@pytest.mark.parametrize(
    ("rows", "before", "limits", "status"),
    [
        (10, None, Limits(), "HEALTHY"),
        (10, 10, Limits(), "HEALTHY"),
        (15, 10, Limits(), "HEALTHY"),
        (16, 10, Limits(), "WARNING"),
        (4, 10, Limits(), "WARNING"),
        (5, None, Limits(min_rows=6), "WARNING"),
        (0, 10, Limits(), "CRITICAL"),
        (0, None, Limits(min_rows=0), "HEALTHY"),
        (None, 10, Limits(), "UNKNOWN"),
    ],
)
def test_a_count_is_held_against_zero_the_minimum_and_the_last_one(
    rows: int | None, before: int | None, limits: Limits, status: str
) -> None:
    """Half more or half less is still usual."""
    assert table_count(TableWatch("orders", "x", limits), facts(rows=rows), before).status == status


def test_a_count_is_compared_with_the_one_before_the_last_batch_however_often_it_is_looked_at(tmp_path: Path) -> None:
    """A table that lost most of its rows does not become healthy by a second look, but by another batch."""
    table = TableWatch("orders", str(tmp_path / "orders"))
    write_deltalake(table.where, pa.table({"id": list(range(100))}))
    write_deltalake(table.where, pa.table({"id": list(range(30))}), mode="overwrite")
    seen = [table_count(table, look_at(table), before) for before in (100, 30)]
    assert {(each.status, each.message) for each in seen} == {
        ("WARNING", "30 rows, 100 before its last batch: changed by 70%")
    }
    write_deltalake(table.where, pa.table({"id": [31]}), mode="append")
    assert table_count(table, look_at(table), 100).status == "HEALTHY"


def test_rows_that_a_batch_added_or_took_are_told_by_its_commit(tmp_path: Path) -> None:
    """A delete and an append say themselves how many; a compaction after them changes nothing."""
    where = str(tmp_path / "orders")
    write_deltalake(where, pa.table({"id": list(range(100))}))
    DeltaTable(where).delete("id < 40")
    deleted = look_at(TableWatch("orders", where))
    write_deltalake(where, pa.table({"id": [1, 2]}), mode="append")
    DeltaTable(where).optimize.compact()
    added = look_at(TableWatch("orders", where))
    assert [(each.rows_before, each.rows) for each in (deleted, added)] == [(100, 60), (60, 62)]


def test_a_log_that_does_not_reach_back_leaves_the_count_of_the_last_look() -> None:
    """It is better than nothing, and says so."""
    seen = table_count(ORDERS, facts(rows=4), 10)
    assert seen.message == "4 rows, 10 at the last look: changed by 60%"


def test_looks_again_and_again_see_what_changed(tmp_path: Path) -> None:
    """What is kept of a table is of its version: a table that was made anew is another one."""
    looks, table = TableLooks(), TableWatch("orders", str(tmp_path / "orders"))
    write_deltalake(table.where, pa.table({"id": [1, 2, 3]}))
    first, again = looks.look_at(table), looks.look_at(table)
    shutil.rmtree(table.where)
    gone = looks.look_at(table)
    write_deltalake(table.where, pa.table({"id": [1]}))
    assert (first is again or first == again, gone.exists, looks.look_at(table).rows) == (True, False, 1)


@pytest.mark.parametrize(
    ("seen", "status"),
    [(TableFacts("orders", exists=False), "CRITICAL"), (TableFacts("orders", error="no permission"), "UNKNOWN")],
)
def test_a_table_that_is_not_there_is_critical_and_one_that_cannot_be_looked_at_unknown(
    seen: TableFacts, status: str
) -> None:
    """ "No rows" and "could not look" are never the same."""
    assert freshness(ORDERS, seen, NOON).status == status
    assert table_count(ORDERS, seen, 10).status == status


def test_not_to_know_makes_the_whole_a_warning() -> None:
    """It is never HEALTHY, and no reason to wake somebody either."""
    unseen = freshness(ORDERS, TableFacts("orders", error="no permission"), NOON)
    assert Report(NOON, (unseen,)).overall == "WARNING"


def test_a_project_with_nothing_to_look_at_says_so() -> None:
    """Nothing is not well."""
    empty = Report(NOON, ())
    assert (empty.overall, empty.recommendations()[0].startswith("there is nothing to look at")) == ("WARNING", True)

"""What changed between two runs: by receipts and by the tables' logs."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

import floodmark as fm
from floodmark.errors import RunNotFound
from floodmark.jobs.diff import ColumnChange, FileChange, RowChange, RuleChange, diff, table_change
from floodmark.probes.delta import note
from floodmark.sinks.contract import Sink
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import Receipt, RuleOutcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = datetime(2026, 11, 15, 12, tzinfo=timezone.utc)
LEDGER = "floodmark.default.orders.delta"


def done(job: str, run: str, minute: int, number: int, rows: int, failed: int = 0) -> Receipt:
    """A run that read rows up to a mark of ten times its number, some of which broke a rule."""
    return Receipt(
        job,
        run,
        "done",
        NOON + timedelta(minutes=minute),
        2.0,
        batches=1,
        number=number,
        rows_read=rows,
        rows_written={"delta": rows - failed},
        rows_refused=failed,
        rows_quarantined=failed,
        mark_before=10 * (number - 1),
        mark_after=10 * number,
        rules=(RuleOutcome("not_null(id)", "quarantine", failed, rows),),
    )


@pytest.fixture
def store() -> MemoryMarkStore:
    """Three runs of a job, one of which failed in between, and one of another job."""
    opened = MemoryMarkStore()
    opened.add_run(done("orders", "aaaa1111", 0, 1, rows=5))
    opened.add_run(done("orders", "bbbb2222", 10, 2, rows=20, failed=1))
    opened.add_run(done("customers", "cccc3333", 15, 1, rows=7))
    opened.add_run(Receipt("orders", "", "failed", NOON + timedelta(minutes=20), error="disk full"))
    opened.add_run(done("orders", "bbbb9999", 30, 3, rows=30, failed=2))
    return opened


def test_what_runs_of_a_job_did_is_summed_up_to_the_later_one(store: MemoryMarkStore) -> None:
    """The earlier one is where it begins, and not part of it."""
    [change] = diff(store, "aaaa1111", "bbbb9999", {"orders": []}).jobs
    assert (change.runs, change.failed_runs, change.mark_before, change.mark_after) == (3, 1, 10, 30)
    assert (change.rows_read, change.rows_written, change.rows_quarantined) == (50, {"delta": 47}, 3)
    assert change.rules == (RuleChange("not_null(id)", "quarantine", 3, 50, failed_before=0, checked_before=5),)


def test_other_jobs_that_ran_in_between_are_told_too(store: MemoryMarkStore) -> None:
    """By the time they ended; whichever of the two runs is named first."""
    found = diff(store, "bbbb9999", "bbbb2222", {"orders": [], "customers": []})
    assert (found.first.run, found.last.run) == ("bbbb2222", "bbbb9999")
    assert [(change.job, change.runs, change.mark_before) for change in found.jobs] == [
        ("orders", 2, 20),
        ("customers", 1, 0),
    ]


def test_a_job_that_only_failed_moved_no_mark(store: MemoryMarkStore) -> None:
    """Its mark is shown as it stood."""
    store.add_run(done("customers", "dddd4444", 25, 2, rows=1))
    change, _ = diff(store, "bbbb2222", "dddd4444", {"orders": [], "customers": []}).jobs
    assert (change.runs, change.failed_runs, change.mark_before, change.mark_after) == (1, 1, 20, 20)
    assert (change.rows_read, change.tables) == (0, ())


def test_a_run_may_be_named_by_how_it_begins(store: MemoryMarkStore) -> None:
    """As long as no other one begins so."""
    assert diff(store, "aaaa", "cccc", {}).last.job == "customers"
    with pytest.raises(RunNotFound) as caught:
        diff(store, "aaaa", "bbbb", {})
    assert caught.value.message == "2 runs begin with 'bbbb'."
    assert caught.value.near == ("bbbb2222", "bbbb9999")


def test_an_unknown_run_is_refused_with_those_that_are_near(store: MemoryMarkStore) -> None:
    """And with the way to see all of them."""
    with pytest.raises(RunNotFound) as caught:
        diff(store, "aaaa1112", "cccc3333", {})
    assert (caught.value.run, caught.value.near) == ("aaaa1112", ("aaaa1111",))
    assert caught.value.hint == "one of: aaaa1111; `floodmark runs` shows their ids"


def add(table: Path, number: int | None, rows: pa.Table) -> None:
    """Rows of a batch, or of somebody else."""
    metadata = {"userMetadata": note(LEDGER, number, None)} if number is not None else {}
    write_deltalake(
        table, rows, mode="append", schema_mode="merge", commit_properties=CommitProperties(custom_metadata=metadata)
    )


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Batches 1 and 3 of a job, with a commit of somebody else in between; a column came with the last."""
    add(tmp_path / "orders", 1, pa.table({"id": [1, 2]}))
    add(tmp_path / "orders", None, pa.table({"id": [9]}))
    add(tmp_path / "orders", 3, pa.table({"id": [3], "note": ["x"]}))
    return tmp_path / "orders"


def test_a_table_is_told_from_the_one_batch_to_the_other(table: Path) -> None:
    """With what others did to it in between."""
    change = table_change("orders", str(table), LEDGER, after=1, upto=3)
    assert (change.from_version, change.to_version, change.commits) == (0, 2, {"WRITE": 2})
    assert change.rows == RowChange(2, 0, 0)
    assert (change.files.added, change.files.removed) == (2, 0)
    assert change.columns == ColumnChange(added={"note": "string"})


def test_a_table_that_the_first_batch_made_is_told_from_nothing(table: Path) -> None:
    """Version None stands for: it was not there."""
    change = table_change("orders", str(table), LEDGER, after=0, upto=1)
    assert (change.from_version, change.to_version, change.rows) == (None, 0, RowChange(2, 0, 0))
    assert (change.files.bytes_before, change.columns) == (0, ColumnChange(added={"id": "long"}))


def test_what_an_overwrite_took_away_is_not_known(table: Path) -> None:
    """The log counts the rows that it wrote, and only those."""
    metadata = CommitProperties(custom_metadata={"userMetadata": note(LEDGER, 4, None)})
    write_deltalake(table, pa.table({"id": [7]}), mode="overwrite", schema_mode="overwrite", commit_properties=metadata)
    change = table_change("orders", str(table), LEDGER, after=3, upto=4)
    assert (change.rows, change.files.removed) == (RowChange(1), 3)
    assert change.columns == ColumnChange(removed={"note": "string"})


@pytest.mark.parametrize(
    ("where", "after", "unknown"),
    [
        (None, 1, "it is known by its name in a catalog, which only a session can ask"),
        ("nowhere", 1, "its log has no commit of these runs"),
    ],
)
def test_a_table_that_cannot_be_looked_at_says_why(where: str | None, after: int, unknown: str) -> None:
    """Nothing is shown as 0 that nobody counted."""
    change = table_change("orders", where, LEDGER, after=after, upto=2)
    assert (change.unknown, change.to_version, change.rows, change.files) == (unknown, None, RowChange(), FileChange())


@pytest.mark.spark
def test_two_runs_of_a_merge_are_told_as_spark_logged_them(spark: SparkSession, tmp_path: Path) -> None:
    """Rows inserted and updated by the table's own counts, and the column that evolved."""
    (tmp_path / "in").mkdir()
    sink = fm.sinks.Delta(str(tmp_path / "orders"), mode="merge", key=("id",), sequence=("at",))
    job = fm.Job(
        name="orders",
        source=fm.sources.Files(str(tmp_path / "in"), settle=0),
        sinks=[sink],
        on_schema_change="evolve",
    )
    store = MemoryMarkStore()
    (tmp_path / "in" / "1.jsonl").write_text('{"id": 1, "at": 1}\n{"id": 2, "at": 1}\n')
    first = job.run(spark, store)
    (tmp_path / "in" / "2.jsonl").write_text('{"id": 2, "at": 2, "note": "x"}\n{"id": 3, "at": 2, "note": "y"}\n')
    second = job.run(spark, store)
    sinks: list[Sink] = [sink]
    [change] = diff(store, first.run, second.run, {"orders": sinks}).jobs
    [seen] = change.tables
    assert (seen.rows, seen.columns, seen.unknown) == (RowChange(1, 1, 0), ColumnChange(added={"note": "string"}), None)
    assert (change.rows_read, seen.commits["MERGE"]) == (2, 1)

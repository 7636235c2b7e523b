"""Backfill: a range is delivered again, once, in chunks, and the mark stays where it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import floodmark as fm
from floodmark.errors import BackfillOpen, ConfigError, RangeAboveMark, SinkFailed
from floodmark.hwm import ColumnIntHWM
from floodmark.sinks.contract import Sink
from floodmark.stores.contract import MarkStore
from floodmark.stores.lease import hold
from floodmark.stores.record import JobRecord
from floodmark.testing import ListSink
from tests.tables import sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def store(tmp_path: Path) -> MarkStore:
    return fm.stores.open("sqlite:///marks.db", folder=tmp_path)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A table o(seq, v) with the rows 1 to 100."""
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    connection.execute("create table o (seq integer primary key, v text)")
    connection.executemany("insert into o values (?, ?)", [(seq, f"v{seq}") for seq in range(1, 101)])
    connection.commit()
    connection.close()
    return path


def job_of(shop: Path, *sinks: Sink, **more: object) -> fm.Job:
    return fm.Job(name="orders", source=fm.sources.Sqlite(shop, table="o", cursor="seq"), sinks=sinks, **more)


def delivered(store: MarkStore, upto: int = 100) -> None:
    """As if a run had delivered everything up to here."""
    mark = ColumnIntHWM("sqlite", upto, entity="o", expression="seq")
    with hold(store, "orders") as lease:
        store.commit(JobRecord("orders", 1, {"sqlite": mark}), expected=0, lease=lease.lease)


def seqs(rows: Sequence[dict]) -> list[int]:
    return [row["seq"] for row in rows]


def mark_in(store: MarkStore) -> object:
    record = store.read("orders")
    return record.marks["sqlite"].value if record else None


def test_a_range_is_half_open_and_the_mark_stays(spark: SparkSession, store: MarkStore, shop: Path) -> None:
    """The case of the specification: 10 to 20 of 1 to 100, with the mark at 100."""
    delivered(store)
    sink = ListSink()
    receipt = job_of(shop, sink).backfill("10", "20", spark, store)
    assert seqs(sink.rows) == list(range(10, 20))
    assert (receipt.rows_read, receipt.mark_before, receipt.mark_after, mark_in(store)) == (10, 100, 100, 100)


def test_chunks_are_batches_and_a_failed_one_is_finished_by_the_same_call(
    spark: SparkSession, store: MarkStore, shop: Path
) -> None:
    """Nothing twice, nothing left out: the second call begins with the chunk that failed."""
    delivered(store)
    sink = ListSink(fail_times=1)
    job = job_of(shop, sink)
    with pytest.raises(SinkFailed):
        job.backfill("10", "20", spark, store, chunk_rows=4)
    receipt = job.backfill("10", "20", spark, store, chunk_rows=4)
    assert (seqs(sink.rows), receipt.batches, mark_in(store)) == (list(range(10, 20)), 3, 100)


def test_a_run_finishes_the_open_chunk_and_the_backfill_goes_on_behind_it(
    spark: SparkSession, store: MarkStore, shop: Path
) -> None:
    """Whoever comes next finishes what was begun; the run moves the mark to its own rows only."""
    delivered(store, 90)
    sink = ListSink(fail_times=1)
    job = job_of(shop, sink)
    with pytest.raises(SinkFailed):
        job.backfill("10", "20", spark, store, chunk_rows=6)
    run = job.run(spark, store)
    assert (seqs(sink.rows), run.mark_after) == ([*range(10, 16), *range(91, 101)], 100)
    job.backfill("10", "20", spark, store, chunk_rows=6)
    assert seqs(sink.rows)[16:] == [16, 17, 18, 19]


def test_a_finished_backfill_begins_anew_when_it_is_asked_for_again(
    spark: SparkSession, store: MarkStore, shop: Path
) -> None:
    """The chunk that ends exactly with the last row of the range leaves nothing open either."""
    delivered(store)
    sink = ListSink()
    job = job_of(shop, sink)
    job.backfill("99", "105", spark, store, chunk_rows=2)
    again = job.backfill("99", "105", spark, store, chunk_rows=2)
    assert (seqs(sink.rows), again.rows_read) == ([99, 100, 99, 100], 2)
    assert any("beyond the mark" in note for note in again.notes)


def test_another_range_waits_until_the_open_one_is_finished_or_given_up(
    spark: SparkSession, store: MarkStore, shop: Path
) -> None:
    """Two half-done ranges could not both be remembered."""
    delivered(store)
    sink = ListSink(fail_times=1)
    job = job_of(shop, sink)
    with pytest.raises(SinkFailed):
        job.backfill("10", "20", spark, store, chunk_rows=4)
    job.run(spark, store)
    with pytest.raises(BackfillOpen) as refusal:
        job.backfill("50", "52", spark, store)
    assert (refusal.value.start, refusal.value.stop) == ("10", "20")
    job.backfill("50", "52", spark, store, restart=True)
    assert seqs(sink.rows) == [10, 11, 12, 13, 50, 51]


def test_a_merge_never_puts_an_older_row_over_a_newer_one(
    spark: SparkSession, store: MarkStore, tmp_path: Path
) -> None:
    """Two versions of a key lie in the source; the range holds only the older, and the table keeps the newer."""
    path = tmp_path / "versions.db"
    connection = sqlite3.connect(path)
    connection.execute("create table o (seq integer primary key, id integer, v text)")
    connection.executemany("insert into o values (?, ?, ?)", [(1, 7, "old"), (2, 8, "only"), (3, 7, "new")])
    connection.commit()
    job = job_of(path, fm.sinks.Delta(str(tmp_path / "t"), mode="merge", key=["id"]))
    job.run(spark, store)
    connection.execute("update o set v = 'fixed' where seq = 2")
    connection.commit()
    connection.close()
    job.backfill("1", "3", spark, store)
    assert sorted_rows(tmp_path / "t") == [(2, 8, "fixed"), (3, 7, "new")]


@pytest.mark.parametrize(
    ("start", "stop", "error", "said"),
    [
        ("101", "110", RangeAboveMark, "above the mark 100"),
        ("20", "20", ConfigError, "nothing lies from 20 to 20"),
        ("ten", "20", ConfigError, "--from ten"),
        ("10", "2024-01-01", ConfigError, "--to 2024-01-01"),
    ],
)
def test_a_range_that_cannot_be_is_refused_before_anything_is_read(
    store: MarkStore, shop: Path, start: str, stop: str, error: type[Exception], said: str
) -> None:
    """Rows above the mark come by themselves; an empty range is a slip of the pen."""
    delivered(store)
    with pytest.raises(error, match=said):
        job_of(shop, ListSink()).backfill(start, stop, never, store)


def never() -> SparkSession:
    raise AssertionError("Spark was asked for")


def test_without_a_mark_there_is_nothing_to_deliver_again(store: MarkStore, shop: Path) -> None:
    """The first run delivers everything."""
    with pytest.raises(ConfigError, match="has no mark"):
        job_of(shop, ListSink()).backfill("1", "2", never, store)


def test_a_sink_that_replaces_rows_is_refused(store: MarkStore, shop: Path, tmp_path: Path) -> None:
    """A chunk would take the place of rows that it does not have."""
    delivered(store)
    with pytest.raises(ConfigError, match="replaces rows"):
        job_of(shop, fm.sinks.Delta(str(tmp_path / "t"), mode="replace", by=["v"])).backfill("1", "2", never, store)


def test_files_have_no_range(store: MarkStore, tmp_path: Path) -> None:
    """A list of files has no order that a value could be put into."""
    source = fm.sources.Files(str(tmp_path), format="jsonl", schema="id long", name="sqlite")
    delivered(store)
    job = fm.Job(name="orders", source=source, sinks=[ListSink()])
    with pytest.raises(ConfigError, match="no range of values"):
        job.backfill("1", "2", never, store)


def test_a_range_without_rows_is_nothing_new(store: MarkStore, tmp_path: Path) -> None:
    """Spark is not even asked for, and nothing is remembered."""
    path = tmp_path / "gap.db"
    connection = sqlite3.connect(path)
    connection.execute("create table o (seq integer primary key, v text)")
    connection.executemany("insert into o values (?, 'v')", [(1,), (100,)])
    connection.commit()
    connection.close()
    delivered(store)
    receipt = job_of(path, ListSink()).backfill("10", "20", never, store)
    record = store.read("orders")
    assert (receipt.status, record is not None and record.extras.backfill is not None) == ("nothing_new", False)

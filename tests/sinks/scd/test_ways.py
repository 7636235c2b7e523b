"""The two ways into a table with history: which batch takes which, and that the tables are the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable, write_deltalake

from floodmark.sinks.scd.small import SmallBatch
from tests.sinks.batches import SMALL, UNKNOWN, batch, frame
from tests.sinks.delta.test_ways import jobs_started
from tests.sinks.scd.histories import events, history, version_lines
from tests.tables import rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.sinks import Scd1
    from floodmark.sinks.contract import BatchSize
    from floodmark.sinks.scd.small import AddedEvents

pytestmark = pytest.mark.spark


def write(sink: Scd1, rows: DataFrame, number: int, size: BatchSize = SMALL) -> str | None:
    """How the batch was written."""
    made = batch(number, size=size)
    sink.write(rows, made)
    return made.notes.ways[sink.name]


def test_a_small_batch_starts_one_spark_job(spark: SparkSession, tmp_path: Path) -> None:
    """It brings the events to the driver; the log, the table and both commits need none."""
    sink = history(tmp_path)
    assert write(sink, events(spark, x="a@1", y="a@1"), 1) == "arrow"
    assert jobs_started(spark, lambda: write(sink, events(spark, x="b@5 D@9", y="a@4/new"), 2)) == 1
    assert version_lines(tmp_path) == {"x": "a[1,5) b[5,9)", "y": "a/new[1,)"}


def test_either_way_goes_on_where_the_other_left_the_table(spark: SparkSession, tmp_path: Path) -> None:
    """A large batch, a small one, a large one: the number decides, not who wrote it."""
    sink = history(tmp_path)
    ways = [
        write(sink, events(spark, x="a@1"), 1, UNKNOWN),
        write(sink, events(spark, x="c@9", z="a@1"), 2),
        write(sink, events(spark, x="b@5"), 3, UNKNOWN),
        write(sink, events(spark, x="D@7"), 4),
    ]
    assert ways == ["parquet", "arrow", "spark", "arrow"]
    assert version_lines(tmp_path) == {"x": "a[1,5) b[5,7) c[9,)", "z": "a[1,)"}
    by_spark = spark.read.format("delta").load(str(tmp_path / "t")).collect()
    assert sorted(map(str, by_spark)) == sorted(map(str, rows_of(tmp_path / "t")))


def test_events_that_change_nothing_still_record_their_number(spark: SparkSession, tmp_path: Path) -> None:
    """The table has to say that it has the batch, or the next run would write it again."""
    sink = history(tmp_path)
    write(sink, events(spark, x="a@1"), 1)
    assert write(sink, events(spark, x="a@1", NULL="b@2"), 2) == "arrow"
    recorded = sink.recorded("floodmark.prod.orders.scd2", lambda: spark)
    assert (recorded and recorded.number, version_lines(tmp_path)) == (2, {"x": "a[1,)"})


def test_ties_that_arrival_decides_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Only the error is known to be the same here."""
    sink = history(tmp_path, on_conflict="last_arrival")
    write(sink, events(spark, x="a@1"), 1)
    assert write(sink, events(spark, x="b@5"), 2) == "spark"


def test_a_small_snapshot_is_held_against_the_table_and_goes_through_arrow(spark: SparkSession, tmp_path: Path) -> None:
    """What is absent from it was deleted."""
    sink = history(tmp_path, changes="snapshot", delete_when=None)
    write(sink, events(spark, x="a@1", y="a@1"), 1)
    assert write(sink, events(spark, x="b@5"), 2) == "arrow"
    assert version_lines(tmp_path) == {"x": "a[1,5) b[5,)", "y": "a[1,5)"}


def test_a_log_that_was_pruned_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Below the floor nothing is rebuilt."""
    sink = history(tmp_path)
    write(sink, events(spark, x="a@1 b@5 c@9"), 1)
    sink.prune(spark, 6)
    assert write(sink, events(spark, x="d@12"), 2) == "spark"
    assert version_lines(tmp_path) == {"x": "a[1,5) b[5,9) c[9,12) d[12,)"}


def test_a_batch_that_was_cut_off_after_its_events_is_finished(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The events are in the log once, and the table follows from them."""
    sink = history(tmp_path)
    write(sink, events(spark, x="a@1"), 1)

    def die(self: SmallBatch, added: AddedEvents) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SmallBatch, "rebuild", die)
        with pytest.raises(KeyboardInterrupt):
            write(sink, events(spark, x="b@5"), 2)
    assert sink.partial_batch("floodmark.prod.orders.scd2", lambda: spark) == 2
    write(sink, events(spark, x="b@5"), 2)
    assert version_lines(tmp_path) == {"x": "a[1,5) b[5,)"}
    assert DeltaTable(str(tmp_path / "t__events")).to_pyarrow_table().num_rows == 2


def test_a_table_that_another_changed_meanwhile_is_rebuilt_by_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read of it no longer counts."""
    sink, rebuild = history(tmp_path), SmallBatch.rebuild
    write(sink, events(spark, x="a@1"), 1)

    def touch(self: SmallBatch, added: AddedEvents) -> bool:
        table = DeltaTable(str(tmp_path / "t"))
        write_deltalake(table, table.to_pyarrow_table().slice(0, 0), mode="append")
        return rebuild(self, added)

    monkeypatch.setattr(SmallBatch, "rebuild", touch)
    assert write(sink, events(spark, x="b@5"), 2) == "spark"
    assert version_lines(tmp_path) == {"x": "a[1,5) b[5,)"}


def test_a_small_batch_of_rows_without_a_place_is_kept_in_the_log(spark: SparkSession, tmp_path: Path) -> None:
    """There is no key to rebuild, and the reason is beside each."""
    sink = history(tmp_path)
    write(sink, events(spark, x="a@1"), 1)
    assert write(sink, frame(spark, "k string, at int, v string, note string", (None, 1, "a", None)), 2) == "arrow"
    refused = sink.refused(spark)
    assert refused is not None
    assert [row._event_refused for row in refused.collect()] == ["key column k is NULL"]

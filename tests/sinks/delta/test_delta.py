"""The Delta sink against real Spark and real tables: appends, and how a batch is known again."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from floodmark import sources
from floodmark.errors import ConfigError, SinkFailed
from floodmark.probes.delta import DeltaProbe
from floodmark.sinks import Delta
from floodmark.sinks.contract import POSITION, Ordered, Recorded, Shaped
from floodmark.sinks.delta.lock import table_lock
from tests.sinks.batches import ID_V, BatchMaker, frame, no_session, on_disk
from tests.tables import sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
LEDGER = "floodmark.prod.orders.delta"


def test_an_append_makes_the_table_and_records_its_number_in_the_same_commit(
    batch: BatchMaker, ab: DataFrame, tmp_path: Path
) -> None:
    """Rows without their number, or a number without its rows, cannot exist."""
    sink = Delta(str(tmp_path))
    assert sink.write(ab, batch(1)) == 2
    assert sorted_rows(tmp_path) == [(1, "a"), (2, "b")]
    assert sink.recorded(LEDGER, no_session) == Recorded(1, "d1")
    assert DeltaTable(tmp_path).version() == 0


def test_the_commit_says_which_batch_it_is(batch: BatchMaker, ab: DataFrame, tmp_path: Path) -> None:
    """What a person finds in the table's history is enough to find the run."""
    Delta(str(tmp_path)).write(ab, batch(1))
    note = json.loads(DeltaTable(tmp_path).history(1)[0]["userMetadata"])
    facts = {"ledger": LEDGER, "number": 1, "digest": "d1", "job": "orders", "marks": {"src": 1}}
    assert note == {"floodmark": {"format": 1, **facts}}


@pytest.mark.parametrize(
    "sink",
    [
        Delta("t"),
        Delta("t", mode="replace"),
        Delta("t", mode="replace", by=("id",)),
        Delta("t", mode="merge", key=("id",)),
    ],
    ids=["append", "replace", "replace by", "merge"],
)
def test_a_repeated_number_changes_no_byte(
    batch: BatchMaker, spark: SparkSession, ab: DataFrame, tmp_path: Path, sink: Delta
) -> None:
    """A crash after the write costs a repeat, and the repeat costs nothing; the count of then is given again."""
    there = replace(sink, path=str(tmp_path))
    first = there.write(ab, batch(1))
    before = on_disk(tmp_path)
    again = replace(there).write(frame(spark, ID_V, (8, "other")), batch(1, attempt="a2"))
    assert (first, again) == (2, 2)
    assert on_disk(tmp_path) == before


@pytest.mark.parametrize(
    "sink",
    [
        Delta("t"),
        Delta("t", mode="replace"),
        Delta("t", mode="replace", by=("id",)),
        Delta("t", mode="merge", key=("id",)),
    ],
    ids=["append", "replace", "replace by", "merge"],
)
def test_delta_itself_refuses_a_number_that_is_there(
    batch: BatchMaker, spark: SparkSession, ab: DataFrame, tmp_path: Path, sink: Delta
) -> None:
    """Whoever looked before another one committed is stopped by the table's own transaction record."""
    there = replace(sink, path=str(tmp_path))
    there.write(ab, batch(5))
    version = DeltaTable(tmp_path).version()
    there._commit(frame(spark, ID_V, (8, "late")), batch(5), exists=True)
    there._commit(frame(spark, ID_V, (8, "late")), batch(4), exists=True)
    assert (DeltaTable(tmp_path).version(), sorted_rows(tmp_path)) == (version, [(1, "a"), (2, "b")])


@pytest.mark.parametrize(
    "sink",
    [Delta("t"), Delta("t", mode="replace", by=("id",)), Delta("t", mode="merge", key=("id",))],
    ids=["append", "replace by", "merge"],
)
def test_a_batch_without_rows_records_its_number(batch: BatchMaker, ab: DataFrame, tmp_path: Path, sink: Delta) -> None:
    """A batch whose rows were all filtered out is a batch all the same."""
    there = replace(sink, path=str(tmp_path))
    there.write(ab, batch(1))
    assert there.write(ab.where("id > 100"), batch(2)) == 0
    assert there.recorded(LEDGER, no_session) == Recorded(2, "d2")
    assert sorted_rows(tmp_path) == [(1, "a"), (2, "b")]


def test_a_missing_table_holds_no_rows_and_has_no_schema(tmp_path: Path) -> None:
    """Answered from the disk, without a JVM."""
    sink = Delta(str(tmp_path / "t"))
    assert (sink.holds_rows(no_session), sink.schema(no_session)) == (False, None)


def test_a_table_tells_its_schema_and_that_it_holds_rows(
    batch: BatchMaker, spark: SparkSession, ab: DataFrame, tmp_path: Path
) -> None:
    """The step compares the rows with it before anything is written."""
    sink = Delta(str(tmp_path))
    sink.write(ab, batch(1))
    schema = sink.schema(lambda: spark)
    assert schema is not None
    assert (schema.simpleString(), sink.holds_rows(no_session)) == ("struct<id:bigint,v:string>", True)
    assert isinstance(sink, Shaped)
    assert isinstance(sink, Ordered)


def test_own_columns_never_reach_a_table(batch: BatchMaker, spark: SparkSession, tmp_path: Path) -> None:
    """The position helps to choose between rows, and is nobody's business afterwards."""
    rows = frame(spark, f"id long, {POSITION} long", (1, 1), (1, 2))
    Delta(str(tmp_path / "a")).write(rows, batch(1))
    Delta(str(tmp_path / "m"), mode="merge", key=("id",)).write(rows, batch(1))
    assert sorted_rows(tmp_path / "a") == [(1,), (1,)]
    assert sorted_rows(tmp_path / "m") == [(1,)]


def test_two_ledgers_on_one_table_do_not_touch_each_other(
    batch: BatchMaker, spark: SparkSession, ab: DataFrame, tmp_path: Path
) -> None:
    """Numbers belong to a ledger, not to the table."""
    first, second = Delta(str(tmp_path), name="one"), Delta(str(tmp_path), name="two")
    first.write(ab, batch(7))
    second.write(frame(spark, ID_V, (3, "c")), batch(1))
    assert first.recorded("floodmark.prod.orders.one", no_session) == Recorded(7, "d7")
    assert second.recorded("floodmark.prod.orders.two", no_session) == Recorded(1, "d1")
    assert len(sorted_rows(tmp_path)) == 3


def test_appends_side_by_side_to_one_table_all_arrive(batch: BatchMaker, spark: SparkSession, tmp_path: Path) -> None:
    """The lock brings the commits of threads into a line."""
    sinks = [Delta(str(tmp_path), name=f"s{n}") for n in range(3)]
    rows = [frame(spark, "id long", (n,)) for n in range(3)]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda sink, row: sink.write(row, batch(1)), sinks, rows)) == [1, 1, 1]
    assert sorted_rows(tmp_path) == [(0,), (1,), (2,)]


def test_a_table_that_another_process_commits_to_is_waited_for_and_then_given_up(
    batch: BatchMaker, ab: DataFrame, tmp_path: Path
) -> None:
    """The error names who holds it; nothing was written."""
    sink = Delta(str(tmp_path), patience_seconds=0.1)
    with table_lock(tmp_path, None, patience_seconds=1), pytest.raises(SinkFailed) as caught:
        sink.write(ab, batch(1))
    assert f"process {os.getpid()} on" in caught.value.reason
    assert DeltaProbe(str(tmp_path)).refresh() is False


def test_a_table_is_given_by_its_name_in_the_catalog(batch: BatchMaker, spark: SparkSession, ab: DataFrame) -> None:
    """It is made where the catalog wants it, and its log is read there."""
    spark.sql("DROP TABLE IF EXISTS named_sink")
    sink = Delta(table="default.named_sink")
    assert sink.recorded(LEDGER, lambda: spark) is None
    assert (sink.write(ab, batch(1)), sink.write(ab, batch(1))) == (2, 2)
    assert spark.table("named_sink").count() == 2
    assert sink.recorded(LEDGER, lambda: spark) == Recorded(1, "d1")
    spark.sql("DROP TABLE named_sink")


def test_a_failed_write_lets_sparks_own_error_through(batch: BatchMaker, spark: SparkSession, tmp_path: Path) -> None:
    """The step asks the source first what it may have been."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException):
        Delta(str(tmp_path)).write(frame(spark, ID_V, (1, "a")).selectExpr("raise_error('mine') AS x"), batch(1))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"path": "t", "table": "t"},
        {"path": "t", "mode": "upsert"},
        {"path": "t", "mode": "merge"},
        {"path": "t", "by": ("id",)},
        {"path": "t", "sequence": ("n",)},
        {"path": "t", "partition_by": ("a",), "cluster_by": ("b",)},
    ],
)
def test_options_that_do_not_go_together_are_refused_at_once(options: dict[str, object]) -> None:
    """Before any row is read."""
    with pytest.raises(ConfigError):
        Delta(**options)  # type: ignore[arg-type]


def test_a_name_that_stands_for_another_table_by_now_is_asked_again_for_each_batch(
    batch: BatchMaker, spark: SparkSession, ab: DataFrame, tmp_path: Path
) -> None:
    """Dropped and made anew elsewhere in the middle of a loop: the ledger there has nothing, which the step sees."""
    spark.sql("DROP TABLE IF EXISTS moved_sink")
    ab.limit(0).write.format("delta").save(str(tmp_path / "one"))
    ab.limit(0).write.format("delta").save(str(tmp_path / "two"))
    sink, source = Delta(table="moved_sink"), sources.Delta(table="moved_sink", changes="append")
    spark.sql(f"CREATE TABLE moved_sink USING delta LOCATION '{tmp_path / 'one'}'")
    sink.write(ab, batch(1))
    before = source.fingerprint(lambda: spark)
    spark.sql("DROP TABLE moved_sink")
    spark.sql(f"CREATE TABLE moved_sink USING delta LOCATION '{tmp_path / 'two'}'")
    assert sink.recorded(LEDGER, lambda: spark) is None
    sink.write(ab, batch(2))
    assert [len(sorted_rows(tmp_path / name)) for name in ("one", "two")] == [2, 2]
    source._place.location_now(lambda: spark)
    assert source.fingerprint(lambda: spark) != before
    spark.sql("DROP TABLE moved_sink")

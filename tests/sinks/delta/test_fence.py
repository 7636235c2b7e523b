"""A Delta table that is fenced: who is paused with the number cannot write, whether the table is there or not."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from floodmark.errors import Overtaken, SinkDisagrees
from floodmark.probes.delta import DeltaProbe
from floodmark.sinks import Delta, DeltaDates
from floodmark.sinks.contract import Recorded
from floodmark.sinks.delta.target import DeltaTarget
from tests.sinks.batches import ID_V, BatchMaker, frame, no_session, on_disk
from tests.sinks.batches import batch as make_batch
from tests.tables import sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
LEDGER = "floodmark.prod.orders.delta"
FENCED = Recorded(9, None, is_fence=True)
KINDS = {
    "append": Delta("t"),
    "replace": Delta("t", mode="replace"),
    "replace by": Delta("t", mode="replace", by=("id",)),
    "merge": Delta("t", mode="merge", key=("id",)),
}


@pytest.fixture
def without_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a store that sees to its commits itself."""
    monkeypatch.setattr(DeltaTarget, "lock", lambda *_: nullcontext())


def test_a_fence_stops_whoever_is_paused_at_it_or_below(
    batch: BatchMaker, spark: SparkSession, ab: DataFrame, tmp_path: Path
) -> None:
    """The number is taken without a row: an old run must not go on to its next sink either."""
    sink = Delta(str(tmp_path))
    sink.write(ab, batch(1))
    sink.fence(LEDGER, 9, lambda: spark)
    before = on_disk(tmp_path)
    for number in (9, 8):
        with pytest.raises(Overtaken):
            sink.write(frame(spark, ID_V, (3, "zombie")), batch(number))
    sink.fence(LEDGER, 5, lambda: spark)
    assert on_disk(tmp_path) == before
    assert sink.recorded(LEDGER, no_session) == FENCED


def test_a_lower_number_than_a_written_one_is_overtaken(
    batch: BatchMaker, spark: SparkSession, ab: DataFrame, tmp_path: Path
) -> None:
    """And a fence at the number of a written batch changes nothing: the batch came first."""
    sink = Delta(str(tmp_path))
    sink.write(ab, batch(5))
    sink.fence(LEDGER, 5, lambda: spark)
    with pytest.raises(Overtaken):
        sink.write(frame(spark, ID_V, (3, "zombie")), batch(4))
    with pytest.raises(SinkDisagrees):
        sink.write(frame(spark, ID_V, (3, "other")), batch(5, digest="e"))
    assert sorted_rows(tmp_path) == [(1, "a"), (2, "b")]
    assert sink.recorded(LEDGER, no_session) == Recorded(5, "d5")


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_is_not_there_is_fenced_and_still_counts_as_not_there(
    batch: BatchMaker, spark: SparkSession, ab: DataFrame, tmp_path: Path, kind: str
) -> None:
    """A paused first batch finds its number taken; the next batch makes the table as if nothing had been."""
    sink = replace(KINDS[kind], path=str(tmp_path / "t"))
    sink.fence(LEDGER, 9, lambda: spark)
    assert (sink.recorded(LEDGER, no_session), sink.schema(no_session)) == (FENCED, None)
    assert (sink.holds_rows(no_session), DeltaProbe(str(tmp_path / "t")).refresh()) == (False, False)
    with pytest.raises(Overtaken):
        sink.write(ab, batch(9))
    assert sink.write(ab, batch(10)) == 2
    assert sorted_rows(tmp_path / "t") == [(1, "a"), (2, "b")]
    assert sink.recorded(LEDGER, no_session) == Recorded(10, "d10")


def test_the_first_batch_after_a_fence_gives_the_table_all_that_it_was_to_have(
    batch: BatchMaker, spark: SparkSession, ab: DataFrame, tmp_path: Path
) -> None:
    """Also what the fence, made by earlier code, did not know of."""
    Delta(str(tmp_path / "p")).fence(LEDGER, 1, lambda: spark)
    Delta(str(tmp_path / "p"), partition_by=("v",), change_feed=True).write(ab, batch(2))
    Delta(str(tmp_path / "c")).fence(LEDGER, 1, lambda: spark)
    Delta(str(tmp_path / "c"), cluster_by=("id",)).write(ab, batch(2))
    parted = DeltaTable(tmp_path / "p").metadata()
    assert (parted.partition_columns, parted.configuration) == (["v"], {"delta.enableChangeDataFeed": "true"})
    clustered = spark.sql(f"DESCRIBE DETAIL delta.`{tmp_path / 'c'}`").collect()[0]
    assert clustered["clusteringColumns"] == ["id"]
    assert DeltaTable(tmp_path / "c").transaction_version(LEDGER) == 2


def test_a_name_that_the_catalog_does_not_have_is_fenced_too(
    batch: BatchMaker, spark: SparkSession, ab: DataFrame
) -> None:
    """The fence makes the name; the first batch gives it columns."""
    spark.sql("DROP TABLE IF EXISTS fenced_sink")
    sink = Delta(table="default.fenced_sink")
    sink.fence(LEDGER, 9, lambda: spark)
    with pytest.raises(Overtaken):
        sink.write(ab, batch(9))
    assert (sink.schema(lambda: spark), sink.write(ab, batch(10))) == (None, 2)
    assert sorted(tuple(row) for row in spark.table("fenced_sink").collect()) == [(1, "a"), (2, "b")]
    spark.sql("DROP TABLE fenced_sink")


def test_facts_by_date_are_fenced_before_the_first(spark: SparkSession, tmp_path: Path) -> None:
    """The table of facts goes through the same door."""
    sink = DeltaDates(str(tmp_path / "f"))
    sink.fence("floodmark.prod.orders.facts", 9, lambda: spark)
    assert sink.recorded("floodmark.prod.orders.facts", no_session) == FENCED
    assert sink.schema(no_session) is None


@pytest.mark.parametrize("kind", ["append", "merge"])
@pytest.mark.parametrize("exists", [True, False], ids=["table", "no table"])
@pytest.mark.usefixtures("without_lock")
def test_a_fence_between_the_question_and_the_commit_stops_the_writer(
    spark: SparkSession,
    ab: DataFrame,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    exists: bool,
) -> None:
    """Without a lock Delta passes over the transaction without a word: Spark's writer asks again before it says done.

    How the native writer is stopped, `test_ways` tells."""
    sink, commit = replace(KINDS[kind], path=str(tmp_path / "t"), writer="spark"), Delta._commit
    if exists:
        sink.write(ab, make_batch(1))

    def fenced_first(self: Delta, rows: DataFrame, number: object, *, exists: bool) -> None:
        Delta(self.path).fence(LEDGER, 9, lambda: spark)
        commit(self, rows, make_batch(9), exists=exists)

    monkeypatch.setattr(Delta, "_commit", fenced_first)
    with pytest.raises(Overtaken):
        sink.write(frame(spark, ID_V, (3, "zombie")), make_batch(9))
    assert sink.recorded(LEDGER, no_session) == FENCED
    assert (sink.read(lambda: spark) is not None) is exists
    assert DeltaProbe(str(tmp_path / "t")).refresh() is exists


@pytest.mark.usefixtures("without_lock")
def test_of_two_first_writers_behind_a_fence_neither_takes_the_others_rows(
    batch: BatchMaker, spark: SparkSession, tmp_path: Path
) -> None:
    """Giving the table its columns replaces what is there, so it is done once, by the log's own word."""
    one, two = (Delta(str(tmp_path), name=name) for name in ("one", "two"))
    one.fence("floodmark.prod.orders.one", 1, lambda: spark)
    late = two.target.probe(no_session)
    assert late is not None
    one.write(frame(spark, ID_V, (1, "a")), batch(2))
    two.target._give_columns(frame(spark, ID_V, (2, "b")), late)
    two.write(frame(spark, ID_V, (2, "b")), batch(2))
    assert sorted_rows(tmp_path) == [(1, "a"), (2, "b")]

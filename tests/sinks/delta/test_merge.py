"""Merges of the Delta sink: which row of a key wins, and what stops them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from floodmark.errors import SinkFailed
from floodmark.probes.delta import DeltaProbe
from floodmark.sinks import Delta
from floodmark.sinks.contract import POSITION, Batch, Recorded
from floodmark.sinks.delta import members_table
from tests.sinks.batches import ID_V, BatchMaker, frame, no_session
from tests.tables import rows_of, sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
LEDGER = "floodmark.prod.orders.delta"
MEMBERS = "sk long, id string, size int, _fm_gone boolean"


def test_merge_updates_matched_keys_and_inserts_the_others(
    batch: BatchMaker, spark: SparkSession, ab: DataFrame, tmp_path: Path
) -> None:
    """Rows written are those that were inserted, updated or deleted."""
    sink = Delta(str(tmp_path), mode="merge", key=("id",))
    assert sink.write(ab, batch(1)) == 2
    assert sink.write(frame(spark, ID_V, (2, "B"), (3, "c")), batch(2)) == 2
    assert sorted_rows(tmp_path) == [(1, "a"), (2, "B"), (3, "c")]


def test_merge_keeps_the_row_with_the_highest_sequence(batch: BatchMaker, spark: SparkSession, tmp_path: Path) -> None:
    """Compared left to right, with NULL below every value."""
    schema = "id long, day int, n int, v string"
    rows = frame(spark, schema, (1, 1, 9, "old"), (1, 2, 1, "new"), (1, 2, None, "mid"), (2, None, 1, "only"))
    Delta(str(tmp_path), mode="merge", key=("id",), sequence=("day", "n")).write(rows, batch(1))
    assert sorted_rows(tmp_path) == [(1, 2, 1, "new"), (2, None, 1, "only")]


def test_merge_never_overwrites_a_higher_sequence_that_is_stored(
    batch: BatchMaker, spark: SparkSession, tmp_path: Path
) -> None:
    """A late or repeated change does not undo a newer one; an equal one is written again."""
    sink = Delta(str(tmp_path), mode="merge", key=("id",), sequence=("day", "n"), delete_when="v = 'gone'")
    schema = "id long, day int, n int, v string"
    sink.write(frame(spark, schema, (1, 2, 5, "kept"), (2, 2, 5, "kept"), (3, 2, 5, "x"), (4, None, 1, "x")), batch(1))
    late = frame(spark, schema, (1, 2, 4, "late"), (2, 1, 9, "gone"), (3, 2, 5, "same"), (4, 1, None, "now"))
    assert sink.write(late, batch(2)) == 2
    assert sorted_rows(tmp_path) == [(1, 2, 5, "kept"), (2, 2, 5, "kept"), (3, 2, 5, "same"), (4, 1, None, "now")]


def test_a_merge_in_which_nothing_wins_records_its_number(
    batch: BatchMaker, spark: SparkSession, tmp_path: Path
) -> None:
    """A batch of nothing but late rows is done all the same."""
    sink = Delta(str(tmp_path), mode="merge", key=("id",), sequence=("n",))
    sink.write(frame(spark, "id long, n int", (1, 5)), batch(1))
    assert sink.write(frame(spark, "id long, n int", (1, 4)), batch(2)) == 0
    assert sink.recorded(LEDGER, no_session) == Recorded(2, "d2")


def test_without_a_sequence_merge_goes_by_the_sources_position(
    batch: BatchMaker, spark: SparkSession, tmp_path: Path
) -> None:
    """The last change of a key in the source is the one that counts."""
    sink = Delta(str(tmp_path), mode="merge", key=("id",))
    sink.write(
        frame(spark, f"{ID_V}, {POSITION} struct<f:string,n:long>", (1, "x", ("b", 1)), (1, "y", ("a", 9))), batch(1)
    )
    assert (sorted_rows(tmp_path), sink.needs_position()) == ([(1, "x")], True)


def test_the_first_merge_makes_the_table_in_one_commit_with_the_feed_that_is_asked_for(
    batch: BatchMaker, ab: DataFrame, tmp_path: Path
) -> None:
    """There is nothing to merge with; whoever reads the table on needs its changes from the first row on."""
    Delta(str(tmp_path), mode="merge", key=("id",), change_feed=True).write(ab, batch(1))
    probe = DeltaProbe(str(tmp_path))
    assert (probe.refresh(), probe.feed_is_on(), probe.latest()) == (True, True, 0)
    assert sorted_rows(tmp_path) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("writer", ["auto", "spark"])
def test_a_table_gets_its_feed_with_the_next_batch_if_the_sink_asks_for_it_later(
    batch: BatchMaker, spark: SparkSession, ab: DataFrame, tmp_path: Path, writer: Literal["auto", "spark"]
) -> None:
    """A setting that is ignored without a word would be found out by the reader's error; a repeat switches nothing."""
    plain = Delta(str(tmp_path), mode="merge", key=("id",), writer=writer)
    plain.write(ab, batch(1))
    followed = replace(plain, change_feed=True)
    followed.write(frame(spark, ID_V, (2, "c")), batch(2))
    followed.write(frame(spark, ID_V, (2, "c")), batch(2))
    probe = DeltaProbe(str(tmp_path))
    assert (probe.refresh(), probe.feed_is_on(), probe.latest()) == (True, True, 2)
    changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", "2")
    found = changes.load(str(tmp_path)).select("_change_type", "id", "v").collect()
    assert sorted(map(tuple, found)) == [("update_postimage", 2, "c"), ("update_preimage", 2, "b")]


def test_without_any_order_two_different_rows_of_a_key_stop_the_merge(
    batch: BatchMaker, spark: SparkSession, tmp_path: Path
) -> None:
    """Choosing at random would be a lie; the key is named and nothing is written."""
    sink = Delta(str(tmp_path), mode="merge", key=("id",))
    with pytest.raises(SinkFailed) as caught:
        sink.write(frame(spark, ID_V, (1, "x"), (1, "y")), batch(1))
    assert 'two different rows have the key {"id":1}' in caught.value.reason
    assert (list(tmp_path.glob("_delta_log/*.json")), sink.recorded(LEDGER, no_session)) == ([], None)


def test_rows_that_are_the_same_collapse(batch: BatchMaker, spark: SparkSession, tmp_path: Path) -> None:
    """A duplicate needs no choice, also with columns that cannot be compared."""
    rows = frame(spark, "id long, v map<string,int>", (1, {"a": 1}), (1, {"a": 1}))
    assert Delta(str(tmp_path), mode="merge", key=("id",)).write(rows, batch(1)) == 1


def test_a_map_is_the_same_in_whatever_order_its_entries_come(
    batch: BatchMaker, spark: SparkSession, tmp_path: Path
) -> None:
    """Also inside of a record: two such rows are one, and no contradiction."""
    rows = spark.sql("select 1 as id, named_struct('m', map('a', 1, 'b', 2)) as s").unionByName(
        spark.sql("select 1 as id, named_struct('m', map('b', 2, 'a', 1)) as s")
    )
    assert Delta(str(tmp_path), mode="merge", key=("id",)).write(rows, batch(1)) == 1


def test_a_tie_of_the_sequence_between_different_rows_stops_the_merge(
    batch: BatchMaker, spark: SparkSession, tmp_path: Path
) -> None:
    """The sequence has to tell rows apart; two rows that lost may well be alike."""
    sink = Delta(str(tmp_path), mode="merge", key=("id",), sequence=("n",))
    sink.write(frame(spark, "id long, n int, v string", (1, 1, "x"), (1, 1, "y"), (1, 2, "z")), batch(1))
    with pytest.raises(SinkFailed):
        sink.write(frame(spark, "id long, n int, v string", (1, 3, "x"), (1, 3, "y")), batch(2))
    assert sorted_rows(tmp_path) == [(1, 2, "z")]


def test_a_null_key_stops_the_merge_and_names_the_column(
    batch: BatchMaker, spark: SparkSession, tmp_path: Path
) -> None:
    """NULL equals nothing, so such a row would be inserted again with every batch."""
    sink = Delta(str(tmp_path), mode="merge", key=("id", "v"))
    with pytest.raises(SinkFailed) as caught:
        sink.write(frame(spark, ID_V, (1, "a"), (2, None)), batch(1))
    assert caught.value.reason == "key column v is NULL in a row: a merge needs every key"
    assert list(tmp_path.glob("_delta_log/*.json")) == []


def test_delete_when_deletes_matched_keys_and_inserts_none(
    batch: BatchMaker, spark: SparkSession, ab: DataFrame, tmp_path: Path
) -> None:
    """A delete of a key that is not there is no row."""
    sink = Delta(str(tmp_path), mode="merge", key=("id",), delete_when="v = 'D'")
    sink.write(ab, batch(1))
    assert sink.write(frame(spark, ID_V, (1, "D"), (9, "D"), (3, "c")), batch(2)) == 2
    assert sorted_rows(tmp_path) == [(2, "b"), (3, "c")]


def test_a_merge_of_fewer_columns_leaves_the_others_alone(
    batch: BatchMaker, spark: SparkSession, ab: DataFrame, tmp_path: Path
) -> None:
    """A column that the batch does not have is not the batch's to change."""
    sink = Delta(str(tmp_path), mode="merge", key=("id",))
    sink.write(ab, batch(1))
    sink.write(frame(spark, "id long", (1,), (3,)), batch(2))
    found = sorted(rows_of(tmp_path), key=lambda row: row.id)
    assert [tuple(row) for row in found] == [(1, "a"), (2, "b"), (3, None)]


def test_merges_side_by_side_keep_their_transactions_apart(
    batch: BatchMaker, spark: SparkSession, tmp_path: Path
) -> None:
    """Each runs in a session of its own, and none of it stays in the session they share."""
    sinks = [Delta(str(tmp_path / str(n)), mode="merge", key=("id",), name=f"s{n}") for n in range(3)]
    rows = [frame(spark, "id long", (n,)) for n in range(3)]
    numbers = [batch(n + 10) for n in range(3)]

    def one(sink: Delta, row: DataFrame, number: Batch) -> int | None:
        return sink.write(row, number)

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(one, sinks, rows, numbers)) == [1, 1, 1]
    ledgers = [f"floodmark.prod.orders.s{n}" for n in range(3)]
    recorded = [sink.recorded(ledger, no_session) for sink, ledger in zip(sinks, ledgers, strict=True)]
    assert recorded == [Recorded(10, "d10"), Recorded(11, "d11"), Recorded(12, "d12")]
    assert spark.conf.get("spark.databricks.delta.write.txnAppId", "none") == "none"
    assert [table.name for table in spark.catalog.listTables("global_temp")] == []


def rows_by_key(table: Path) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in sorted(rows_of(table), key=lambda row: row.sk)]


def test_a_key_that_the_table_has_for_another_member_stops_the_batch(
    batch: BatchMaker, spark: SparkSession, tmp_path: Path
) -> None:
    """The merge would take two members for one, whether it changes or deletes; what has a partner or none is merged."""
    sink = members_table(str(tmp_path), key=("sk",), name="dim").refusing_others(("id",))
    sink.write(frame(spark, MEMBERS, (-1, None, None, False), (1, "a", 1, False), (2, "b", 1, False)), batch(1))
    news = [(-1, None, None, False), (1, "a", 9, False), (2, "b", 1, True), (3, "c", 1, False)]
    sink.write(frame(spark, MEMBERS, *news), batch(2))
    assert rows_by_key(tmp_path) == [(-1, None, None), (1, "a", 9), (3, "c", 1)]
    with pytest.raises(SinkFailed, match="two members have the sk 1"):
        sink.write(frame(spark, MEMBERS, (1, "z", 5, False)), batch(3))
    with pytest.raises(SinkFailed, match="two members have the sk 3"):
        sink.write(frame(spark, MEMBERS, (3, "z", 5, True)), batch(3))
    assert rows_by_key(tmp_path) == [(-1, None, None), (1, "a", 9), (3, "c", 1)]

"""The Delta sink against real Spark and real tables."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from deltalake import DeltaTable

from floodmark.errors import ConfigError, SinkFailed
from floodmark.probes.delta import DeltaProbe
from floodmark.sinks import Delta
from floodmark.sinks.contract import POSITION, Batch, Ordered, Recorded, Shaped
from floodmark.sinks.delta_lock import table_lock
from tests.sinks.batches import batch, delta_rows, frame, on_disk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
LEDGER = "floodmark.prod.orders.delta"
ID_V = "id long, v string"


@pytest.fixture
def ab(spark: SparkSession) -> DataFrame:
    return frame(spark, ID_V, (1, "a"), (2, "b"))


def no_session() -> SparkSession:
    raise AssertionError("this needs no Spark")


def test_an_append_makes_the_table_and_records_its_number_in_the_same_commit(
    spark: SparkSession, ab: DataFrame, tmp_path: Path
) -> None:
    """Rows without their number, or a number without its rows, cannot exist."""
    sink = Delta(str(tmp_path))
    assert sink.write(ab, batch(1)) == 2
    assert delta_rows(spark, tmp_path) == [(1, "a"), (2, "b")]
    assert sink.recorded(LEDGER, no_session) == Recorded(1, "d1")
    assert DeltaTable(tmp_path).version() == 0


def test_the_commit_says_which_batch_it_is(ab: DataFrame, tmp_path: Path) -> None:
    """What a person finds in the table's history is enough to find the run."""
    Delta(str(tmp_path)).write(ab, batch(1))
    told = json.loads(DeltaTable(tmp_path).history(1)[0]["userMetadata"])
    assert told == {"floodmark": {"ledger": LEDGER, "number": 1, "digest": "d1", "job": "orders", "marks": {"src": 1}}}


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
def test_a_repeated_number_changes_no_byte(spark: SparkSession, ab: DataFrame, tmp_path: Path, sink: Delta) -> None:
    """A crash after the write costs a repeat, and the repeat costs nothing; the count of then is told again."""
    there = replace(sink, path=str(tmp_path))
    first = there.write(ab, batch(1))
    before = on_disk(tmp_path)
    again = replace(there).write(frame(spark, ID_V, (8, "other")), batch(1, attempt="a2"))
    assert (first, again) == (2, 2)
    assert on_disk(tmp_path) == before


@pytest.mark.parametrize(
    ("sink", "transaction"),
    [
        (Delta("t"), "_save"),
        (Delta("t", mode="replace"), "_save"),
        (Delta("t", mode="replace", by=("id",)), "_replace_by"),
        (Delta("t", mode="merge", key=("id",)), "_merge"),
    ],
    ids=["append", "replace", "replace by", "merge"],
)
def test_delta_itself_refuses_a_number_that_is_there(
    spark: SparkSession, ab: DataFrame, tmp_path: Path, sink: Delta, transaction: str
) -> None:
    """Whoever looked before another one committed is stopped by the table's own transaction record."""
    there = replace(sink, path=str(tmp_path))
    there.write(ab, batch(5))
    version = DeltaTable(tmp_path).version()
    getattr(there, transaction)(frame(spark, ID_V, (8, "late")), batch(5), exists=True)
    getattr(there, transaction)(frame(spark, ID_V, (8, "late")), batch(4), exists=True)
    assert (DeltaTable(tmp_path).version(), delta_rows(spark, tmp_path)) == (version, [(1, "a"), (2, "b")])


@pytest.mark.parametrize(
    "sink",
    [Delta("t"), Delta("t", mode="replace", by=("id",)), Delta("t", mode="merge", key=("id",))],
    ids=["append", "replace by", "merge"],
)
def test_a_batch_without_rows_records_its_number(
    spark: SparkSession, ab: DataFrame, tmp_path: Path, sink: Delta
) -> None:
    """A batch whose rows were all filtered out is a batch all the same."""
    there = replace(sink, path=str(tmp_path))
    there.write(ab, batch(1))
    assert there.write(ab.where("id > 100"), batch(2)) == 0
    assert there.recorded(LEDGER, no_session) == Recorded(2, "d2")
    assert delta_rows(spark, tmp_path) == [(1, "a"), (2, "b")]


def test_a_fence_stops_whoever_is_paused_below_it(spark: SparkSession, ab: DataFrame, tmp_path: Path) -> None:
    """The number is taken without a row, so an old run's write finds it taken."""
    sink = Delta(str(tmp_path))
    sink.write(ab, batch(1))
    sink.fence(LEDGER, 9, lambda: spark)
    assert sink.write(frame(spark, ID_V, (3, "zombie")), batch(9)) == 0
    assert sink.write(frame(spark, ID_V, (3, "zombie")), batch(8)) is None
    assert delta_rows(spark, tmp_path) == [(1, "a"), (2, "b")]
    assert sink.recorded(LEDGER, no_session) == Recorded(9, None)


def test_a_fence_on_a_table_that_is_not_there_does_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """There is no log to write the number to."""
    sink = Delta(str(tmp_path / "t"))
    sink.fence(LEDGER, 9, no_session)
    assert sink.recorded(LEDGER, no_session) is None


def test_a_missing_table_holds_no_rows_and_has_no_schema(tmp_path: Path) -> None:
    """Answered from the disk, without a JVM."""
    sink = Delta(str(tmp_path / "t"))
    assert (sink.holds_rows(no_session), sink.schema(no_session)) == (False, None)


def test_a_table_tells_its_schema_and_that_it_holds_rows(spark: SparkSession, ab: DataFrame, tmp_path: Path) -> None:
    """The step compares the rows with it before anything is written."""
    sink = Delta(str(tmp_path))
    sink.write(ab, batch(1))
    schema = sink.schema(lambda: spark)
    assert schema is not None
    assert (schema.simpleString(), sink.holds_rows(no_session)) == ("struct<id:bigint,v:string>", True)
    assert isinstance(sink, Shaped)
    assert isinstance(sink, Ordered)


def test_own_columns_never_reach_a_table(spark: SparkSession, tmp_path: Path) -> None:
    """The position helps to choose between rows, and is nobody's business afterwards."""
    rows = frame(spark, f"id long, {POSITION} long", (1, 1), (1, 2))
    Delta(str(tmp_path / "a")).write(rows, batch(1))
    Delta(str(tmp_path / "m"), mode="merge", key=("id",)).write(rows, batch(1))
    assert delta_rows(spark, tmp_path / "a") == [(1,), (1,)]
    assert delta_rows(spark, tmp_path / "m") == [(1,)]


def test_merge_updates_matched_keys_and_inserts_the_others(spark: SparkSession, ab: DataFrame, tmp_path: Path) -> None:
    """Rows written are those that were inserted, updated or deleted."""
    sink = Delta(str(tmp_path), mode="merge", key=("id",))
    assert sink.write(ab, batch(1)) == 2
    assert sink.write(frame(spark, ID_V, (2, "B"), (3, "c")), batch(2)) == 2
    assert delta_rows(spark, tmp_path) == [(1, "a"), (2, "B"), (3, "c")]


def test_merge_keeps_the_row_with_the_highest_sequence(spark: SparkSession, tmp_path: Path) -> None:
    """Compared left to right, with NULL below every value."""
    schema = "id long, day int, n int, v string"
    rows = frame(spark, schema, (1, 1, 9, "old"), (1, 2, 1, "new"), (1, 2, None, "mid"), (2, None, 1, "only"))
    Delta(str(tmp_path), mode="merge", key=("id",), sequence=("day", "n")).write(rows, batch(1))
    assert delta_rows(spark, tmp_path) == [(1, 2, 1, "new"), (2, None, 1, "only")]


def test_merge_never_overwrites_a_higher_sequence_that_is_stored(spark: SparkSession, tmp_path: Path) -> None:
    """A late or repeated change does not undo a newer one; an equal one is written again."""
    sink = Delta(str(tmp_path), mode="merge", key=("id",), sequence=("day", "n"), delete_when="v = 'gone'")
    schema = "id long, day int, n int, v string"
    sink.write(frame(spark, schema, (1, 2, 5, "kept"), (2, 2, 5, "kept"), (3, 2, 5, "x"), (4, None, 1, "x")), batch(1))
    late = frame(spark, schema, (1, 2, 4, "late"), (2, 1, 9, "gone"), (3, 2, 5, "same"), (4, 1, None, "now"))
    assert sink.write(late, batch(2)) == 2
    assert delta_rows(spark, tmp_path) == [(1, 2, 5, "kept"), (2, 2, 5, "kept"), (3, 2, 5, "same"), (4, 1, None, "now")]


def test_a_merge_in_which_nothing_wins_records_its_number(spark: SparkSession, tmp_path: Path) -> None:
    """A batch of nothing but late rows is done all the same."""
    sink = Delta(str(tmp_path), mode="merge", key=("id",), sequence=("n",))
    sink.write(frame(spark, "id long, n int", (1, 5)), batch(1))
    assert sink.write(frame(spark, "id long, n int", (1, 4)), batch(2)) == 0
    assert sink.recorded(LEDGER, no_session) == Recorded(2, "d2")


def test_without_a_sequence_merge_goes_by_the_sources_position(spark: SparkSession, tmp_path: Path) -> None:
    """The last change of a key in the source is the one that counts."""
    sink = Delta(str(tmp_path), mode="merge", key=("id",))
    sink.write(
        frame(spark, f"{ID_V}, {POSITION} struct<f:string,n:long>", (1, "x", ("b", 1)), (1, "y", ("a", 9))), batch(1)
    )
    assert (delta_rows(spark, tmp_path), sink.needs_position()) == ([(1, "x")], True)


def test_the_first_merge_makes_the_table_in_one_commit_with_the_feed_that_is_asked_for(
    spark: SparkSession, ab: DataFrame, tmp_path: Path
) -> None:
    """There is nothing to merge with; whoever reads the table on needs its changes from the first row on."""
    Delta(str(tmp_path), mode="merge", key=("id",), change_feed=True).write(ab, batch(1))
    probe = DeltaProbe(str(tmp_path))
    assert (probe.refresh(), probe.feed_is_on(), probe.latest()) == (True, True, 0)
    assert delta_rows(spark, tmp_path) == [(1, "a"), (2, "b")]


def test_without_any_order_two_different_rows_of_a_key_stop_the_merge(spark: SparkSession, tmp_path: Path) -> None:
    """Choosing at random would be a lie; the key is named and nothing is written."""
    sink = Delta(str(tmp_path), mode="merge", key=("id",))
    with pytest.raises(SinkFailed) as caught:
        sink.write(frame(spark, ID_V, (1, "x"), (1, "y")), batch(1))
    assert 'two different rows have the key {"id":1}' in caught.value.reason
    assert (list(tmp_path.glob("_delta_log/*.json")), sink.recorded(LEDGER, no_session)) == ([], None)


def test_rows_that_are_the_same_collapse(spark: SparkSession, tmp_path: Path) -> None:
    """A duplicate needs no choice, also with columns that cannot be compared."""
    rows = frame(spark, "id long, v map<string,int>", (1, {"a": 1}), (1, {"a": 1}))
    assert Delta(str(tmp_path), mode="merge", key=("id",)).write(rows, batch(1)) == 1


def test_a_tie_of_the_sequence_between_different_rows_stops_the_merge(spark: SparkSession, tmp_path: Path) -> None:
    """The sequence has to tell rows apart; two rows that lost may well be alike."""
    sink = Delta(str(tmp_path), mode="merge", key=("id",), sequence=("n",))
    sink.write(frame(spark, "id long, n int, v string", (1, 1, "x"), (1, 1, "y"), (1, 2, "z")), batch(1))
    with pytest.raises(SinkFailed):
        sink.write(frame(spark, "id long, n int, v string", (1, 3, "x"), (1, 3, "y")), batch(2))
    assert delta_rows(spark, tmp_path) == [(1, 2, "z")]


def test_a_null_key_stops_the_merge_and_names_the_column(spark: SparkSession, tmp_path: Path) -> None:
    """NULL equals nothing, so such a row would be inserted again with every batch."""
    sink = Delta(str(tmp_path), mode="merge", key=("id", "v"))
    with pytest.raises(SinkFailed) as caught:
        sink.write(frame(spark, ID_V, (1, "a"), (2, None)), batch(1))
    assert caught.value.reason == "key column v is NULL in a row: a merge needs every key"
    assert list(tmp_path.glob("_delta_log/*.json")) == []


def test_delete_when_deletes_matched_keys_and_inserts_none(spark: SparkSession, ab: DataFrame, tmp_path: Path) -> None:
    """A delete of a key that is not there is no row."""
    sink = Delta(str(tmp_path), mode="merge", key=("id",), delete_when="v = 'D'")
    sink.write(ab, batch(1))
    assert sink.write(frame(spark, ID_V, (1, "D"), (9, "D"), (3, "c")), batch(2)) == 2
    assert delta_rows(spark, tmp_path) == [(2, "b"), (3, "c")]


def test_replace_exchanges_exactly_the_rows_with_the_batchs_values(spark: SparkSession, tmp_path: Path) -> None:
    """Days that the batch does not have stay as they are; NULL is a value here."""
    sink = Delta(str(tmp_path), mode="replace", by=("day",))
    sink.write(frame(spark, "day string, n int", ("mon", 1), ("mon", 2), ("tue", 3), (None, 4)), batch(1))
    assert sink.write(frame(spark, "day string, n int", ("mon", 7), ("mon", 7), (None, 8)), batch(2)) == 3
    assert delta_rows_by_n(spark, tmp_path) == [(3, "tue"), (7, "mon"), (7, "mon"), (8, None)]


def delta_rows_by_n(spark: SparkSession, folder: Path) -> list[tuple[int, str | None]]:
    return [(row.n, row.day) for row in spark.read.format("delta").load(str(folder)).orderBy("n").collect()]


def test_replace_without_by_replaces_everything(spark: SparkSession, ab: DataFrame, tmp_path: Path) -> None:
    """In one commit, so a reader sees the old rows or the new."""
    sink = Delta(str(tmp_path), mode="replace")
    sink.write(ab, batch(1))
    sink.write(frame(spark, ID_V, (3, "c")), batch(2))
    assert (delta_rows(spark, tmp_path), DeltaTable(tmp_path).version()) == ([(3, "c")], 1)


@pytest.mark.parametrize(
    "sink",
    [Delta("t"), Delta("t", mode="replace", by=("id",)), Delta("t", mode="merge", key=("id",))],
    ids=["append", "replace by", "merge"],
)
def test_a_refresh_replaces_the_whole_table_in_one_commit(
    spark: SparkSession, ab: DataFrame, tmp_path: Path, sink: Delta
) -> None:
    """Whatever the mode, and also with other columns; the number goes on."""
    there = replace(sink, path=str(tmp_path))
    there.write(ab, batch(1))
    version = DeltaTable(tmp_path).version()
    assert there.write(frame(spark, "id long, w int", (7, 70)), batch(2, kind="refresh")) == 1
    assert there.write(frame(spark, "id long, w int", (8, 80)), batch(2, kind="refresh")) == 1
    assert (delta_rows(spark, tmp_path), DeltaTable(tmp_path).version()) == ([(7, 70)], version + 1)


def test_a_refresh_of_a_merge_keeps_one_row_per_key_and_no_deleted_one(spark: SparkSession, tmp_path: Path) -> None:
    """The table is what merging everything from the start would have made."""
    sink = Delta(str(tmp_path), mode="merge", key=("id",), sequence=("n",), delete_when="v = 'D'")
    rows = frame(spark, "id long, n int, v string", (1, 1, "a"), (1, 2, "b"), (2, 1, "a"), (2, 2, "D"))
    sink.write(rows, batch(1, kind="refresh"))
    assert delta_rows(spark, tmp_path) == [(1, 2, "b")]


@pytest.mark.parametrize(
    "sink",
    [Delta("t"), Delta("t", mode="replace", by=("id",)), Delta("t", mode="merge", key=("id",))],
    ids=["append", "replace by", "merge"],
)
def test_evolve_adds_new_columns(spark: SparkSession, ab: DataFrame, tmp_path: Path, sink: Delta) -> None:
    """Rows that were there have NULL in them."""
    there = replace(sink, path=str(tmp_path), evolve=True)
    there.write(ab, batch(1))
    there.write(frame(spark, "id long, v string, extra int", (3, "c", 30)), batch(2))
    assert spark.read.format("delta").load(str(tmp_path)).where("id = 3").collect()[0].asDict() == {
        "id": 3,
        "v": "c",
        "extra": 30,
    }


def test_a_merge_of_fewer_columns_leaves_the_others_alone(spark: SparkSession, ab: DataFrame, tmp_path: Path) -> None:
    """A column that the batch does not have is not the batch's to change."""
    sink = Delta(str(tmp_path), mode="merge", key=("id",))
    sink.write(ab, batch(1))
    sink.write(frame(spark, "id long", (1,), (3,)), batch(2))
    found = spark.read.format("delta").load(str(tmp_path)).orderBy("id").collect()
    assert [tuple(row) for row in found] == [(1, "a"), (2, "b"), (3, None)]


def test_two_ledgers_on_one_table_do_not_touch_each_other(spark: SparkSession, ab: DataFrame, tmp_path: Path) -> None:
    """Numbers belong to a ledger, not to the table."""
    first, second = Delta(str(tmp_path), name="one"), Delta(str(tmp_path), name="two")
    first.write(ab, batch(7))
    second.write(frame(spark, ID_V, (3, "c")), batch(1))
    assert first.recorded("floodmark.prod.orders.one", no_session) == Recorded(7, "d7")
    assert second.recorded("floodmark.prod.orders.two", no_session) == Recorded(1, "d1")
    assert len(delta_rows(spark, tmp_path)) == 3


def test_merges_side_by_side_keep_their_transactions_apart(spark: SparkSession, tmp_path: Path) -> None:
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


def test_appends_side_by_side_to_one_table_all_arrive(spark: SparkSession, tmp_path: Path) -> None:
    """The lock brings the commits of threads into a line."""
    sinks = [Delta(str(tmp_path), name=f"s{n}") for n in range(3)]
    rows = [frame(spark, "id long", (n,)) for n in range(3)]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda sink, row: sink.write(row, batch(1)), sinks, rows)) == [1, 1, 1]
    assert delta_rows(spark, tmp_path) == [(0,), (1,), (2,)]


def test_a_table_that_another_process_commits_to_is_waited_for_and_then_given_up(ab: DataFrame, tmp_path: Path) -> None:
    """The error names who holds it; nothing was written."""
    sink = Delta(str(tmp_path), patience_seconds=0.1)
    with table_lock(tmp_path, 1, patience_seconds=1), pytest.raises(SinkFailed) as caught:
        sink.write(ab, batch(1))
    assert "process 1 on" in caught.value.reason
    assert DeltaProbe(str(tmp_path)).refresh() is False


def test_a_table_is_given_by_its_name_in_the_catalog(spark: SparkSession, ab: DataFrame) -> None:
    """It is made where the catalog wants it, and its log is read there."""
    spark.sql("DROP TABLE IF EXISTS named_sink")
    sink = Delta(table="default.named_sink")
    assert sink.recorded(LEDGER, lambda: spark) is None
    assert (sink.write(ab, batch(1)), sink.write(ab, batch(1))) == (2, 2)
    assert spark.table("named_sink").count() == 2
    assert sink.recorded(LEDGER, lambda: spark) == Recorded(1, "d1")
    spark.sql("DROP TABLE named_sink")


def test_partitions_are_kept_through_a_refresh(spark: SparkSession, ab: DataFrame, tmp_path: Path) -> None:
    """The layout belongs to the sink and not to the first batch."""
    sink = Delta(str(tmp_path), partition_by=("v",))
    sink.write(ab, batch(1))
    sink.write(ab, batch(2))
    sink.write(ab, batch(3, kind="refresh"))
    assert DeltaTable(tmp_path).metadata().partition_columns == ["v"]


@pytest.mark.parametrize("kind", ["batch", "refresh"])
def test_clustering_is_kept_through_a_refresh(
    spark: SparkSession, ab: DataFrame, tmp_path: Path, kind: Literal["batch", "refresh"]
) -> None:
    """A path that Spark makes by itself would have none."""
    sink = Delta(str(tmp_path), cluster_by=("id",))
    sink.write(ab, batch(1))
    sink.write(frame(spark, "id long, v string", (3, "c")), batch(2, kind=kind))
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{tmp_path}`").collect()[0]
    assert detail.clusteringColumns == ["id"]


def test_a_failed_write_lets_sparks_own_error_through(spark: SparkSession, tmp_path: Path) -> None:
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

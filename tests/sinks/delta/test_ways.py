"""The ways into a Delta table: which batch takes which, and who else may write meanwhile."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from floodmark.errors import ConfigError, Overtaken
from floodmark.probes.delta import note
from floodmark.sinks import Delta, DeltaDates
from floodmark.sinks.contract import BatchSize, Recorded
from floodmark.sinks.delta import with_dates
from floodmark.sinks.delta.arrow import ArrowWriter
from floodmark.sinks.small import SMALL_ROWS
from tests.sinks.batches import ID_V, SMALL, UNKNOWN, batch, delta_rows, frame, no_session
from tests.sinks.delta.ways import KINDS, LEDGER, way_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.probes.delta import DeltaProbe

pytestmark = pytest.mark.spark
OTHER_TABLES = {
    "deletion vectors": "ALTER TABLE {0} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "column mapping": "ALTER TABLE {0} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    "row tracking": "ALTER TABLE {0} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
    "checkpoints of another kind": "ALTER TABLE {0} SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')",
    "a constraint": "ALTER TABLE {0} ADD CONSTRAINT few CHECK (id < 100)",
    "a clustering": "ALTER TABLE {0} CLUSTER BY (id)",
}
MADE_TABLES = {
    "a column that is generated": "id BIGINT, v STRING, twice BIGINT GENERATED ALWAYS AS (id * 2)",
    "a column that counts": "id BIGINT, v STRING, n BIGINT GENERATED ALWAYS AS IDENTITY",
    "a column that must be filled": "id BIGINT NOT NULL, v STRING",
    "text of a fixed length": "id BIGINT, v CHAR(3)",
    "a variant": "id BIGINT, v STRING, any VARIANT",
}


def jobs_started(spark: SparkSession, act: Callable[[], object]) -> int:
    """How many Spark jobs this thread starts meanwhile."""
    group = f"counted-{uuid.uuid4().hex}"
    spark.sparkContext.setJobGroup(group, group)
    try:
        act()
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_batch_goes_through_arrow_and_one_of_unknown_size_does_not(
    spark: SparkSession, ab: DataFrame, tmp_path: Path, kind: str
) -> None:
    """Also the one that makes the table; the receipt says which."""
    sink, more = replace(KINDS[kind], path=str(tmp_path / "t")), frame(spark, ID_V, (2, "c"), (3, "c"))
    first = replace(sink, path=str(tmp_path / "of unknown size"))
    assert way_of(first, ab, 1, UNKNOWN) == "parquet"
    ways = [way_of(sink, ab, 1), way_of(sink, more, 2, UNKNOWN), way_of(sink, more, 3)]
    assert ways == ["arrow", "parquet" if kind == "append" else "spark", "arrow"]
    assert sink.recorded(LEDGER, no_session) == Recorded(3, "d3")


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_batch_starts_one_spark_job(spark: SparkSession, ab: DataFrame, tmp_path: Path, kind: str) -> None:
    """The one that brings its rows; everything else is done without Spark."""
    sink, more = replace(KINDS[kind], path=str(tmp_path)), frame(spark, ID_V, (2, "c"), (3, "c"), (3, "c"))
    sink.write(ab, batch(1, size=SMALL))
    assert jobs_started(spark, lambda: sink.write(more, batch(2, size=SMALL))) == 1


@pytest.mark.parametrize("feature", OTHER_TABLES)
def test_a_table_with_an_ability_of_its_own_is_written_by_spark(
    spark: SparkSession, ab: DataFrame, tmp_path: Path, feature: str
) -> None:
    """What is not known to be done alike is left to Spark."""
    sink = Delta(str(tmp_path))
    ab.write.format("delta").save(str(tmp_path))
    spark.sql(OTHER_TABLES[feature].format(f"delta.`{tmp_path}`"))
    assert way_of(sink, ab, 1) == "spark"
    assert len(delta_rows(spark, tmp_path)) == 4


@pytest.mark.parametrize("feature", MADE_TABLES)
def test_a_table_with_columns_of_its_own_is_written_by_spark(
    spark: SparkSession, ab: DataFrame, tmp_path: Path, feature: str
) -> None:
    """Values that are made, checked or kept in a way of their own."""
    spark.sql(f"CREATE TABLE delta.`{tmp_path}` ({MADE_TABLES[feature]}) USING delta")
    assert way_of(Delta(str(tmp_path)), ab, 1) == "spark"
    assert len(delta_rows(spark, tmp_path)) == 2


@pytest.mark.parametrize(
    ("sink", "value"),
    [
        (Delta("t", mode="merge", key=("k",)), "timestamp'2024-01-01 00:00:00.123456'"),
        (Delta("t", mode="merge", key=("k",)), "12345678901234567.25BD"),
        (Delta("t", mode="merge", key=("k",)), "1.5D"),
        (Delta("t", mode="merge", key=("v",), sequence=("k",)), "double('NaN')"),
        (Delta("t", partition_by=("k",)), "timestamp'2024-01-01 00:00:00.123456'"),
        (Delta("t", cluster_by=("k",)), "'x'"),
        (Delta("t", writer="spark"), "'x'"),
    ],
    ids=["time", "decimal", "float", "order", "partition", "clustered", "setting"],
)
def test_what_the_log_does_not_hold_exactly_is_matched_and_parted_by_spark(
    spark: SparkSession, tmp_path: Path, sink: Delta, value: str
) -> None:
    """A file could be passed over that has the key."""
    rows, there = spark.sql(f"SELECT {value} AS k, 1 AS v"), replace(sink, path=str(tmp_path))
    assert [way_of(there, rows, number) for number in (1, 2)] == ["spark", "spark"]


def test_a_partition_of_empty_text_is_that_of_null_whoever_writes_it(spark: SparkSession, tmp_path: Path) -> None:
    """As Spark has it, which writes the files; `deltalake` would tell the two apart."""
    rows, sink = spark.sql("SELECT '' AS k, 1 AS v"), Delta(str(tmp_path), partition_by=("k",))
    assert [way_of(sink, rows, number) for number in (1, 2)] == ["parquet", "parquet"]
    assert delta_rows(spark, tmp_path) == [(None, 1), (None, 1)]


@pytest.mark.parametrize("size", [UNKNOWN, SMALL], ids=["large", "small"])
def test_a_name_that_delta_does_not_take_is_refused_in_every_way(
    spark: SparkSession, tmp_path: Path, size: BatchSize
) -> None:
    """A table that was made with it could get neither a column more nor a change feed."""
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="INVALID_CHARACTERS"):
        Delta(str(tmp_path / "t")).write(spark.sql("SELECT 1 AS `a b`"), batch(1, size=size))
    assert not (tmp_path / "t" / "_delta_log").exists()


@pytest.mark.parametrize("size", [UNKNOWN, SMALL], ids=["large", "small"])
def test_a_column_that_is_called_as_one_of_the_feed_is_refused_where_there_is_one(
    spark: SparkSession, tmp_path: Path, size: BatchSize
) -> None:
    """Nobody could read the table's changes; without a feed it is a column like others."""
    rows = spark.sql("SELECT 1 AS id, 'x' AS _change_type")
    with pytest.raises(Exception, match="_change_type"):
        Delta(str(tmp_path / "t"), change_feed=True).write(rows, batch(1, size=size))
    assert not (tmp_path / "t" / "_delta_log").exists()
    assert way_of(Delta(str(tmp_path / "without")), rows, 1, size) == "spark"


def test_a_setting_that_is_not_known_is_refused() -> None:
    """Before any row is read."""
    with pytest.raises(ConfigError):
        Delta("t", writer="arrow")  # type: ignore[arg-type]


def test_rows_that_are_more_than_was_known_are_written_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    """They are not all brought to the driver, and what was observed is known not to be all."""
    made = batch(1, size=SMALL)
    assert Delta(str(tmp_path)).write(spark.range(SMALL_ROWS + 5), made) == SMALL_ROWS + 5
    assert (made.notes.ways, made.notes.is_partly_observed) == ({"delta": "parquet"}, True)


def test_rows_that_pyspark_makes_no_arrow_of_are_written_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    """A struct that is NULL and whose fields never are: a moment in it is more than the conversion takes."""
    rows = spark.sql("select 1L as id, named_struct('at', timestamp'2024-01-01') as s union all select 2L, null")
    assert way_of(Delta(str(tmp_path / "t")), rows, 1) == "parquet"
    assert [row.s is None for row in spark.read.format("delta").load(f"{tmp_path}/t").orderBy("id").collect()] == [
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("size", "way"),
    [
        (BatchSize(SMALL_ROWS + 1, is_bound=True), "parquet"),
        (BatchSize(None, 10_000_000, is_bound=True), "parquet"),
        (BatchSize(None, 10_000, is_bound=True), "arrow"),
        (BatchSize(1, 10_000_000, is_bound=True), "arrow"),
        (BatchSize(10), "arrow"),
    ],
    ids=["many rows", "large files", "small files", "few rows", "after a small batch"],
)
def test_the_look_says_what_is_small(
    spark: SparkSession, ab: DataFrame, tmp_path: Path, size: BatchSize, way: str
) -> None:
    """A transform that may make more rows of its own is judged by the batch before."""
    sink = Delta(str(tmp_path))
    assert way_of(sink, ab, 1, BatchSize(10)) == "parquet"
    assert way_of(sink, ab, 2, size) == way


def test_a_merge_into_large_files_goes_through_spark_unless_the_key_lies_in_a_small_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The native writer writes whole files anew: the log tells which may have the key."""
    monkeypatch.setattr("floodmark.sinks.delta.choice.REWRITTEN_BYTES", 100_000)
    noise = np.random.default_rng(1).integers(0, 2**62, 20_000)
    large = pa.table({"id": pa.array(np.arange(20_000)), "v": pa.array(noise)})
    write_deltalake(str(tmp_path), large)
    write_deltalake(str(tmp_path), pa.table({"id": pa.array([60_000]), "v": pa.array([1])}), mode="append")
    sink = Delta(str(tmp_path), mode="merge", key=("id",))
    assert way_of(sink, frame(spark, "id long, v long", (60_000, 2), (60_001, 3)), 1) == "arrow"
    assert way_of(sink, frame(spark, "id long, v long", (4_000, 2)), 2) == "spark"
    assert spark.read.format("delta").load(str(tmp_path)).count() == 20_002


def test_what_spark_notes_of_columns_of_a_database_keeps_no_batch_from_arrow(
    spark: SparkSession, ab: DataFrame, tmp_path: Path
) -> None:
    """Rows that are read by JDBC bring it into the table, where it says nothing."""
    noted = {"scale": 0, "jdbcClientType": "text", "__CHAR_VARCHAR_TYPE_STRING": "varchar(2147483647)"}
    rows, sink = ab.withMetadata("v", noted), Delta(str(tmp_path))
    by_spark = replace(sink, writer="spark")
    assert [way_of(by_spark, rows, 1), way_of(sink, rows, 2), way_of(sink, rows, 3)] == ["spark", "arrow", "arrow"]
    assert len(delta_rows(spark, tmp_path)) == 6
    for size, way in ((UNKNOWN, "parquet"), (SMALL, "arrow")):
        new = Delta(str(tmp_path / way))
        assert [way_of(new, rows, 1, size), way_of(new, rows, 2)] == [way, "arrow"]
        assert "SPARK" not in DeltaTable(tmp_path / way).schema().to_json()


def test_facts_by_date_take_the_way_of_small_batches(spark: SparkSession, tmp_path: Path) -> None:
    """Their dates are exchanged, also one that has no rows left."""
    sink, schema = DeltaDates(str(tmp_path)), "date_sk int, v string"
    sink.write(with_dates(frame(spark, schema, (1, "a"), (2, "b"), (3, "c")), "date_sk", None), batch(1, size=SMALL))
    made = batch(2, size=SMALL)
    assert sink.write(with_dates(frame(spark, schema, (2, "B")), "date_sk", [1, 2]), made) == 1
    assert made.notes.ways == {"facts": "arrow"}
    assert delta_rows(spark, tmp_path) == [(2, "B"), (3, "c")]


@pytest.mark.parametrize("kind", ["append", "merge"])
@pytest.mark.parametrize("exists", [True, False], ids=["table", "no table"])
def test_a_number_that_is_taken_between_the_question_and_the_commit_stops_the_native_writer(
    spark: SparkSession, ab: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, exists: bool
) -> None:
    """By somebody who has no lock: the commit is made on top of the look that found the number free, or not at all."""
    sink, commit = replace(KINDS[kind], path=str(tmp_path / "t")), ArrowWriter.commit
    if exists:
        sink.write(ab, batch(1, size=SMALL))

    def overtaken(self: ArrowWriter, arrow: pa.Table, probe: DeltaProbe | None) -> None:
        said = {"userMetadata": note(LEDGER, 9, None)}
        properties = CommitProperties(said, app_transactions=[Transaction(LEDGER, 9)])
        nothing = arrow.slice(0, 0).select(["id", "v"])
        write_deltalake(str(tmp_path / "t"), nothing, mode="append", commit_properties=properties)
        commit(self, arrow, probe)

    monkeypatch.setattr(ArrowWriter, "commit", overtaken)
    with pytest.raises(Overtaken):
        sink.write(frame(spark, ID_V, (3, "zombie")), batch(9, size=SMALL))
    assert sink.recorded(LEDGER, no_session) == Recorded(9, None, is_fence=True)
    assert "zombie" not in str(delta_rows(spark, tmp_path / "t"))


def test_another_writer_without_the_lock_costs_no_row(
    spark: SparkSession, ab: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit and ours both stand."""
    sink, commit = Delta(str(tmp_path)), ArrowWriter.commit
    sink.write(ab, batch(1, size=SMALL))

    def beside_another(self: ArrowWriter, arrow: pa.Table, probe: DeltaProbe | None) -> None:
        write_deltalake(str(tmp_path), arrow, mode="append")
        commit(self, arrow, probe)

    monkeypatch.setattr(ArrowWriter, "commit", beside_another)
    sink.write(frame(spark, ID_V, (3, "c")), batch(2, size=SMALL))
    assert delta_rows(spark, tmp_path) == [(1, "a"), (2, "b"), (3, "c"), (3, "c")]
    assert DeltaTable(tmp_path).transaction_version(LEDGER) == 2


def test_a_merge_that_keeps_deleted_keys_goes_through_spark(ab: DataFrame, tmp_path: Path) -> None:
    """Its rows are compared with the keys that were deleted before, which only that way does."""
    sink = replace(KINDS["merge"], path=str(tmp_path), keep_deleted=None)
    assert way_of(sink, ab, 1) == "spark"


def test_rows_are_compared_with_the_table_that_is_committed_to(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another writer adds after the comparison is known too: then Spark compares anew."""
    sink = Delta(str(tmp_path)).without_repeats(("id",))
    assert sink is not None
    sink.write(frame(spark, ID_V, (1, "a")), batch(1, size=SMALL))
    collect = ArrowWriter.collect

    def collect_and_be_overtaken(writer: ArrowWriter, compared: int | None) -> pa.Table:
        arrow = collect(writer, compared)
        write_deltalake(str(tmp_path), pa.table({"id": pa.array([2], pa.int64()), "v": ["b"]}), mode="append")
        return arrow

    monkeypatch.setattr(ArrowWriter, "collect", collect_and_be_overtaken)
    assert way_of(sink, frame(spark, ID_V, (2, "late"), (3, "c")), 2) == "spark"
    assert delta_rows(spark, tmp_path) == [(1, "a"), (2, "b"), (3, "c")]


def test_a_property_that_is_switched_off_keeps_no_batch_from_arrow(
    spark: SparkSession, ab: DataFrame, tmp_path: Path
) -> None:
    """Tables with history are made so, for readers that do not know deletion vectors."""
    sink = replace(Delta(str(tmp_path)), _properties={"delta.enableDeletionVectors": "false"})
    assert [way_of(sink, ab, number) for number in (1, 2)] == ["arrow", "arrow"]

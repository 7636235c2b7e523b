"""All ways into a Delta table make the same table, for every value and every kind of sink."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from floodmark.sinks import Delta
from floodmark.sinks.contract import POSITION, Recorded
from tests.sinks.batches import ID_V, SMALL, UNKNOWN, batch, delta_rows, frame, no_session
from tests.sinks.delta.ways import KINDS, LEDGER, way_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


pytestmark = pytest.mark.spark
VALUES = {
    "boolean": "true",
    "tinyint": "-128Y",
    "smallint": "5S",
    "int": "7",
    "bigint": "9223372036854775807L",
    "float": "float('nan')",
    "double": "double('nan')",
    "decimal(38,2)": "cast('123456789012345678901234567890123456.78' as decimal(38,2))",
    "decimal(5,2)": "1.25BD",
    "string": "'h\\u00e9\\u0000x'",
    "binary": "X'00FF'",
    "date": "date'1500-03-01'",
    "timestamp": "timestamp'1500-01-01 00:00:00.123456'",
    "timestamp_ntz": "timestamp_ntz'1883-01-01 00:00:00.123456'",
    "array<int>": "array(1, null, 3)",
    "array<struct<a:int>>": "array(named_struct('a', null), null)",
    "struct<a:double,b:struct<c:string>>": "named_struct('a', double('nan'), 'b', named_struct('c', null))",
}


@pytest.mark.parametrize("kind", KINDS)
def test_all_ways_make_the_same_table(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Rows, columns, and what the change feed tells; Spark may need one commit more to make the table."""
    first = frame(spark, ID_V, (1, "a"), (2, "b"), (4, "d"), (5, "e"))
    second = frame(spark, ID_V, (2, "C"), (3, "c"), (4, "D"), (5, "a"), (9, "D"))
    found = []
    for writer, size in (("spark", UNKNOWN), ("auto", UNKNOWN), ("auto", SMALL)):
        sink = replace(KINDS[kind], path=str(tmp_path / f"{writer}{size.rows}"), change_feed=True, writer=writer)
        written = [sink.write(rows, batch(n, size=size)) for n, rows in enumerate((first, second, second.limit(0)), 1)]
        feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
        changes = feed.load(str(sink.path)).drop("_commit_timestamp", "_commit_version").collect()
        table = sink.read(lambda: spark)
        assert table is not None
        found.append((written, delta_rows(spark, Path(str(sink.path))), sorted(map(tuple, changes)), table.schema))
    assert found[0] == found[1] == found[2]


@pytest.fixture(scope="module")
def values(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """A table with a column for every value: each way has written two rows, one with the values and one without."""
    columns = [f"cast({value} as {kind}) AS x{place}" for place, (kind, value) in enumerate(VALUES.items())]
    nothing = [f"cast(NULL as {kind})" for kind in VALUES]
    rows = spark.sql(f"SELECT 1L AS id, {', '.join(columns)} UNION ALL SELECT 2L, {', '.join(nothing)}")
    folder = tmp_path_factory.mktemp("values")
    sink = Delta(str(folder))
    ways = [way_of(sink, rows, number, size) for number, size in enumerate((UNKNOWN, SMALL, UNKNOWN), 1)]
    assert ways == ["spark", "arrow", "parquet"]  # times without a zone are a feature of a new table
    return spark.read.format("delta").load(str(folder))


@pytest.mark.parametrize("kind", VALUES)
def test_every_value_is_read_back_as_spark_wrote_it_and_found_by_it(values: DataFrame, kind: str) -> None:
    """What the log says of the lowest and highest value of a file must not hide a row."""
    column, value = f"x{list(VALUES).index(kind)}", f"cast({VALUES[kind]} as {kind})"
    assert values.where(f"{column} = {value}").count() == 3
    assert values.where(f"{column} >= {value} AND {column} <= {value}").count() == 3
    assert values.where(f"{column} IS NULL").count() == 3


def test_partitions_have_the_values_that_spark_gives_them(spark: SparkSession, tmp_path: Path) -> None:
    """Also names that no folder can have."""
    schema = "id long, p string, d date, n int, b boolean"
    rows = spark.sql(
        "SELECT 1L AS id, 'a b/ü%=x' AS p, date'2024-01-01' AS d, -7 AS n, true AS b"
        " UNION ALL SELECT 2L, NULL, NULL, NULL, NULL"
    )
    sink = Delta(str(tmp_path), partition_by=("p", "d", "n", "b"))
    ways = [way_of(sink, rows, number, size) for number, size in enumerate((UNKNOWN, SMALL, UNKNOWN), 1)]
    assert ways == ["parquet", "arrow", "parquet"]
    table = spark.read.format("delta").load(str(tmp_path))
    assert table.where("p = 'a b/ü%=x' AND d = date'2024-01-01' AND n = -7 AND b").count() == 3
    assert table.where("p IS NULL AND d IS NULL AND n IS NULL AND b IS NULL").count() == 3
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 6
    assert table.schema.simpleString() == spark.createDataFrame([], schema).schema.simpleString()


def test_every_tenth_commit_has_a_checkpoint_that_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    """As Spark makes them: else every reader would have to read every commit since the beginning."""
    sink, row = Delta(str(tmp_path)), frame(spark, "id long", (1,))
    sink.write(row, batch(1))
    for number in range(2, 13):
        sink.write(row, batch(number, size=SMALL))
    log = tmp_path / "_delta_log"
    assert [path.name for path in log.glob("*.checkpoint.parquet")] == [f"{10:020d}.checkpoint.parquet"]
    for version in range(10):
        (log / f"{version:020d}.json").unlink()
    assert spark.read.format("delta").load(str(tmp_path)).count() == 12
    assert Delta(str(tmp_path)).recorded(LEDGER, no_session) == Recorded(12, "d12")


def test_columns_are_known_without_case_and_those_that_rows_lack_are_null(spark: SparkSession, tmp_path: Path) -> None:
    """As Spark has it."""
    sink = Delta(str(tmp_path))
    sink.write(frame(spark, "Id long, V string, N int", (1, "a", 1)), batch(1))
    assert way_of(sink, frame(spark, "v string, ID long", ("b", 2)), 2) == "arrow"
    assert way_of(sink, frame(spark, "v string, ID long", ("c", 3)), 3, UNKNOWN) == "parquet"
    found = spark.read.format("delta").load(str(tmp_path)).orderBy("Id").collect()
    assert [tuple(row) for row in found] == [(1, "a", 1), (2, "b", None), (3, "c", None)]


def test_positions_are_ordered_as_spark_orders_them(spark: SparkSession, tmp_path: Path) -> None:
    """Field by field, with NULL below every value."""
    schema = f"id long, v string, {POSITION} struct<f:string,n:long>"
    rows = frame(spark, schema, (1, "x", ("a", None)), (1, "y", ("a", 0)), (1, "z", (None, 9)), (2, "only", None))
    sink = Delta(str(tmp_path), mode="merge", key=("id",))
    assert way_of(sink, rows, 1) == "arrow"
    assert delta_rows(spark, tmp_path) == [(1, "y"), (2, "only")]


@pytest.mark.parametrize("kind", ["append", "merge", "replace"])
def test_a_refresh_makes_the_same_table_both_ways(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Another column, and another type for one of them: nothing of the old table is left."""
    first = frame(spark, ID_V, (1, "a"), (2, "b"))
    second = frame(spark, "id string, v string, w int", ("x", "a", 1), ("y", "b", None))
    found = []
    for size in (UNKNOWN, SMALL):
        sink = replace(KINDS[kind], path=str(tmp_path / str(size.rows)))
        made = [replace(batch(number, size=size), kind="refresh") for number in (1, 2)]
        written = [sink.write(rows, each) for rows, each in zip((first, second), made, strict=True)]
        ways = [each.notes.ways["delta"] for each in made]
        table = sink.read(lambda: spark)
        assert table is not None
        found.append((written, sorted(map(tuple, table.collect())), table.schema, sink.recorded(LEDGER, no_session)))
        assert ways == (["parquet", "spark"] if size is UNKNOWN else ["arrow", "arrow"])
    assert found[0] == found[1]


def test_rows_that_the_table_has_are_left_out_both_ways(spark: SparkSession, tmp_path: Path) -> None:
    """A row without a key is known again, too; the first batch has nothing to be compared with."""
    first = frame(spark, "v string, id bigint", ("a", 1), ("b", None))
    second = frame(spark, "v string, id bigint", ("again", 1), ("again", None), ("c", 2))
    found = []
    for size in (UNKNOWN, SMALL):
        sink = Delta(str(tmp_path / str(size.rows))).without_repeats(("id",))
        assert sink is not None
        ways = [way_of(sink, rows, number, size) for number, rows in enumerate((first, second, second), 1)]
        assert set(ways) == {"spark" if size is UNKNOWN else "arrow"}
        found.append(delta_rows(spark, Path(str(sink.path))))
    assert found == [[("a", 1), ("b", None), ("c", 2)]] * 2

"""What a test reads without Spark is what Spark would have given it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.tables import rows_of

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

VALUES = """
    SELECT true AS a_bool, -1Y AS a_byte, 2S AS a_short, 3 AS an_int, 4L AS a_long,
        cast('NaN' AS float) AS a_nan, cast(0.1 AS float) AS a_float, cast('-Infinity' AS double) AS a_double,
        cast(1.50 AS decimal(38, 2)) AS a_decimal, 'ü "x"' AS a_string, X'00FF' AS a_binary,
        date'2024-02-29' AS a_date, timestamp'2024-05-01 12:00:00.123456' AS a_timestamp,
        timestamp_ntz'1500-03-01 00:00:00.000001' AS an_ntz, array(1, NULL) AS an_array,
        map('k', cast(NULL AS int)) AS a_map, struct(1 AS x, 'y' AS `Y`) AS a_struct,
        map(1, struct(array(struct(X'01' AS b, timestamp'1969-12-31 23:59:59.9' AS t)) AS l, map(2, 'm') AS m))
            AS nested
"""


@pytest.fixture(scope="module")
def values(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A row with a value of every type, and one with NULL in every column."""
    folder = tmp_path_factory.mktemp("values")
    rows = spark.sql(VALUES)
    nulls = spark.range(1).selectExpr(*(f"NULL AS {name}" for name in rows.columns))
    rows.union(nulls).write.format("delta").save(str(folder))
    return folder


@pytest.fixture
def newfoundland(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Python's own zone is not the session's."""
    monkeypatch.setenv("TZ", "America/St_Johns")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def rows_by_spark(spark: SparkSession, path: Path) -> list[Row]:
    return spark.read.format("delta").load(str(path)).collect()


def texts(rows: list[Row]) -> list[str]:
    """Names, values and their types; by text, as no NaN is equal to another."""
    return sorted(map(repr, rows))


def test_every_value_is_the_one_that_spark_gives(spark: SparkSession, values: Path) -> None:
    """In a Row with the same names, and so is every struct inside."""
    found = rows_of(values)
    assert [len(found), len(found[0])] == [2, 18]
    assert texts(found) == texts(rows_by_spark(spark, values))


@pytest.mark.usefixtures("newfoundland")
def test_a_moment_is_naive_and_in_the_zone_of_python(spark: SparkSession, values: Path) -> None:
    """As PySpark has it, whatever the zone of the session is."""
    found = rows_of(values)
    assert datetime(2024, 5, 1, 9, 30, 0, 123456) in [row.a_timestamp for row in found]  # noqa: DTZ001 - PySpark's are naive
    assert texts(found) == texts(rows_by_spark(spark, values))


def test_columns_are_chosen_by_name_in_the_order_given(spark: SparkSession, tmp_path: Path) -> None:
    """As it is written, with its capitals and quotes; one that is not there is a mistake of the test."""
    spark.sql("SELECT 1 AS id, 'x' AS Name, 2 AS `a\"1`").write.format("delta").save(str(tmp_path))
    assert [row.asDict() for row in rows_of(tmp_path, 'a"1', "Name")] == [{'a"1': 2, "Name": "x"}]
    with pytest.raises(KeyError, match="name"):
        rows_of(tmp_path, "name")


def test_columns_of_partitions_have_their_types(spark: SparkSession, tmp_path: Path) -> None:
    """The log has them as text; an odd one, and NULL, are read back."""
    columns = "a_date", "a_decimal", "a_timestamp", "a_string", "a_bool", "a_long"
    rows = spark.sql(VALUES).select(*columns, "an_int")
    nulls = spark.range(1).selectExpr(*(f"NULL AS {name}" for name in columns), "5")
    rows.union(nulls).write.format("delta").partitionBy(*columns).save(str(tmp_path))
    found = rows_of(tmp_path)
    assert len(found) == 2
    assert texts(found) == texts(rows_by_spark(spark, tmp_path))


def test_a_row_from_before_a_column_has_null_in_it(spark: SparkSession, tmp_path: Path) -> None:
    """Also where the column is a field of a struct."""
    spark.sql("SELECT 1 AS id, struct(1 AS x) AS s").write.format("delta").save(str(tmp_path))
    later = spark.sql("SELECT 2 AS id, struct(2 AS x, 'y' AS y) AS s, 'b' AS v")
    later.write.format("delta").mode("append").option("mergeSchema", "true").save(str(tmp_path))
    found = rows_of(tmp_path)
    assert sorted(map(tuple, found)) == [(1, (1, None), None), (2, (2, "y"), "b")]
    assert texts(found) == texts(rows_by_spark(spark, tmp_path))


def test_rows_that_a_deletion_vector_hides_are_not_there(spark: SparkSession, tmp_path: Path) -> None:
    """Their file still has them."""
    vectors = "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    spark.sql(f"CREATE TABLE delta.`{tmp_path}` USING delta {vectors} AS SELECT id FROM range(0, 4, 1, 1)")
    spark.sql(f"DELETE FROM delta.`{tmp_path}` WHERE id = 2")
    assert list(tmp_path.glob("deletion_vector_*.bin")) != []
    assert sorted(rows_of(tmp_path)) == [(0,), (1,), (3,)]


def test_a_column_that_was_renamed_is_read_by_its_name(spark: SparkSession, tmp_path: Path) -> None:
    """The files have another."""
    mapped = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    spark.sql(f"CREATE TABLE delta.`{tmp_path}` USING delta {mapped} AS SELECT 1 AS id, 'x' AS v")
    spark.sql(f"ALTER TABLE delta.`{tmp_path}` RENAME COLUMN v TO w")
    assert [row.asDict() for row in rows_of(tmp_path)] == [{"id": 1, "w": "x"}]

"""Reading the files of a span with Spark: exactly these files, in their order."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as sf

from floodmark.errors import SourceRewritten
from floodmark.sources import Files
from tests.sources.files.folder import SCHEMA, dead_letters, files, good_rows, put, read, rows, span_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_json_lines_are_read_with_their_schema(spark: SparkSession, tmp_path: Path) -> None:
    """Blank lines are no records."""
    put(tmp_path / "a.jsonl", '{"id":1,"v":"a"}\n\n   \n{"id":2}\n')
    frame = read(files(tmp_path, schema=SCHEMA), spark).rows
    assert (frame.columns, rows(frame)) == (["id", "v"], [(1, "a"), (2, None)])


def test_a_schema_is_inferred_from_the_files_of_the_span(spark: SparkSession, tmp_path: Path) -> None:
    """All of them: a column that only the second file has is there too."""
    put(tmp_path / "a.jsonl", '{"id":1}\n')
    put(tmp_path / "b.jsonl", '{"id":2,"v":"b"}\n')
    frame = read(files(tmp_path), spark).rows
    assert (frame.dtypes, rows(frame)) == ([("id", "bigint"), ("v", "string")], [(1, None), (2, "b")])


def test_a_schema_may_be_a_struct_type(spark: SparkSession, tmp_path: Path) -> None:
    """As PySpark users have it at hand."""
    put(tmp_path / "a.jsonl", '{"id":1,"v":"a"}\n')
    schema = spark.range(1).select(sf.col("id").cast("int")).schema
    assert rows(read(files(tmp_path, schema=schema), spark).rows) == [(1,)]


def test_a_json_file_is_one_object_or_a_list_of_them(spark: SparkSession, tmp_path: Path) -> None:
    """Over as many lines as it likes."""
    put(tmp_path / "a.json", '[{"id":1},\n {"id":2}]')
    put(tmp_path / "b.json", '{\n"id": 3\n}')
    assert rows(read(files(tmp_path, format="json", schema="id long"), spark).rows) == [(1,), (2,), (3,)]


def test_csv_has_a_header_and_text_columns_unless_told_otherwise(spark: SparkSession, tmp_path: Path) -> None:
    """A guessed number would turn 007 into 7."""
    put(tmp_path / "a.csv", "id,v\n007,a\n")
    assert rows(read(files(tmp_path, format="csv"), spark).rows) == [("007", "a")]
    assert rows(read(files(tmp_path, format="csv", schema=SCHEMA), spark).rows) == [(7, "a")]


def test_options_go_to_sparks_reader(spark: SparkSession, tmp_path: Path) -> None:
    """In any case of letters, and with Python's own booleans."""
    put(tmp_path / "a.csv", "1;a\n2;b\n")
    source = files(tmp_path, format="csv", schema=SCHEMA, options={"SEP": ";", "Header": False})
    assert rows(read(source, spark).rows) == [(1, "a"), (2, "b")]


def test_parquet_columns_of_every_file_are_there(spark: SparkSession, tmp_path: Path) -> None:
    """Spark alone would take the columns of one file and forget those of the others."""
    spark.range(1).coalesce(1).write.parquet(f"{tmp_path}/a")
    spark.range(1, 2).selectExpr("id", "'b' as v").coalesce(1).write.parquet(f"{tmp_path}/b")
    source = Files(tmp_path, format="parquet", settle=0)
    assert rows(read(source, spark).rows) == [(0, None), (1, "b")]


def test_only_the_files_of_the_span_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """One that came after the look belongs to the next batch."""
    put(tmp_path / "a.jsonl", '{"id":1}\n')
    source = files(tmp_path, schema="id long")
    span = span_of(source, spark)
    put(tmp_path / "b.jsonl", '{"id":2}\n')
    assert rows(source.read(spark, span).rows) == [(1,)]


def test_folder_names_never_become_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Our own files sink writes batch=N; nobody asked for a column of that name."""
    put(tmp_path / "batch=1" / "a.jsonl", '{"id":1}\n')
    put(tmp_path / "batch=2" / "a.jsonl", '{"id":2}\n')
    frame = read(files(tmp_path), spark).rows
    assert (frame.columns, rows(frame)) == (["id"], [(1,), (2,)])


def test_names_with_signs_are_read_and_shown_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    """Blanks, percent signs and what Spark takes for patterns."""
    path = put(tmp_path / "d {x}" / "a b+c[1]*?%20é.jsonl", '{"id":1}\nbad\n')
    put(tmp_path / "d {x}" / "a b+c1.jsonl", '{"id":2}\n')
    source = files(tmp_path, schema="id long", malformed="dead_letter")
    reading = read(source, spark)
    assert rows(good_rows(reading)) == [(1,), (2,)]
    assert reading.dead is not None
    assert [(row.file, row.line) for row in reading.dead().collect()] == [(str(path), 2)]


def test_compressed_files_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """And their lines counted."""
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"id":1}\nbad\n'))
    source = Files(tmp_path, schema="id long", settle=0, malformed="dead_letter")
    assert rows(good_rows(read(source, spark))) == [(1,)]
    assert dead_letters(source, spark) == [(2, "bad")]


def test_the_position_orders_rows_by_file_time_and_then_as_written(spark: SparkSession, tmp_path: Path) -> None:
    """A merge keeps the last row of a key: the last file's, and its last line's."""
    put(tmp_path / "a.jsonl", '{"v":3}\n{"v":4}\n', age=10)
    put(tmp_path / "z.jsonl", '{"v":1}\n{"v":2}\n', age=20)
    reading = read(files(tmp_path, schema="v long"), spark)
    assert reading.position is not None
    ordered = reading.rows.withColumn("p", reading.position).orderBy("p").select("v").collect()
    assert [row.v for row in ordered] == [1, 2, 3, 4]


def test_a_users_own_metadata_column_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's hidden column has the same name."""
    put(tmp_path / "a.jsonl", '{"_metadata":"mine"}\n')
    reading = read(files(tmp_path, malformed="dead_letter"), spark)
    assert reading.position is not None
    frame = reading.rows.withColumn("p", reading.position)
    assert rows(frame.selectExpr("_metadata", "p.file_modification_time > '2000-01-01'")) == [("mine", True)]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"id":1}\n{"id":2}\n', "went from 9 to 18 bytes"),
        ('{"id":3}\n', "was written again, with the same 9 bytes"),
    ],
)
def test_a_file_that_changed_since_the_look_stops_the_run(
    spark: SparkSession, tmp_path: Path, text: str, what: str
) -> None:
    """Spark would read what is there now, and call it the batch that was begun."""
    path = put(tmp_path / "a.jsonl", '{"id":1}\n')
    source = files(tmp_path, schema="id long")
    span = span_of(source, spark)
    put(path, text, age=1800)
    with pytest.raises(SourceRewritten) as caught:
        source.read(spark, span)
    assert caught.value.what == f"{path} {what} since the batch was begun"


def test_a_file_that_is_gone_since_the_look_stops_the_run(spark: SparkSession, tmp_path: Path) -> None:
    """It is never skipped."""
    path = put(tmp_path / "a.jsonl", '{"id":1}\n')
    source = files(tmp_path, schema="id long")
    span = span_of(source, spark)
    path.unlink()
    with pytest.raises(SourceRewritten, match="is gone"):
        source.read(spark, span)


def test_many_small_files_are_read_by_as_many_tasks_as_there_are_cores(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would count each of them as 4 MB."""
    for number in range(40):
        put(tmp_path / f"{number}.jsonl", f'{{"id":{number}}}{" " * 4_000}\n')
    found = read(files(tmp_path, schema="id long"), spark).rows
    tasks = found.select("id", sf.spark_partition_id().alias("task")).collect()
    assert (sorted(row.id for row in tasks), len({row.task for row in tasks})) == (list(range(40)), 2)

"""Reading the files of a span with Spark: exactly these files, in their order, malformed records seen."""

from __future__ import annotations

import gzip
import os
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import functions as sf

from floodmark.errors import RecordMalformed, SourceRewritten
from floodmark.sources import Files
from floodmark.sources.contract import Request

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from floodmark.hwm import Span
    from floodmark.sources.contract import Reading

pytestmark = pytest.mark.spark

SCHEMA = "id long, v string"


def put(path: Path, text: str, *, age: int = 3600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (1_800_000_000 - age, 1_800_000_000 - age))
    return path


def files(folder: Path, **options: Any) -> Files:
    return Files(folder, now=lambda: 1_800_000_000.0, **options)


def span_of(source: Files, spark: SparkSession) -> Span:
    span = source.look(None, Request(), lambda: spark).span
    assert span is not None
    return span


def read(source: Files, spark: SparkSession) -> Reading:
    return source.read(spark, span_of(source, spark))


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def dead(source: Files, spark: SparkSession) -> list[tuple[Any, ...]]:
    """The dead letters as (line, text)."""
    reading = read(source, spark)
    assert reading.dead is not None
    return sorted(((row.line, row.text) for row in reading.dead().collect()), key=str)


def alive(reading: Reading) -> DataFrame:
    """What the step gives to the transform."""
    assert reading.reason is not None
    return reading.rows.where(reading.reason.isNull()).drop(*reading.hidden)


def explained(source: Files, spark: SparkSession, error: Exception) -> RecordMalformed:
    found = source.explain(error, spark, span_of(source, spark))
    assert found is not None
    return found


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
    assert rows(alive(reading)) == [(1,), (2,)]
    assert reading.dead is not None
    assert [(row.file, row.line) for row in reading.dead().collect()] == [(str(path), 2)]


def test_compressed_files_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """And their lines counted."""
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"id":1}\nbad\n'))
    source = Files(tmp_path, schema="id long", settle=0, malformed="dead_letter")
    assert rows(alive(read(source, spark))) == [(1,)]
    assert dead(source, spark) == [(2, "bad")]


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
    assert rows(frame.selectExpr("_metadata", "p.file_path like '%/a.jsonl'")) == [("mine", True)]


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


MALFORMED_LINES = [
    '{"id": 1',
    "not json",
    "[1,2]",
    "5",
    "null",
    '{"id":"x"}',
    '{"id":"7"}',
    '{"id":1.5}',
    '{"id":99999999999999999999}',
    '{"id":true}',
]


def test_whatever_does_not_fit_the_schema_is_a_dead_letter_and_never_a_null(
    spark: SparkSession, tmp_path: Path
) -> None:
    """With the line it stands on, counted with the blank ones."""
    put(tmp_path / "a.jsonl", '{"id":1}\n\n' + "\n".join(MALFORMED_LINES) + '\n{"id":2}\n')
    source = files(tmp_path, schema=SCHEMA, malformed="dead_letter")
    assert rows(alive(read(source, spark))) == [(1, None), (2, None)]
    assert dead(source, spark) == sorted(enumerate(MALFORMED_LINES, start=3), key=str)


@pytest.mark.parametrize("line", MALFORMED_LINES)
def test_without_dead_letters_a_malformed_line_fails_the_batch_and_is_named(
    spark: SparkSession, tmp_path: Path, line: str
) -> None:
    """Whatever the transform needs: Spark judges only the columns it reads, so a narrow select could hide it."""
    path = put(tmp_path / "a.jsonl", f'{{"id":1,"v":"a"}}\n{line}\n')
    source = files(tmp_path, schema=SCHEMA)
    with pytest.raises(SparkRuntimeException) as caught:
        read(source, spark).rows.where("v = 'a'").select("v").collect()
    found = explained(source, spark, caught.value)
    assert (found.file, found.line, found.text) == (str(path), 2, line)


def test_the_first_malformed_line_of_several_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """In the order of files and lines, so that two runs say the same."""
    put(tmp_path / "b.jsonl", "bad\n")
    path = put(tmp_path / "a.jsonl", '{"id":1}\nworse\nbad\n')
    source = files(tmp_path, schema=SCHEMA)
    with pytest.raises(SparkRuntimeException) as caught:
        read(source, spark).rows.count()
    found = explained(source, spark, caught.value)
    assert (found.file, found.line, found.text) == (str(path), 2, "worse")


def test_an_error_of_somebody_else_is_not_explained(spark: SparkSession, tmp_path: Path) -> None:
    """And costs no Spark job."""
    put(tmp_path / "a.jsonl", "bad\n")
    source = files(tmp_path, schema=SCHEMA)
    assert source.explain(RuntimeError("disk full"), spark, span_of(source, spark)) is None


def test_the_same_records_are_malformed_whatever_the_transform_needs(spark: SparkSession, tmp_path: Path) -> None:
    """A record with a bad id is dead also for a sink that has no id."""
    put(tmp_path / "a.jsonl", '{"id":1,"v":"a"}\n{"id":"x","v":"b"}\n')
    reading = read(files(tmp_path, schema=SCHEMA, malformed="dead_letter"), spark)
    assert rows(alive(reading).select("v")) == [("a",)]
    assert alive(reading).count() == 1


def test_the_reason_shows_what_could_be_read(spark: SparkSession, tmp_path: Path) -> None:
    """So that the field at fault can be seen."""
    path = put(tmp_path / "a.jsonl", '{"id":"x","v":"b"}\n')
    reading = read(files(tmp_path, schema=SCHEMA, malformed="dead_letter"), spark)
    assert reading.dead is not None
    letter = (str(path), 1, '{"id":"x","v":"b"}', 'not a jsonl record of this schema; readable part: {"v":"b"}')
    assert [tuple(row) for row in reading.dead().collect()] == [letter]


def test_dead_letters_have_the_types_that_the_contract_names(spark: SparkSession, tmp_path: Path) -> None:
    """Also when there are none of them."""
    put(tmp_path / "a.jsonl", '{"id":1}\n')
    reading = read(files(tmp_path, schema=SCHEMA, malformed="dead_letter"), spark)
    assert reading.dead is not None
    expected = [("file", "string"), ("line", "bigint"), ("text", "string"), ("reason", "string")]
    assert (reading.dead().dtypes, reading.dead().count()) == (expected, 0)


def test_a_malformed_text_that_stands_twice_is_two_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    """Each line is a record, and none is swallowed."""
    put(tmp_path / "a.jsonl", 'bad\n{"id":1}\nbad\n')
    put(tmp_path / "b.jsonl", "\nbad\n")
    assert dead(files(tmp_path, schema=SCHEMA, malformed="dead_letter"), spark) == [(1, "bad"), (2, "bad"), (3, "bad")]


def test_malformed_lines_of_files_without_a_schema_are_dead_too(spark: SparkSession, tmp_path: Path) -> None:
    """The column that keeps them is ours and hidden."""
    put(tmp_path / "a.jsonl", '{"id":1}\nbad\n')
    source = files(tmp_path, malformed="dead_letter")
    frame = alive(read(source, spark))
    assert (frame.columns, rows(frame), dead(source, spark)) == (["id"], [(1,)], [(2, "bad")])


def test_files_without_a_single_good_record_are_all_dead(spark: SparkSession, tmp_path: Path) -> None:
    """Spark refuses to read only what it could not parse."""
    put(tmp_path / "a.jsonl", "bad\nworse\n")
    source = files(tmp_path, malformed="dead_letter")
    frame = alive(read(source, spark))
    assert (frame.columns, frame.count(), dead(source, spark)) == ([], 0, [(1, "bad"), (2, "worse")])


def test_an_empty_file_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    """And is read once like any other."""
    put(tmp_path / "a.jsonl", "")
    assert read(files(tmp_path, schema=SCHEMA), spark).rows.count() == 0


def test_a_malformed_json_file_is_one_dead_letter_without_a_line(spark: SparkSession, tmp_path: Path) -> None:
    """The file is the record: it is put aside whole, also if only one object of its list is bad."""
    put(tmp_path / "a.json", '[{"id":1},\n{"id":"x"}]')
    put(tmp_path / "b.json", '{"id":')
    put(tmp_path / "c.json", '{"id":3}')
    source = files(tmp_path, format="json", schema="id long", malformed="dead_letter")
    assert rows(alive(read(source, spark))) == [(3,)]
    assert dead(source, spark) == [(None, '[{"id":1},\n{"id":"x"}]'), (None, '{"id":')]


def test_a_malformed_json_file_fails_the_batch_and_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """Without a line."""
    path = put(tmp_path / "a.json", "5")
    source = files(tmp_path, format="json", schema="id long")
    with pytest.raises(SparkRuntimeException) as caught:
        read(source, spark).rows.collect()
    found = explained(source, spark, caught.value)
    assert (found.file, found.line, found.text) == (str(path), None, "5")


CSV = "id,v\n1,a\n2\n3,c,d\n\nx,e\nid,v\n4,\n"
CSV_DEAD = [(3, "2"), (4, "3,c,d"), (6, "x,e"), (7, "id,v")]


def test_csv_lines_with_missing_or_extra_columns_or_bad_values_are_dead(spark: SparkSession, tmp_path: Path) -> None:
    """Also a header in the middle, as `cat` leaves it; the true header never is."""
    put(tmp_path / "a.csv", CSV)
    source = files(tmp_path, format="csv", schema=SCHEMA, malformed="dead_letter")
    assert rows(alive(read(source, spark))) == [(1, "a"), (4, None)]
    assert dead(source, spark) == CSV_DEAD


def test_csv_columns_that_nobody_reads_are_judged_too(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's CSV parser leaves out columns that a plan does not need."""
    put(tmp_path / "a.csv", "id,v\n1,a\nx,b\n")
    source = files(tmp_path, format="csv", schema=SCHEMA)
    with pytest.raises(SparkRuntimeException) as caught:
        read(source, spark).rows.select("v").collect()
    assert explained(source, spark, caught.value).line == 3


def test_csv_without_a_schema_knows_lines_of_another_length(spark: SparkSession, tmp_path: Path) -> None:
    """The header says how many columns there are."""
    put(tmp_path / "a.csv", "id,v\n1,a\n2\n")
    source = files(tmp_path, format="csv", malformed="dead_letter")
    assert (rows(alive(read(source, spark))), dead(source, spark)) == ([("1", "a")], [(3, "2")])


def test_a_csv_file_with_its_columns_in_another_order_stops_the_run(spark: SparkSession, tmp_path: Path) -> None:
    """By position, as Spark does by itself, names would become amounts."""
    put(tmp_path / "a.csv", "id,v\n1,a\n")
    path = put(tmp_path / "b c.csv", "v,id\nb,2\n")
    source = files(tmp_path, format="csv", schema="id string, v string")
    with pytest.raises(Exception, match="CSV header") as caught:
        read(source, spark).rows.collect()
    found = explained(source, spark, caught.value)
    assert (found.file, found.line, found.text) == (str(path), 1, "v, id")


def test_a_csv_record_over_several_lines_is_dead_without_a_line(spark: SparkSession, tmp_path: Path) -> None:
    """With multiLine a record is not a line any more."""
    put(tmp_path / "a.csv", 'id,v\n1,"a\nb"\nx,c\n')
    source = files(tmp_path, format="csv", schema=SCHEMA, malformed="dead_letter", options={"multiLine": True})
    assert (rows(alive(read(source, spark))), dead(source, spark)) == ([(1, "a\nb")], [(None, "x,c")])


def test_line_numbers_are_true_in_a_file_that_many_tasks_read(spark: SparkSession, tmp_path: Path) -> None:
    """Spark cuts a large file into blocks; here they are 300 bytes, and the bad lines far apart."""
    good = ['{"id":1}'] * 500
    put(tmp_path / "a.jsonl", "\n".join([*good[:123], "bad", *good, "", "worse", *good, "bad"]) + "\n")
    small_blocks = spark.newSession()
    small_blocks.conf.set("spark.sql.files.maxPartitionBytes", "300")
    small_blocks.conf.set("spark.sql.files.openCostInBytes", "10")
    source = files(tmp_path, schema="id long", malformed="dead_letter")
    reading = read(source, small_blocks)
    assert reading.dead is not None
    found = sorted((row.line, row.text) for row in reading.dead().collect())
    assert found == [(124, "bad"), (626, "worse"), (1127, "bad")]
    assert reading.rows.select("id", sf.spark_partition_id().alias("task")).select("task").distinct().count() > 10


def test_lines_end_as_spark_ends_them(spark: SparkSession, tmp_path: Path) -> None:
    """Files from Windows have a carriage return, which belongs to no record."""
    (tmp_path / "a.jsonl").write_bytes(b'{"id":1}\r\nbad\r\n')
    source = Files(tmp_path, schema="id long", settle=0, malformed="dead_letter")
    assert (rows(alive(read(source, spark))), dead(source, spark)) == ([(1,)], [(2, "bad")])

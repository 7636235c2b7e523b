"""Malformed records are seen, named and kept; they never become rows of nulls."""

from __future__ import annotations

import base64
from datetime import date
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import functions as sf

from floodmark.errors import ConfigError
from floodmark.sources import Files
from floodmark.sources.contract import LETTER
from tests.sources.files.folder import SCHEMA, dead_letters, explanation, files, good_rows, put, read, rows, span_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


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
    '{"id":1} xyz',
    '{"id":1}{"id":2}',
    '{"id":1} {"id":2}',
    '[{"id":1},{"id":2}]',
]


def test_whatever_does_not_fit_the_schema_is_a_dead_letter_and_never_a_null(
    spark: SparkSession, tmp_path: Path
) -> None:
    """With the line it stands on, counted with the blank ones."""
    put(tmp_path / "a.jsonl", '{"id":1}\n\n' + "\n".join(MALFORMED_LINES) + '\n{"id":2}\n')
    source = files(tmp_path, schema=SCHEMA, malformed="dead_letter")
    assert rows(good_rows(read(source, spark))) == [(1, None), (2, None)]
    assert dead_letters(source, spark) == sorted(enumerate(MALFORMED_LINES, start=3), key=str)


@pytest.mark.parametrize("line", MALFORMED_LINES)
def test_without_dead_letters_a_malformed_line_fails_the_batch_and_is_named(
    spark: SparkSession, tmp_path: Path, line: str
) -> None:
    """Whatever the transform needs: Spark judges only the columns it reads, so a narrow select could hide it."""
    path = put(tmp_path / "a.jsonl", f'{{"id":1,"v":"a"}}\n{line}\n')
    source = files(tmp_path, schema=SCHEMA)
    with pytest.raises(SparkRuntimeException) as caught:
        read(source, spark).rows.where("v = 'a'").select("v").collect()
    found = explanation(source, spark, caught.value)
    assert (found.file, found.line, found.text) == (str(path), 2, line)


def test_the_first_malformed_line_of_several_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """In the order of files and lines, so that two runs say the same."""
    put(tmp_path / "b.jsonl", "bad\n")
    path = put(tmp_path / "a.jsonl", '{"id":1}\nworse\nbad\n')
    source = files(tmp_path, schema=SCHEMA)
    with pytest.raises(SparkRuntimeException) as caught:
        read(source, spark).rows.count()
    found = explanation(source, spark, caught.value)
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
    assert rows(good_rows(reading).select("v")) == [("a",)]
    assert good_rows(reading).count() == 1


def test_the_reason_shows_what_could_be_read(spark: SparkSession, tmp_path: Path) -> None:
    """So that the field at fault can be seen."""
    path = put(tmp_path / "a.jsonl", '{"id":"x","v":"b"}\n')
    reading = read(files(tmp_path, schema=SCHEMA, malformed="dead_letter"), spark)
    assert reading.dead is not None
    letter = (str(path), 1, '{"id":"x","v":"b"}', 'not a jsonl record of this schema; readable part: {"v":"b"}')
    assert [tuple(row) for row in reading.dead().drop("record").collect()] == [letter]


def test_a_line_that_was_saved_is_parsed_by_the_schema_of_today(spark: SparkSession, tmp_path: Path) -> None:
    """By the reader's own options; what is no object of it, a list or more than one, never becomes a row of nulls."""
    texts = ('{"id":"x","d":"31.12.2025"}', '{"id":1}', "[]", "oops", '{"id":"y"} {"id":"z"}', '[{"id":"w"}]')
    saved = spark.createDataFrame([(("1",), text) for text in texts], f"{LETTER} struct<letter:string>, text string")
    source = files(tmp_path, schema="id string, d date", options={"dateFormat": "dd.MM.yyyy"})
    reading = source.read_saved(saved)
    assert reading.reason is not None
    assert rows(good_rows(reading).select("id", "d")) == [("1", None), ("x", date(2025, 12, 31))]
    assert reading.rows.where(reading.reason.isNotNull()).count() == 4


def test_a_line_of_json_that_nothing_describes_cannot_be_parsed_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    """Neither without a schema nor by a source that is of another format now."""
    saved = spark.createDataFrame([], f"{LETTER} struct<letter:string>, text string")
    with pytest.raises(ConfigError, match="cannot parse a line of JSON by itself"):
        files(tmp_path).read_saved(saved)


def test_dead_letters_have_the_types_that_the_contract_names(spark: SparkSession, tmp_path: Path) -> None:
    """Also when there are none of them."""
    put(tmp_path / "a.jsonl", '{"id":1}\n')
    reading = read(files(tmp_path, schema=SCHEMA, malformed="dead_letter"), spark)
    assert reading.dead is not None
    expected = [("file", "string"), ("line", "bigint"), ("text", "string"), ("reason", "string")]
    expected.append(("record", "struct<text:string>"))
    assert (reading.dead().dtypes, reading.dead().count()) == (expected, 0)


def test_a_malformed_text_that_stands_twice_is_two_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    """Each line is a record, and none is swallowed."""
    put(tmp_path / "a.jsonl", 'bad\n{"id":1}\nbad\n')
    put(tmp_path / "b.jsonl", "\nbad\n")
    assert dead_letters(files(tmp_path, schema=SCHEMA, malformed="dead_letter"), spark) == [
        (1, "bad"),
        (2, "bad"),
        (3, "bad"),
    ]


def test_malformed_lines_of_files_without_a_schema_are_dead_too(spark: SparkSession, tmp_path: Path) -> None:
    """The column that keeps them is ours and hidden."""
    put(tmp_path / "a.jsonl", '{"id":1}\nbad\n')
    source = files(tmp_path, malformed="dead_letter")
    frame = good_rows(read(source, spark))
    assert (frame.columns, rows(frame), dead_letters(source, spark)) == (["id"], [(1,)], [(2, "bad")])


def test_files_without_a_single_good_record_are_all_dead(spark: SparkSession, tmp_path: Path) -> None:
    """Spark refuses to read only what it could not parse."""
    put(tmp_path / "a.jsonl", "bad\nworse\n")
    source = files(tmp_path, malformed="dead_letter")
    frame = good_rows(read(source, spark))
    assert (frame.columns, frame.count(), dead_letters(source, spark)) == ([], 0, [(1, "bad"), (2, "worse")])


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
    assert rows(good_rows(read(source, spark))) == [(3,)]
    assert dead_letters(source, spark) == [(None, '[{"id":1},\n{"id":"x"}]'), (None, '{"id":')]


@pytest.mark.parametrize(
    "text",
    ['{"id":1}\n{"id":2}', '[{"id":1}] [{"id":2}]', '{"id":1} xyz', '[{"id":1}],', '[{"id":1}, null]', "null", '["x"]'],
)
def test_a_json_file_that_goes_on_behind_its_value_is_malformed(spark: SparkSession, tmp_path: Path, text: str) -> None:
    """Spark reads the first value and drops the rest: of lines in such a file, all but one."""
    put(tmp_path / "a.json", text)
    put(tmp_path / "b.json", ' \n[{"id":7},\n {"id":8}]\n\n')
    put(tmp_path / "c.json", "[]")
    source = files(tmp_path, format="json", schema="id long", malformed="dead_letter")
    assert rows(good_rows(read(source, spark))) == [(7,), (8,)]
    assert dead_letters(source, spark) == [(None, text)]


def test_a_json_file_may_begin_with_a_byte_order_mark_and_be_in_another_encoding(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As Windows leaves it; bytes that are no text are kept as they are."""
    (tmp_path / "a.json").write_bytes('\ufeff[{"id":1,"v":"grün"}]'.encode())
    (tmp_path / "b.json").write_bytes(b'{"id":2,"v":"gr\xfcn"}')
    source = Files(tmp_path, format="json", schema=SCHEMA, settle=0, malformed="dead_letter")
    assert rows(good_rows(read(source, spark))) == [(1, "grün")]
    [(_, text)] = dead_letters(source, spark)
    assert base64.b64decode(text.removeprefix("base64:")) == b'{"id":2,"v":"gr\xfcn"}'
    latin = Files(tmp_path / "b.json", format="json", schema=SCHEMA, settle=0, options={"encoding": "ISO-8859-1"})
    assert rows(read(latin, spark).rows) == [(2, "grün")]


def test_bytes_that_are_no_text_make_a_csv_record_malformed(spark: SparkSession, tmp_path: Path) -> None:
    """Unless it is said in which encoding they are; Spark puts U+FFFD in their place."""
    (tmp_path / "a.csv").write_bytes(b"id,v\n1,gr\xfcn\n2,gr\xc3\xbcn\n")
    source = Files(tmp_path, format="csv", schema=SCHEMA, settle=0, malformed="dead_letter")
    assert rows(good_rows(read(source, spark))) == [(2, "grün")]
    assert dead_letters(source, spark) == [(None, "1,gr\ufffdn")]
    latin = Files(tmp_path, format="csv", schema=SCHEMA, settle=0, options={"encoding": "ISO-8859-1"})
    assert rows(read(latin, spark).rows)[0] == (1, "grün")


def test_a_malformed_json_file_fails_the_batch_and_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """Without a line."""
    path = put(tmp_path / "a.json", "5")
    source = files(tmp_path, format="json", schema="id long")
    with pytest.raises(SparkRuntimeException) as caught:
        read(source, spark).rows.collect()
    found = explanation(source, spark, caught.value)
    assert (found.file, found.line, found.text) == (str(path), None, "5")


CSV = "id,v\n1,a\n2\n3,c,d\n\nx,e\nid,v\n4,\n"
CSV_DEAD = [(3, "2"), (4, "3,c,d"), (6, "x,e"), (7, "id,v")]


def test_csv_lines_with_missing_or_extra_columns_or_bad_values_are_dead(spark: SparkSession, tmp_path: Path) -> None:
    """Also a header in the middle, as `cat` leaves it; the true header never is."""
    put(tmp_path / "a.csv", CSV)
    source = files(tmp_path, format="csv", schema=SCHEMA, malformed="dead_letter")
    assert rows(good_rows(read(source, spark))) == [(1, "a"), (4, None)]
    assert dead_letters(source, spark) == CSV_DEAD


def test_csv_columns_that_nobody_reads_are_judged_too(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's CSV parser leaves out columns that a plan does not need."""
    put(tmp_path / "a.csv", "id,v\n1,a\nx,b\n")
    source = files(tmp_path, format="csv", schema=SCHEMA)
    with pytest.raises(SparkRuntimeException) as caught:
        read(source, spark).rows.select("v").collect()
    assert explanation(source, spark, caught.value).line == 3


def test_csv_without_a_schema_knows_lines_of_another_length(spark: SparkSession, tmp_path: Path) -> None:
    """The header says how many columns there are."""
    put(tmp_path / "a.csv", "id,v\n1,a\n2\n")
    source = files(tmp_path, format="csv", malformed="dead_letter")
    assert (rows(good_rows(read(source, spark))), dead_letters(source, spark)) == ([("1", "a")], [(3, "2")])


def test_a_csv_file_with_its_columns_in_another_order_stops_the_run(spark: SparkSession, tmp_path: Path) -> None:
    """By position, as Spark does by itself, names would become amounts."""
    put(tmp_path / "a.csv", "id,v\n1,a\n")
    path = put(tmp_path / "b c.csv", "v,id\nb,2\n")
    source = files(tmp_path, format="csv", schema="id string, v string")
    with pytest.raises(Exception, match="CSV header") as caught:
        read(source, spark).rows.collect()
    found = explanation(source, spark, caught.value)
    assert (found.file, found.line, found.text) == (str(path), 1, "v, id")


def test_a_csv_record_over_several_lines_is_dead_without_a_line(spark: SparkSession, tmp_path: Path) -> None:
    """With multiLine a record is not a line any more."""
    put(tmp_path / "a.csv", 'id,v\n1,"a\nb"\nx,c\n')
    source = files(tmp_path, format="csv", schema=SCHEMA, malformed="dead_letter", options={"multiLine": True})
    assert (rows(good_rows(read(source, spark))), dead_letters(source, spark)) == ([(1, "a\nb")], [(None, "x,c")])


def test_line_numbers_are_true_in_a_file_that_many_tasks_read(spark: SparkSession, tmp_path: Path) -> None:
    """Spark cuts a large file into blocks, one of 5 MB here into seventeen; the bad lines are far apart."""
    good = [f'{{"id":1,{" " * 4_500}"x":2}}'] * 500
    put(tmp_path / "a.jsonl", "\n".join([*good[:123], "bad", *good, "", "worse", *good, "bad"]) + "\n")
    small_blocks = spark.newSession()
    small_blocks.conf.set("spark.sql.files.maxPartitionBytes", "300000")
    small_blocks.conf.set("spark.sql.files.openCostInBytes", "10")
    source = files(tmp_path, schema="id long", malformed="dead_letter")
    reading = read(source, small_blocks)
    assert reading.dead is not None
    found = sorted((row.line, row.text) for row in reading.dead().collect())
    assert found == [(124, "bad"), (626, "worse"), (1127, "bad")]
    assert reading.rows.select("id", sf.spark_partition_id().alias("task")).select("task").distinct().count() > 10


def test_bytes_that_are_no_text_make_a_line_malformed(spark: SparkSession, tmp_path: Path) -> None:
    """They never become question marks in a value."""
    (tmp_path / "a.jsonl").write_bytes(b'{"id":1,"v":"gr\xfcn"}\n{"id":2,"v":"gr\xc3\xbcn"}\n')
    source = Files(tmp_path, schema=SCHEMA, settle=0, malformed="dead_letter")
    assert rows(good_rows(read(source, spark))) == [(2, "grün")]
    assert [line for line, _ in dead_letters(source, spark)] == [1]


def test_lines_in_another_encoding_are_read_in_it(spark: SparkSession, tmp_path: Path) -> None:
    """As Spark's own reader does, which needs to know how lines end then."""
    (tmp_path / "a.jsonl").write_bytes('{"id":1,"v":"grün"}\n{"id":2} x\n'.encode("UTF-16LE"))
    options = {"encoding": "UTF-16LE", "lineSep": "\n"}
    source = Files(tmp_path, schema=SCHEMA, settle=0, malformed="dead_letter", options=options)
    assert rows(good_rows(read(source, spark))) == [(1, "grün")]


def test_a_byte_order_mark_and_blank_lines_are_no_records(spark: SparkSession, tmp_path: Path) -> None:
    """Windows puts the one before the first line, people the others anywhere."""
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"id":1}\n \t\n\n{"id":2}\n  ')
    source = Files(tmp_path, schema="id long", settle=0, malformed="dead_letter")
    assert (rows(good_rows(read(source, spark))), dead_letters(source, spark)) == ([(1,), (2,)], [])


def test_lines_end_as_spark_ends_them(spark: SparkSession, tmp_path: Path) -> None:
    """Files from Windows have a carriage return, which belongs to no record."""
    (tmp_path / "a.jsonl").write_bytes(b'{"id":1}\r\nbad\r\n')
    source = Files(tmp_path, schema="id long", settle=0, malformed="dead_letter")
    assert (rows(good_rows(read(source, spark))), dead_letters(source, spark)) == ([(1,)], [(2, "bad")])

"""A small Delta table that is read by its files gives what Delta's own reader gives: rows, types, names and feed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from floodmark.probes.delta import DeltaProbe
from floodmark.probes.delta import files as table_files
from floodmark.probes.delta.files import commit_moments, files_at, files_of_changes
from floodmark.spark.table_files import MOST_LITERALS, FileRows, read_changes, read_table, table_schema
from tests.sinks.delta.test_ways import jobs_started

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

EVERY_TYPE = """
    select true as b, 1Y as y, 2S as s, 3 as i, 4L as l, 1.5F as f, double('NaN') as d, 12.50BD as m, 'é+%' as t,
        x'00ff' as x, date '0001-01-01' as day, timestamp '1582-10-04 12:00:00.123456' as at,
        timestamp_ntz '2026-03-29 02:30:00' as there, array('a', null) as a, map('k', cast(null as int)) as o,
        named_struct('in', named_struct('n', 1, 'q', array(named_struct('z', 2L)))) as r
    union all
    select null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null
"""
FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"


def by_delta(spark: SparkSession, folder: object, version: int | None = None) -> DataFrame:
    """The table as Delta's reader has it."""
    reader = spark.read.format("delta")
    return (reader if version is None else reader.option("versionAsOf", version)).load(str(folder))


def feed_by_delta(spark: SparkSession, folder: object, first: int, last: int) -> DataFrame:
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    return reader.option("startingVersion", first).option("endingVersion", last).load(str(folder))


def feed_by_files(spark: SparkSession, folder: object, first: int, last: int) -> DataFrame:
    probe = DeltaProbe(str(folder))
    probe.refresh()
    assert files_of_changes(probe, first, last) is not None
    return read_changes(spark, str(folder), probe, first, last)


def texts(rows: DataFrame) -> list[str]:
    return sorted(map(str, rows.collect()))


def require_same(spark: SparkSession, folder: object, version: int | None = None) -> None:
    """Read by its files, and exactly as Delta's reader reads it."""
    assert files_at(str(folder), version) is not None
    own, delta = read_table(spark, str(folder), version), by_delta(spark, folder, version)
    assert own.schema == delta.schema
    assert texts(own) == texts(delta)


@pytest.mark.parametrize("partition_by", [(), ("b", "i", "l", "t", "day")])
def test_every_type_is_the_same(spark: SparkSession, tmp_path: Path, partition_by: tuple[str, ...]) -> None:
    """Also times before 1582, NaN, NULL in every column, and values of partitions, which stand in the log alone."""
    folder = tmp_path / "a table é+"
    rows = spark.sql(EVERY_TYPE)
    rows.write.format("delta").partitionBy(*partition_by).save(str(folder))
    require_same(spark, folder)


def test_what_native_writers_and_spark_have_written_is_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Two writers, a column that came later, an older version, and a table without a row."""
    write_deltalake(tmp_path, pa.table({"id": pa.array([1], pa.int64()), "v": ["a"]}))
    spark.sql("select 2L as id, 'b' as v, 3.5D as late").write.format("delta").mode("append").option(
        "mergeSchema", "true"
    ).save(str(tmp_path))
    require_same(spark, tmp_path)
    require_same(spark, tmp_path, 0)
    DeltaTable(tmp_path).delete()
    require_same(spark, tmp_path)


def test_partitions_with_any_text_are_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Folders have other names than their values; an empty text is NULL."""
    spark.sql("select 1 as id, 'a b/c=%41' as p union all select 2, '' union all select 3, null").write.format(
        "delta"
    ).partitionBy("p").save(str(tmp_path))
    require_same(spark, tmp_path)


def test_an_empty_partition_of_another_writer_is_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Spark writes it as NULL; where the log has it, Delta's reader gives it."""
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "p": ["", None, "x"], "n": pa.array([None, 1, None])})
    write_deltalake(tmp_path, rows, partition_by=["p", "n"], configuration={"delta.enableChangeDataFeed": "true"})
    assert texts(read_table(spark, str(tmp_path))) == texts(by_delta(spark, tmp_path))
    assert texts(feed_by_files(spark, tmp_path, 0, 0)) == texts(feed_by_delta(spark, tmp_path, 0, 0))
    write_deltalake(tmp_path, rows.slice(1), mode="overwrite")
    require_same(spark, tmp_path)


def test_dates_that_python_has_not_are_left_to_delta(spark: SparkSession, tmp_path: Path) -> None:
    """As partitions they stand in the log, where they are read as Python's."""
    spark.sql("select 1 as id, date '10001-01-01' as day").write.format("delta").partitionBy("day").save(str(tmp_path))
    assert files_at(str(tmp_path)) is None
    assert texts(read_table(spark, str(tmp_path)).selectExpr("string(day)")) == ["Row(day='+10001-01-01')"]


def test_no_spark_job_is_started_before_the_rows_are_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    """And one that reads them then: Delta's reader has four more of a table that changed."""
    write_deltalake(tmp_path, pa.table({"id": pa.array([1, 2], pa.int64())}))
    spark.sparkContext.setJobGroup("by files", "")
    assert [row.id for row in read_table(spark, str(tmp_path)).where("id > 1").collect()] == [2]
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup("by files")) == 1


def test_the_feed_of_appends_merges_and_upkeep_is_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Inserts of whole files, changes that a merge and a delete wrote down, an OPTIMIZE between; version and time."""
    spark.sql(f"create table delta.`{tmp_path}` (id long, v string, day date) using delta partitioned by (day) {FEED}")
    spark.sql(f"insert into delta.`{tmp_path}` values (1, 'a', date '2026-01-01'), (2, 'b', null)")
    spark.sql(f"insert into delta.`{tmp_path}` values (3, 'c', date '2026-01-01')")
    spark.sql(f"optimize delta.`{tmp_path}`")
    spark.sql(
        f"merge into delta.`{tmp_path}` t using (select 1L as id, 'z' as v union all select 9L, 'n') s on t.id = s.id "
        "when matched then update set v = s.v when not matched then insert (id, v) values (s.id, s.v)"
    )
    spark.sql(f"delete from delta.`{tmp_path}` where id = 2")
    spark.sql(f"insert into delta.`{tmp_path}` values (4, 'd', date '2026-01-01')")
    for first, last in ((1, 2), (1, 6), (4, 4), (5, 6)):
        own, delta = feed_by_files(spark, tmp_path, first, last), feed_by_delta(spark, tmp_path, first, last)
        assert [(each.name, each.dataType) for each in own.schema] == [
            (each.name, each.dataType) for each in delta.schema
        ]
        assert texts(own) == texts(delta)


def test_times_of_commits_only_grow(tmp_path: Path) -> None:
    """Files of a log that were copied all have one time: Delta counts on from the one before."""
    write_deltalake(tmp_path, pa.table({"id": [1]}))
    write_deltalake(tmp_path, pa.table({"id": [2]}), mode="append")
    later = (tmp_path / "_delta_log" / f"{0:020d}.json").stat().st_mtime_ns // 1_000_000 + 5_000
    os.utime(tmp_path / "_delta_log" / f"{0:020d}.json", ns=(later * 1_000_000, later * 1_000_000))
    assert commit_moments(tmp_path, 0, 1) == {0: later, 1: later + 1}


@pytest.mark.parametrize(
    "columns",
    [
        "(id long) using delta tblproperties (delta.enableDeletionVectors = true)",
        "(id long) using delta tblproperties (delta.columnMapping.mode = 'name')",
        "(id long not null) using delta",
        "(id long, v variant) using delta",
        "(id long, v char(3)) using delta",
    ],
)
def test_tables_whose_files_do_not_tell_all_are_left_to_delta(
    spark: SparkSession, tmp_path: Path, columns: str
) -> None:
    """Deletion vectors, mapped columns, columns that are never null, other types."""
    spark.sql(f"create table delta.`{tmp_path}` {columns}")
    spark.sql(f"insert into delta.`{tmp_path}` (id) values (0), (1), (2)")
    assert files_at(str(tmp_path)) is None
    assert texts(read_table(spark, str(tmp_path)).select("id")) == [f"Row(id={number})" for number in range(3)]


def test_a_commit_that_changes_the_table_itself_is_left_to_delta(spark: SparkSession, tmp_path: Path) -> None:
    """Whether its columns can be read as those of before is for Delta to say."""
    spark.sql(f"create table delta.`{tmp_path}` (id long) using delta {FEED}")
    spark.sql(f"insert into delta.`{tmp_path}` values (1)")
    spark.sql(f"alter table delta.`{tmp_path}` add columns (v string)")
    spark.sql(f"insert into delta.`{tmp_path}` values (2, 'b')")
    probe = DeltaProbe(str(tmp_path))
    probe.refresh()
    assert files_of_changes(probe, 1, 3) is None
    assert files_of_changes(probe, 3, 3) is not None
    assert texts(read_changes(spark, str(tmp_path), probe, 1, 3)) == texts(feed_by_delta(spark, tmp_path, 1, 3))


def test_changes_of_before_a_table_had_other_columns_are_left_to_delta(spark: SparkSession, tmp_path: Path) -> None:
    """A batch that was begun, or is one of many, ends before: with the columns of now, its rows would lose values."""
    spark.sql(f"create table delta.`{tmp_path}` (id long, v string) using delta {FEED}")
    spark.sql(f"insert into delta.`{tmp_path}` values (1, 'a')")
    spark.sql("select 2L as id, 'b' as w").write.format("delta").mode("overwrite").option(
        "overwriteSchema", "true"
    ).save(str(tmp_path))
    probe = DeltaProbe(str(tmp_path))
    probe.refresh()
    assert files_of_changes(probe, 1, 1) is None
    with pytest.raises(PySparkException, match="INCOMPATIBLE_DATA_SCHEMA"):
        read_changes(spark, str(tmp_path), probe, 1, 1).collect()


def test_the_times_that_commits_say_themselves_are_left_to_delta(spark: SparkSession, tmp_path: Path) -> None:
    """A copied table has files of other times."""
    spark.sql(f"create table delta.`{tmp_path}` (id long) using delta {FEED}")
    spark.sql(f"alter table delta.`{tmp_path}` set tblproperties (delta.enableInCommitTimestamps = true)")
    spark.sql(f"insert into delta.`{tmp_path}` values (1)")
    os.utime(tmp_path / "_delta_log" / f"{2:020d}.json", (0, 0))
    probe = DeltaProbe(str(tmp_path))
    probe.refresh()
    assert texts(read_changes(spark, str(tmp_path), probe, 2, 2)) == texts(feed_by_delta(spark, tmp_path, 2, 2))


def test_the_feed_of_an_overwrite_is_what_stood_there_and_what_stands_there_now(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It wrote down no changes: the rows of the files that it took away are deleted, those of its own are inserted."""
    spark.sql(f"create table delta.`{tmp_path}` (id long) using delta {FEED}")
    spark.sql(f"insert into delta.`{tmp_path}` values (1)")
    spark.sql(f"insert overwrite delta.`{tmp_path}` values (2)")
    assert texts(feed_by_files(spark, tmp_path, 1, 2)) == texts(feed_by_delta(spark, tmp_path, 1, 2))
    assert [row._change_type for row in feed_by_files(spark, tmp_path, 2, 2).orderBy("id").collect()] == [
        "delete",
        "insert",
    ]


def test_large_tables_are_left_to_delta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the size of their files, their number, and what the last checkpoint says before any of them is read."""
    write_deltalake(tmp_path, pa.table({"id": [1]}))
    write_deltalake(tmp_path, pa.table({"id": [2]}), mode="append")
    assert files_at(str(tmp_path)) is not None
    monkeypatch.setattr(table_files, "MOST_FILES", 1)
    assert files_at(str(tmp_path)) is None
    monkeypatch.setattr(table_files, "MOST_FILES", 9)
    monkeypatch.setattr(table_files, "MOST_BYTES", 10)
    assert files_at(str(tmp_path)) is None
    monkeypatch.undo()
    (tmp_path / "_delta_log" / "_last_checkpoint").write_text('{"version": 1, "size": 1000000}')
    assert files_at(str(tmp_path)) is None


def test_what_is_no_table_is_left_to_delta(tmp_path: Path) -> None:
    """It has the words for it; and so it has for a version that is gone."""
    assert files_at(str(tmp_path / "nothing")) is None
    assert files_at("s3a://bucket/table") is None
    write_deltalake(tmp_path, pa.table({"id": [1]}))
    assert files_at(str(tmp_path), 7) is None


def test_facts_of_many_files_are_joined_to_their_rows(spark: SparkSession, tmp_path: Path) -> None:
    """A table without a feed may have been added to by thousands of them."""
    for number in range(MOST_LITERALS + 1):
        write_deltalake(tmp_path, pa.table({"id": [number], "p": [number % 3]}), partition_by=["p"], mode="append")
    probe = DeltaProbe(str(tmp_path))
    files = [file for each in probe.file_actions(0, MOST_LITERALS) for file in each.added]
    rows = FileRows(spark, str(tmp_path), table_schema(probe.schema_json()), files).changes()
    assert sorted((row.id, row.p, row._commit_version) for row in rows.collect()) == [
        (number, number % 3, number) for number in range(MOST_LITERALS + 1)
    ]


def test_a_table_whose_log_was_copied_elsewhere_is_read_there(spark: SparkSession, tmp_path: Path) -> None:
    """Paths in the log are those below the table."""
    write_deltalake(tmp_path / "one", pa.table({"id": [1]}))
    shutil.copytree(tmp_path / "one", tmp_path / "two [1] é")
    require_same(spark, tmp_path / "two [1] é")


def test_what_is_summed_up_of_a_small_table_is_one_job(spark: SparkSession, tmp_path: Path) -> None:
    """One task reads it anyway; a plan that did not know so would shuffle its few rows, in a job more."""
    for first in (0, 10):
        write_deltalake(tmp_path, pa.table({"id": list(range(first, first + 10)), "k": ["a", "b"] * 5}), mode="append")
    found = read_table(spark, str(tmp_path)).groupBy("k").count().orderBy("k")
    assert jobs_started(spark, found.collect) == 1
    assert [tuple(row) for row in found.collect()] == [("a", 10), ("b", 10)]


def test_a_table_that_is_worth_two_tasks_is_read_by_two(spark: SparkSession, tmp_path: Path) -> None:
    """Where a second task pays, the rows stay apart."""
    spark.range(100_000).repartition(2).write.format("delta").save(str(tmp_path))
    assert read_table(spark, str(tmp_path)).select(F.spark_partition_id()).distinct().count() == 2

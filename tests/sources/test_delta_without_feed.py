"""A Delta table without a change feed: the rows of the files that its commits added, and nothing that was rewritten."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

import floodmark as fm
from floodmark.errors import ChangeFeedOff, SourceGap, SourceRewritten
from floodmark.hwm import Span
from floodmark.sources.contract import Sight
from floodmark.sources.delta import Delta
from tests.sources.test_delta import ids, look, mark, spanned
from tests.tables import sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def plain(spark: SparkSession, tmp_path: Path) -> str:
    """Version 0 has 1 and 2, version 1 adds 3; nobody has switched anything on."""
    folder = str(tmp_path / "a table é+")
    spark.range(1, 3).write.format("delta").save(folder)
    spark.range(3, 4).write.format("delta").mode("append").save(folder)
    return folder


def test_a_snapshot_is_read_and_then_what_was_added(spark: SparkSession, plain: str) -> None:
    """The look fixes both, and neither needs a setting of the table."""
    source = Delta(plain)
    assert ids(spark, source, spanned(source)) == [1, 2, 3]
    spark.range(4, 6).write.format("delta").mode("append").save(plain)
    sight = look(source, 1)
    assert sight.span is not None
    assert (ids(spark, source, sight.span), sight.span.upto.value, sight.expected_rows) == ([4, 5], 2, 2)
    assert look(source, 2) == Sight(None)


def test_the_same_rows_come_from_the_stored_span_after_a_compaction(spark: SparkSession, plain: str) -> None:
    """A crash is finished from the intent alone, and the files of then are still there."""
    stored = Span.deserialize(spanned(Delta(plain), 0).serialize())
    spark.range(4, 6).write.format("delta").mode("append").save(plain)
    spark.sql(f"OPTIMIZE delta.`{plain}`")
    assert ids(spark, Delta(plain), stored) == [3]
    assert ids(spark, Delta(plain), spanned(Delta(plain), 0)) == [3, 4, 5]


def test_every_row_tells_the_version_that_brought_it(spark: SparkSession, plain: str) -> None:
    """A merge by position keeps the row that came last, as with the feed."""
    spark.range(4, 5).write.format("delta").mode("append").save(plain)
    reading = Delta(plain).read(spark, spanned(Delta(plain), 0))
    assert reading.position is not None
    found = reading.rows.orderBy(reading.position).collect()
    assert [(row.id, row._change_type, row._commit_version) for row in found] == [(3, "insert", 1), (4, "insert", 2)]
    assert reading.rows.drop(*reading.hidden).columns == ["id"]
    assert None not in [row._commit_timestamp for row in found]


def test_partitions_and_new_columns_are_those_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    """Values of partitions stand in the log and not in the files; a column that came later is null before."""
    folder = str(tmp_path / "t")
    early = spark.sql("select 1L as id, date '2026-01-01' as day, 'a b/c' as place union all select 2L, null, 'é+%'")
    late = spark.sql("select 3L as id, date '2026-01-02' as day, '' as place, 7 as amount")
    spark.range(0).selectExpr("id", "date(null) as day", "'' as place").write.format("delta").partitionBy(
        "day", "place"
    ).save(folder)
    early.write.format("delta").mode("append").save(folder)
    late.write.format("delta").mode("append").option("mergeSchema", "true").save(folder)
    source = Delta(folder)
    found = source.read(spark, spanned(source, 0)).rows
    table = spark.read.format("delta").load(folder)
    assert found.drop("_change_type", "_commit_version", "_commit_timestamp").schema == table.schema
    assert sorted(map(str, found.select(*table.columns).collect())) == sorted(map(str, table.collect()))


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM {} WHERE id = 1", "UPDATE {} SET id = 9 WHERE id = 1", "TRUNCATE TABLE {}"],
    ids=["delete", "update", "truncate"],
)
def test_a_commit_that_changed_rows_stops_the_look(spark: SparkSession, plain: str, statement: str) -> None:
    """By its version, before a row is read."""
    spark.sql(statement.format(f"delta.`{plain}`"))
    with pytest.raises(SourceRewritten) as caught:
        look(Delta(plain), 1)
    assert "version 2" in caught.value.what


def test_a_commit_that_wrote_old_rows_again_stops_the_look(spark: SparkSession, tmp_path: Path) -> None:
    """It inserted one row and updated none; but which of the rows in its file is the new one, only a feed tells."""
    folder = str(tmp_path / "t")
    spark.range(1, 3).coalesce(1).write.format("delta").save(folder)
    spark.sql(f"ALTER TABLE delta.`{folder}` SET TBLPROPERTIES (delta.enableDeletionVectors = false)")
    spark.sql(
        f"MERGE INTO delta.`{folder}` t USING (SELECT 1L AS id UNION ALL SELECT 8L) s ON t.id = s.id "
        "WHEN MATCHED AND t.id = 77 THEN DELETE WHEN NOT MATCHED THEN INSERT *"
    )
    with pytest.raises(SourceRewritten) as caught:
        look(Delta(folder), 0)
    assert "version 2 (MERGE)" in caught.value.what


def test_a_commit_that_only_copied_rows_is_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    """It matched a row and changed none: no reader has anything to see there, and the next append is read."""
    folder = str(tmp_path / "t")
    spark.range(1, 3).coalesce(1).write.format("delta").save(folder)
    spark.range(3, 4).write.format("delta").mode("append").save(folder)
    spark.sql(f"ALTER TABLE delta.`{folder}` SET TBLPROPERTIES (delta.enableDeletionVectors = false)")
    spark.sql(
        f"MERGE INTO delta.`{folder}` t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED AND t.id = 77 THEN DELETE"
    )
    spark.range(4, 5).write.format("delta").mode("append").save(folder)
    assert ids(spark, Delta(folder), spanned(Delta(folder), 0)) == [3, 4]


def test_a_merge_that_only_inserted_is_taken(spark: SparkSession, plain: str) -> None:
    """What counts is what a commit did, and not what it is called."""
    merge = f"MERGE INTO delta.`{plain}` t USING (SELECT 8L AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    spark.sql(merge)
    assert ids(spark, Delta(plain), spanned(Delta(plain), 1)) == [8]


def test_a_feed_that_was_switched_on_late_leaves_no_gap(spark: SparkSession, plain: str) -> None:
    """Versions from before are read by their files."""
    spark.sql(f"ALTER TABLE delta.`{plain}` SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    spark.range(4, 5).write.format("delta").mode("append").save(plain)
    assert ids(spark, Delta(plain), spanned(Delta(plain), 0)) == [3, 4]
    assert ids(spark, Delta(plain), spanned(Delta(plain), 2)) == [4]


def test_start_and_from_go_by_versions(spark: SparkSession, plain: str) -> None:
    """As they do with a feed."""
    assert ids(spark, Delta(plain), spanned(Delta(plain, start=1))) == [3]
    latest = Delta(plain, start="latest")
    assert (spanned(latest).upto.value, ids(spark, latest, spanned(latest))) == (1, [])


def test_files_that_were_vacuumed_away_are_a_gap(spark: SparkSession, plain: str) -> None:
    """The log names them, and nobody has them any more."""
    source, before = Delta(plain), set(DeltaTable(plain, version=0).file_uris())
    span = spanned(source, 0)
    (gone,) = set(DeltaTable(plain, version=1).file_uris()) - before
    Path(plain, Path(gone).name).unlink()
    with pytest.raises(Exception, match=r"NOT_EXIST|NOT_FOUND|NotFound") as caught:
        source.read(spark, span).rows.write.format("noop").mode("overwrite").save()
    assert isinstance(source.explain(caught.value, spark, span), SourceGap)


def test_mapped_columns_need_the_feed(spark: SparkSession, tmp_path: Path) -> None:
    """Files name such columns otherwise than the table does; the first look already says so, with the statement."""
    folder = str(tmp_path / "t")
    spark.sql(
        f"CREATE TABLE delta.`{folder}` (id long) USING DELTA TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    spark.sql(f"INSERT INTO delta.`{folder}` VALUES (1)")
    with pytest.raises(ChangeFeedOff) as caught:
        look(Delta(folder))
    assert "column mapping" in caught.value.message
    spark.sql(caught.value.hint or "")
    assert ids(spark, Delta(folder), spanned(Delta(folder))) == [1]


def test_changes_need_the_feed_from_the_first_look_on(spark: SparkSession, plain: str) -> None:
    """What is committed before it is on could never be read as changes afterwards."""
    for version in (None, 0):
        with pytest.raises(ChangeFeedOff):
            look(Delta(plain, changes="feed"), version)


def test_the_second_job_of_a_newcomer_reads_what_the_first_one_wrote(spark: SparkSession, tmp_path: Path) -> None:
    """Files become a bronze table by append, bronze becomes silver by merge: no setting, and a compaction between."""
    store, incoming, bronze = fm.stores.open("memory"), tmp_path / "in", str(tmp_path / "bronze")
    incoming.mkdir()
    first = fm.Job(
        "bronze",
        fm.sources.Files(incoming, format="jsonl", schema="id long, v string", settle=0),
        sinks=[fm.sinks.Delta(bronze)],
    )
    merge = fm.sinks.Delta(str(tmp_path / "silver"), mode="merge", key=["id"])
    second = fm.Job("silver", fm.sources.Delta(bronze), sinks=[merge])
    (incoming / "1.jsonl").write_text('{"id": 1, "v": "a"}\n{"id": 2, "v": "b"}\n')
    assert (first.run(spark, store).rows_read, second.run(spark, store).rows_read) == (2, 2)
    (incoming / "2.jsonl").write_text('{"id": 1, "v": "c"}\n')
    first.run(spark, store)
    (incoming / "3.jsonl").write_text('{"id": 1, "v": "d"}\n')
    first.run(spark, store)
    spark.sql(f"OPTIMIZE delta.`{bronze}`")
    assert second.run(spark, store).rows_read == 2
    assert sorted_rows(tmp_path / "silver") == [(1, "d"), (2, "b")]
    assert second.run(spark, store).status == "nothing_new"


def test_a_span_that_is_read_by_files_is_guarded_in_the_read_too(spark: SparkSession, plain: str) -> None:
    """Whoever stored it: a commit that changed rows gives none."""
    spark.sql(f"DELETE FROM delta.`{plain}` WHERE id = 1")
    source, span = Delta(plain), Span(mark(1), mark(2), {"first": 2, "last": 2, "by": "files"})
    with pytest.raises(SourceRewritten):
        source.read(spark, span)

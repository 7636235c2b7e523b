"""A Delta table as a source: snapshots, the change feed, and what is not new data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from floodmark.errors import ChangeFeedOff, ConfigError, SourceGap, SourceRegressed, SourceRewritten, SourceUnreadable
from floodmark.hwm import Span, VersionHWM
from floodmark.sources.contract import Request, Sight
from floodmark.sources.delta import Delta
from tests.sources.tables.reader import no_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def mark(version: int) -> VersionHWM:
    return VersionHWM("delta", version)


def look(source: Delta, at: int | None = None, request: Request = Request()) -> Sight:  # noqa: B008 - frozen
    return source.look(mark(at) if at is not None else None, request, no_session)


def spanned(source: Delta, at: int | None = None, request: Request = Request()) -> Span:  # noqa: B008 - frozen
    span = look(source, at, request).span
    assert span is not None
    return span


def ids(spark: SparkSession, source: Delta, span: Span) -> list[int]:
    return sorted(row.id for row in source.read(spark, span).rows.collect())


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> str:
    """Version 0 has 1 and 2, version 1 adds 3."""
    folder = str(tmp_path / "lake")
    spark.range(1, 3).write.format("delta").option("delta.enableChangeDataFeed", "true").save(folder)
    spark.range(3, 4).write.format("delta").mode("append").save(folder)
    return folder


def test_the_first_run_reads_a_snapshot_at_a_pinned_version(spark: SparkSession, lake: str) -> None:
    """What is committed after the look belongs to the next batch."""
    source = Delta(lake)
    sight = look(source)
    spark.range(4, 5).write.format("delta").mode("append").save(lake)
    assert sight.span is not None
    assert (sight.span.after, sight.span.upto.value, sight.expected_rows) == (None, 1, 3)
    assert ids(spark, source, sight.span) == [1, 2, 3]
    assert ids(spark, source, spanned(source, 1)) == [4]


def test_a_span_reads_the_same_rows_after_it_was_stored(spark: SparkSession, lake: str) -> None:
    """A crash is finished by another process, from the intent alone."""
    stored = Span.deserialize(spanned(Delta(lake), 0).serialize())
    spark.range(4, 5).write.format("delta").mode("append").save(lake)
    assert ids(spark, Delta(lake), stored) == [3]


def test_at_the_newest_version_there_is_nothing_new(lake: str) -> None:
    """One look at the log, and no JVM."""
    assert look(Delta(lake), 1) == Sight(None)


def test_maintenance_is_not_new_data(spark: SparkSession, lake: str) -> None:
    """OPTIMIZE, properties, new columns and empty commits make versions, and no row."""
    spark.sql(f"OPTIMIZE delta.`{lake}`")
    spark.sql(f"ALTER TABLE delta.`{lake}` SET TBLPROPERTIES ('team' = 'lake')")
    spark.sql(f"ALTER TABLE delta.`{lake}` ADD COLUMNS (note string)")
    spark.sql(f"DELETE FROM delta.`{lake}` WHERE id = 77")
    nothing = spark.range(0).write.format("delta").mode("append").option("txnAppId", "other")
    nothing.option("txnVersion", "1").save(lake)
    assert DeltaTable(lake).version() == 5
    assert look(Delta(lake), 1) == Sight(None)


def test_rows_after_an_optimize_are_read_without_its_rewritten_files(spark: SparkSession, lake: str) -> None:
    """Compaction moves rows that were read already."""
    spark.sql(f"OPTIMIZE delta.`{lake}`")
    spark.range(4, 5).write.format("delta").mode("append").save(lake)
    span = spanned(Delta(lake), 1)
    assert (ids(spark, Delta(lake), span), span.upto.value) == ([4], 3)


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM {} WHERE id = 1", "UPDATE {} SET id = 9 WHERE id = 1", "TRUNCATE TABLE {}"],
    ids=["delete", "update", "truncate"],
)
def test_append_stops_at_a_commit_that_changed_rows(spark: SparkSession, lake: str, statement: str) -> None:
    """Found in the log, before a row is read or a batch is begun; the version is named."""
    spark.sql(statement.format(f"delta.`{lake}`"))
    with pytest.raises(SourceRewritten) as caught:
        look(Delta(lake), 1)
    assert "version 2" in caught.value.what


def test_append_stops_at_an_overwrite(spark: SparkSession, lake: str) -> None:
    """It removed every row that was delivered."""
    spark.range(9, 10).write.format("delta").mode("overwrite").save(lake)
    with pytest.raises(SourceRewritten):
        look(Delta(lake), 1)


def test_append_takes_a_merge_that_only_inserted(spark: SparkSession, lake: str) -> None:
    """What counts is what a commit did, and not what it is called."""
    merge = f"MERGE INTO delta.`{lake}` t USING (SELECT 8L AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    spark.sql(merge)
    assert ids(spark, Delta(lake), spanned(Delta(lake), 1)) == [8]


def test_a_change_that_the_log_does_not_tell_is_stopped_in_the_plan(spark: SparkSession, lake: str) -> None:
    """The guard is in the rows themselves, and the source recognises it in the error of the write."""
    spark.sql(f"DELETE FROM delta.`{lake}` WHERE id = 1")
    source = Delta(lake)
    span = Span(mark(1), mark(2), {"first": 2, "last": 2})
    with pytest.raises(Exception, match="changed or removed rows") as caught:
        source.read(spark, span).rows.write.format("noop").mode("overwrite").save()
    assert isinstance(source.explain(caught.value, spark, span), SourceRewritten)
    assert source.explain(ValueError("something else"), spark, span) is None


def test_the_feed_gives_every_change_with_its_version(spark: SparkSession, lake: str) -> None:
    """Inserts, both sides of an update, and deletes."""
    spark.sql(f"UPDATE delta.`{lake}` SET id = 9 WHERE id = 1")
    spark.sql(f"DELETE FROM delta.`{lake}` WHERE id = 2")
    source = Delta(lake, changes="feed")
    found = source.read(spark, spanned(source, 0)).rows.collect()
    assert sorted((row._commit_version, row._change_type, row.id) for row in found) == [
        (1, "insert", 3),
        (2, "update_postimage", 9),
        (2, "update_preimage", 1),
        (3, "delete", 2),
    ]


def test_a_snapshot_of_the_feed_is_made_of_inserts(spark: SparkSession, lake: str) -> None:
    """It has the columns that later batches have, in the same types."""
    source = Delta(lake, changes="feed")
    first, later = source.read(spark, spanned(source)).rows, source.read(spark, spanned(source, 0)).rows
    assert first.schema.simpleString() == later.schema.simpleString()
    kinds = {(row._change_type, row._commit_version, row._commit_timestamp is None) for row in first.collect()}
    assert kinds == {("insert", 1, False)}


def test_the_position_puts_what_a_commit_took_before_what_it_gave(spark: SparkSession, lake: str) -> None:
    """A merge by position keeps the side of an update that is true now."""
    spark.sql(f"UPDATE delta.`{lake}` SET id = id WHERE id = 1")
    source = Delta(lake, changes="feed")
    reading = source.read(spark, spanned(source, 1))
    assert reading.position is not None
    ordered = reading.rows.orderBy(reading.position).collect()
    assert [row._change_type for row in ordered] == ["update_preimage", "update_postimage"]


def test_append_hides_the_columns_of_the_feed(spark: SparkSession, lake: str) -> None:
    """The user's transform sees the table's own columns."""
    reading = Delta(lake).read(spark, spanned(Delta(lake), 0))
    assert reading.rows.drop(*reading.hidden).columns == ["id"]


def test_without_the_feed_changes_cannot_be_followed(spark: SparkSession, tmp_path: Path) -> None:
    """The first run stops already, with the statement: what is committed before could never be read afterwards."""
    spark.range(1).write.format("delta").save(str(tmp_path))
    source = Delta(str(tmp_path), changes="feed")
    with pytest.raises(ChangeFeedOff) as caught:
        look(source)
    assert caught.value.hint == f"ALTER TABLE delta.`{tmp_path}` SET TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    spark.sql(caught.value.hint)
    assert ids(spark, source, spanned(source)) == [0]


def test_a_change_from_before_the_feed_was_on_is_not_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    """The feed has nothing for that version, so going on would lose its rows."""
    spark.range(1).write.format("delta").save(str(tmp_path))
    spark.range(1, 2).write.format("delta").mode("append").save(str(tmp_path))
    spark.sql(f"ALTER TABLE delta.`{tmp_path}` SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    with pytest.raises(ChangeFeedOff) as caught:
        look(Delta(str(tmp_path), changes="feed"), 0)
    assert caught.value.since == 1


def test_a_version_that_was_cleaned_away_is_a_gap_that_names_the_oldest(spark: SparkSession, lake: str) -> None:
    """Nothing is skipped without a person's word."""
    spark.range(4, 5).write.format("delta").mode("append").save(lake)
    DeltaTable(lake).create_checkpoint()
    (Path(lake) / "_delta_log" / "00000000000000000000.json").unlink()
    (Path(lake) / "_delta_log" / "00000000000000000001.json").unlink()
    with pytest.raises(SourceGap) as caught:
        look(Delta(lake), 0)
    assert caught.value.oldest == "version 2"


def test_files_that_were_vacuumed_away_are_a_gap_too(spark: SparkSession, lake: str) -> None:
    """The log still names the version, and its rows are gone."""
    source = Delta(lake)
    span = spanned(source, 0)
    (gone,) = {Path(uri).name for uri in DeltaTable(lake, version=1).file_uris()} - {
        Path(uri).name for uri in DeltaTable(lake, version=0).file_uris()
    }
    (Path(lake) / gone).unlink()
    with pytest.raises(Exception, match=r"NOT_EXIST|NotFound|PATH_NOT_FOUND") as caught:
        source.read(spark, span).rows.write.format("noop").mode("overwrite").save()
    assert isinstance(source.explain(caught.value, spark, span), SourceGap)


def test_a_table_that_ends_below_the_mark_stops_the_run(lake: str) -> None:
    """It was restored from a copy, or made anew."""
    with pytest.raises(SourceRegressed):
        look(Delta(lake), 7)


def test_an_empty_table_has_nothing_new_and_gets_no_mark(spark: SparkSession, tmp_path: Path) -> None:
    """No mark is a state of its own."""
    spark.sql(
        f"CREATE TABLE delta.`{tmp_path}/e` (id long) USING DELTA TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    assert look(Delta(f"{tmp_path}/e")) == Sight(None)


def test_start_latest_puts_the_mark_at_the_end_and_reads_no_row(spark: SparkSession, lake: str) -> None:
    """Only what comes afterwards is delivered."""
    source = Delta(lake, start="latest")
    span = spanned(source)
    assert (span.upto.value, ids(spark, source, span)) == (1, [])


def test_start_at_a_version_is_inclusive(spark: SparkSession, lake: str) -> None:
    """By the source's option as by --from, which wins over the mark."""
    assert ids(spark, Delta(lake), spanned(Delta(lake, start=1))) == [3]
    assert ids(spark, Delta(lake), spanned(Delta(lake), 1, Request(start="0"))) == [1, 2, 3]


def test_max_rows_takes_whole_versions_and_at_least_one(spark: SparkSession, lake: str) -> None:
    """A mark lies between versions, never within one."""
    spark.range(4, 9).write.format("delta").mode("append").save(lake)
    source = Delta(lake)
    assert ids(spark, source, spanned(source, 0, Request(max_rows=3))) == [3]
    assert ids(spark, source, spanned(source, 1, Request(max_rows=3))) == [4, 5, 6, 7, 8]


def test_the_fingerprint_holds_the_tables_id(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    """A table that was made anew at the same place is another one."""
    found = Delta(lake).fingerprint(no_session)
    assert found == f"delta {lake} (table id {DeltaTable(lake).metadata().id})"


def test_a_missing_table_cannot_be_read(tmp_path: Path) -> None:
    """It is never taken for a table without rows."""
    with pytest.raises(SourceUnreadable):
        look(Delta(str(tmp_path / "nothing")))


def test_a_table_is_found_by_its_name(spark: SparkSession) -> None:
    """Spark is asked where it lies once; the looks go to its log."""
    spark.sql(
        "CREATE OR REPLACE TABLE named_source (id long) USING DELTA TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    spark.sql("INSERT INTO named_source VALUES (5)")
    source = Delta(table="default.named_source")
    span = source.look(None, Request(), lambda: spark).span
    assert span is not None
    assert (ids(spark, source, span), look(source, span.upto.value).span) == ([5], None)
    spark.sql("DROP TABLE named_source")


@pytest.mark.parametrize(
    "options", [{}, {"path": "a", "table": "b"}, {"path": "a", "changes": "all"}, {"path": "a", "start": "soon"}]
)
def test_wrong_options_are_refused_at_once(options: dict[str, Any]) -> None:
    """Before any table is looked at."""
    with pytest.raises(ConfigError):
        Delta(**options)

"""A history whose log is the bronze table itself: no event is stored twice, and the table is the same."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import floodmark as fm
from floodmark.errors import ConfigError, ConflictingEvents, SinkBehind
from floodmark.jobs.quarantine import Selection, replay
from floodmark.medallion import prune_events
from floodmark.stores.contract import MarkStore
from floodmark.testing import RowsSource
from tests.sinks.batches import on_disk
from tests.sinks.scd.histories import version_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "k string, at int, v string, note string"
KEPT = "SELECT k, at, upper(v) AS v, note FROM source WHERE note IS NULL"


@pytest.fixture
def store(tmp_path: Path) -> MarkStore:
    return fm.stores.open("sqlite:///marks.db", folder=tmp_path)


def add(spark: SparkSession, home: Path, *rows: tuple[Any, ...]) -> None:
    writer = spark.createDataFrame(list(rows), SCHEMA).write.format("delta").mode("append")
    writer.option("delta.enableChangeDataFeed", "true").save(str(home / "bronze"))


def job_of(home: Path, *, transform: Any = KEPT, source: Any = None, **options: Any) -> fm.Job:  # noqa: ANN401
    settings = {"key": "k", "sequence": "at", "track": "v", "delete_when": "v = 'D'", "events": "source"}
    sink = fm.sinks.Scd2(str(home / "t"), **{**settings, **options})
    return fm.Job("j", source or fm.sources.Delta(str(home / "bronze")), [sink], transform=transform)


@pytest.mark.spark
def test_keys_are_rebuilt_from_the_source_and_nothing_is_stored_twice(
    spark: SparkSession, store: MarkStore, tmp_path: Path
) -> None:
    """Late events and deletes, through the transform, and without rows that a rule put aside."""
    job = job_of(tmp_path)
    add(spark, tmp_path, ("x", 10, "a", None), ("y", 1, "a", None), ("z", 1, "a", "left out"))
    job.run(spark, store)
    add(spark, tmp_path, ("x", 5, "b", None), ("y", 7, "d", None), (None, 1, "a", None))
    receipt = job.run(spark, store)
    assert version_lines(tmp_path) == {"x": "B[5,10) A[10,)", "y": "A[1,7)"}
    assert (receipt.rows_read, receipt.rows_written, receipt.rows_refused) == (3, {"scd2": 2}, 1)
    assert not (tmp_path / "t__events").exists()


@pytest.mark.spark
def test_a_batch_that_is_finished_after_a_kill_ends_where_it_was_to_end(
    spark: SparkSession, store: MarkStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its own version of the source: what came since belongs to the next batch."""
    job = job_of(tmp_path)
    add(spark, tmp_path, ("x", 1, "a", None))
    monkeypatch.setattr("floodmark.step.run.reach", lambda point: (_ for _ in ()).throw(OSError(point)))
    with pytest.raises(OSError, match="after_read"):
        job.run(spark, store)
    monkeypatch.undo()
    add(spark, tmp_path, ("x", 5, "b", None))
    job.step(spark, store, fm.step.RunRequest()).run()
    assert version_lines(tmp_path) == {"x": "A[1,)"}
    job.run(spark, store)
    assert version_lines(tmp_path) == {"x": "A[1,5) B[5,)"}


@pytest.mark.spark
def test_a_contradiction_with_an_event_of_the_source_is_named(
    spark: SparkSession, store: MarkStore, tmp_path: Path
) -> None:
    """Whenever the other one came; nothing is written."""
    job = job_of(tmp_path)
    add(spark, tmp_path, ("x", 1, "a", None))
    job.run(spark, store)
    before = on_disk(tmp_path / "t")
    add(spark, tmp_path, ("x", 1, "b", None))
    with pytest.raises(ConflictingEvents) as found:
        job.run(spark, store)
    assert (found.value.key, found.value.sequence) == ('{"k":"x"}', '{"at":1}')
    assert on_disk(tmp_path / "t") == before


@pytest.mark.spark
def test_a_history_does_not_go_on_with_a_log_that_lacks_its_past(
    spark: SparkSession, store: MarkStore, tmp_path: Path
) -> None:
    """A key that is rebuilt from the new log alone would lose its versions; a refresh fills the log."""
    add(spark, tmp_path, ("x", 1, "a", None))
    job_of(tmp_path).run(spark, store)
    add(spark, tmp_path, ("x", 5, "b", None))
    own = job_of(tmp_path, events="own")
    with pytest.raises(SinkBehind):
        own.run(spark, store)
    assert version_lines(tmp_path) == {"x": "A[1,)"}
    own.run(spark, store, full_refresh=True)
    assert version_lines(tmp_path) == {"x": "A[1,5) B[5,)"}


@pytest.mark.spark
def test_what_needs_a_log_of_its_own_is_refused(spark: SparkSession, store: MarkStore, tmp_path: Path) -> None:
    """A repaired row would be in the table once, and gone when its key is touched again."""
    job = job_of(tmp_path)
    add(spark, tmp_path, ("x", 1, "a", None), (None, 1, "a", None))
    job.run(spark, store)
    with pytest.raises(ConfigError, match="follows from the source alone"):
        replay(job, Selection(), {"k": "'x'"}, lambda: spark, store)
    with pytest.raises(ConfigError, match="has no log of its own"):
        prune_events(job, 1, spark, store)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"source": RowsSource([], SCHEMA)}, "does not read one Delta table"),
        ({"source": fm.sources.Delta("bronze", changes="feed")}, "by `changes: append`"),
        ({"source": fm.sources.Delta("bronze", start="latest")}, "from the beginning"),
        ({"transform": "SELECT k, at, max(v) AS v FROM source GROUP BY k, at"}, "same rows of each row"),
        ({"transform": lambda rows: rows}, "same rows of each row"),
        ({"transform": "SELECT *, :batch_time AS seen FROM source"}, "names :batch_time"),
        ({"on_conflict": "quarantine"}, "`on_conflict: quarantine` needs a log"),
        ({"changes": "snapshot", "delete_when": None}, "`changes: snapshot` needs a log"),
        ({"keep_events": timedelta(days=1)}, "`keep_events` needs a log"),
    ],
)
def test_a_job_whose_rows_may_be_others_later_keeps_its_own_log(
    tmp_path: Path, options: dict[str, Any], why: str
) -> None:
    """Refused by name before anything is read."""
    with pytest.raises(ConfigError, match=why):
        job_of(tmp_path, **options).work(fm.stores.open("memory"))

"""The seed's three functions, with its own snippet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import floodmark as fm
from floodmark import stores
from floodmark.errors import ConfigError, FloodmarkError
from floodmark.medallion import (
    Processed,
    commit_processing_state,
    get_last_processed_timestamp,
    read_bronze_since_timestamp,
    upto,
)
from floodmark.testing import ListSink
from tests.tables import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
TABLE = "brz_access_workspaces"


@pytest.fixture
def bronze(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The table, its view of latest rows, and marks in a file of this test."""
    monkeypatch.setenv("FLOODMARK_STORE", f"sqlite:///{tmp_path}/marks.db")
    feed = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    spark.sql(f"CREATE TABLE {TABLE} (id INT) USING delta LOCATION '{tmp_path}/t' {feed}")
    spark.sql(f"CREATE VIEW {TABLE}_latest AS SELECT DISTINCT id FROM {TABLE}")
    yield TABLE
    spark.sql(f"DROP VIEW {TABLE}_latest")
    spark.sql(f"DROP TABLE {TABLE}")


def seed_snippet(spark: SparkSession, task: str = "silver_workspace") -> list[int]:
    """The seed's own lines, with the rows processed between reading and committing."""
    # Get last processed timestamp
    last_ts = get_last_processed_timestamp(spark, task)

    # Read new data since last timestamp
    df = read_bronze_since_timestamp(spark, "brz_access_workspaces_latest", last_ts)
    processed = sorted(row.id for row in df.collect())
    max_ts = upto(df)

    # Update processing state after successful processing
    if max_ts:
        commit_processing_state(spark, task, max_ts)
    return processed


def add(spark: SparkSession, *ids: int) -> None:
    spark.sql(f"INSERT INTO {TABLE} VALUES {', '.join(f'({i})' for i in ids)}")


def test_the_seeds_snippet_reads_each_row_once(spark: SparkSession, bronze: str) -> None:
    """Nothing twice, nothing left out; two tasks on one table do not disturb each other."""
    assert get_last_processed_timestamp(spark, "silver_workspace") is None
    add(spark, 1, 2)
    assert seed_snippet(spark) == [1, 2]
    add(spark, 3)
    assert seed_snippet(spark) == [3]
    assert seed_snippet(spark) == []
    assert seed_snippet(spark, "silver_other") == [1, 2, 3]
    add(spark, 4)
    assert (seed_snippet(spark), seed_snippet(spark, "silver_other")) == ([4], [4])


def test_rows_of_commits_that_share_a_time_are_neither_lost_nor_doubled(spark: SparkSession, bronze: str) -> None:
    """What is remembered is the commit; its time is for people."""
    add(spark, 1)
    df = read_bronze_since_timestamp(spark, bronze, None)
    reached = upto(df)
    assert reached is not None
    add(spark, 2)
    same_time = Processed.at(reached, bronze, 2)
    commit_processing_state(spark, "t", reached)
    assert sorted(
        r.id for r in read_bronze_since_timestamp(spark, bronze, get_last_processed_timestamp(spark, "t")).collect()
    ) == [2]
    assert commit_processing_state(spark, "t", same_time) == same_time
    last = get_last_processed_timestamp(spark, "t")
    assert isinstance(last, Processed)
    assert (last.table, last.version) == (bronze, 2)
    assert read_bronze_since_timestamp(spark, bronze, last).count() == 0


def test_a_plain_time_stands_for_the_last_commit_at_or_before_it(spark: SparkSession, bronze: str) -> None:
    """Before the first commit it stands for nothing, after the last for all of them; without a zone it is refused."""
    add(spark, 1)
    add(spark, 2)
    moments = {r.version: r.timestamp for r in spark.sql(f"DESCRIBE HISTORY {bronze}").collect()}
    first: datetime = moments[1].astimezone(timezone.utc)
    assert [r.id for r in read_bronze_since_timestamp(spark, bronze, first).collect()] == [2]
    assert read_bronze_since_timestamp(spark, bronze, datetime(2000, 1, 1, tzinfo=timezone.utc)).count() == 2
    assert read_bronze_since_timestamp(spark, bronze, datetime.now(timezone.utc)).count() == 0
    with pytest.raises(ConfigError, match="has no zone"):
        read_bronze_since_timestamp(spark, bronze, datetime(2000, 1, 1))  # noqa: DTZ001 - that is the mistake


def test_what_is_remembered_never_sinks(spark: Any) -> None:  # noqa: ANN401 - no session is used
    """Neither by a lower commit nor by an earlier time; the higher one is told again."""
    store, noon = stores.open("memory"), datetime(2024, 5, 1, 12, tzinfo=timezone.utc)
    commit_processing_state(spark, "t", Processed.at(noon, "b", 7), store=store)
    assert commit_processing_state(spark, "t", Processed.at(noon, "b", 6), store=store) == noon
    assert commit_processing_state(spark, "t", noon.replace(hour=11), store=store) == noon
    last = get_last_processed_timestamp(spark, "t", store=store)
    assert isinstance(last, Processed)
    assert last.version == 7
    assert len(store.history("t")) == 1


def job_on(bronze: str, home: Path) -> fm.Job:
    sink = fm.sinks.Delta(str(home / "silver"), name="silver")
    return fm.Job("silver_workspace", fm.sources.Delta(table=bronze), [sink])


def test_a_task_that_is_a_job_shares_the_job_s_mark(spark: SparkSession, bronze: str, tmp_path: Path) -> None:
    """What the job has read is not read by the functions, and the other way round; its record keeps all it had."""
    store, job = stores.open(os.environ["FLOODMARK_STORE"]), job_on(bronze, tmp_path)
    add(spark, 1)
    job.run(spark, store)
    before = store.read("silver_workspace")
    add(spark, 2)
    assert seed_snippet(spark) == [2]
    after = store.read("silver_workspace")
    assert before is not None
    assert after is not None
    assert (list(after.marks), after.sources, after.number) == (["delta"], before.sources, before.number + 1)
    assert after.extras == before.extras
    add(spark, 3)
    job.run(spark, store)
    assert sorted(row.id for row in rows_of(tmp_path / "silver")) == [1, 3]
    last = get_last_processed_timestamp(spark, "silver_workspace")
    assert isinstance(last, Processed)
    assert (last.version, seed_snippet(spark)) == (3, [])


def test_the_mark_of_a_job_is_not_moved_over_an_open_batch_nor_by_another_table(
    spark: SparkSession, bronze: str, tmp_path: Path
) -> None:
    """Sinks may have the batch; and the commits of two tables have nothing to do with each other."""
    store, job = stores.open(os.environ["FLOODMARK_STORE"]), job_on(bronze, tmp_path)
    add(spark, 1)
    job.run(spark, store)
    with pytest.raises(ConfigError, match="what was reached is of other"):
        commit_processing_state(spark, job.name, Processed.at(datetime.now(timezone.utc), "other", 9, "x (table id 7)"))
    sink = ListSink()
    other = fm.Job("other", job.source, [sink])
    other.run(spark, store)
    sink.fail_times = 1
    add(spark, 2)
    with pytest.raises(FloodmarkError):
        other.run(spark, store)
    known = store.read("other")
    with pytest.raises(ConfigError, match="is not finished"):
        commit_processing_state(spark, "other", datetime.now(timezone.utc))
    assert store.read("other") == known

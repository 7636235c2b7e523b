"""What Spark used for a batch, from its status store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from floodmark.spark.usage import TAG, Meter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def figures_of_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run waits a moment for them and no longer; a test until they are there."""
    monkeypatch.setattr("floodmark.spark.usage.SETTLING_MILLISECONDS", 30_000)


def test_what_the_jobs_of_a_batch_used_is_told_without_a_job_of_its_own(spark: SparkSession) -> None:
    """CPU and shuffle of a query that groups; no further job is started to learn it."""
    meter = Meter.begin(spark, "one")
    assert meter is not None
    spark.range(100_000).selectExpr("id % 10 as key").groupBy("key").count().collect()
    tracker = spark.sparkContext.statusTracker()
    before = len(tracker.getJobIdsForGroup())
    used = meter.end()
    assert used["cpu_seconds"] > 0
    assert used["shuffle_bytes"] > 0
    assert (used["spill_bytes"], len(tracker.getJobIdsForGroup())) == (0, before)


def test_jobs_of_others_are_not_counted(spark: SparkSession) -> None:
    """Neither those before the batch nor those after it."""
    spark.range(1000).count()
    meter = Meter.begin(spark, "two")
    assert meter is not None
    assert meter.end() == {}


def test_the_tag_of_a_batch_that_failed_is_taken_away_by_the_next(spark: SparkSession) -> None:
    """Else a loop would carry the tags of all its failures."""
    Meter.begin(spark, "failed")
    meter = Meter.begin(spark, "next")
    assert meter is not None
    assert [tag for tag in spark.sparkContext.getJobTags() if tag.startswith(TAG)] == [meter.tag]
    meter.end()
    assert not [tag for tag in spark.sparkContext.getJobTags() if tag.startswith(TAG)]

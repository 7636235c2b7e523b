"""What Spark used for a batch, from its status store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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


def test_stages_that_spark_skipped_and_forgot_used_nothing(spark: SparkSession) -> None:
    """A session that has had a thousand stages forgets skipped ones at once; the others are told all the same."""
    rows = spark.range(1000).selectExpr("id % 10 as key").groupBy("key").count().repartition(2).persist()
    rows.collect()
    meter = Meter.begin(spark, "three")
    assert meter is not None
    rows.groupBy("key").count().collect()
    forgotten = forget_skipped_stages(spark, meter.tag)
    used = meter.end()
    rows.unpersist()
    assert forgotten > 0
    assert used["cpu_seconds"] > 0


def forget_skipped_stages(spark: SparkSession, tag: str) -> int:
    """As Spark's own status store does beyond its limit; how many it lacks then, its own included."""
    gateway: Any = spark.sparkContext._gateway
    scala: Any = spark.sparkContext._jsc.sc()
    scala.listenerBus().waitUntilEmpty(30_000)
    store, kind = scala.statusStore(), gateway.jvm.java.lang.Class.forName("org.apache.spark.status.StageDataWrapper")
    jobs = [store.job(job).stageIds() for job in scala.statusTracker().getJobIdsForTag(tag)]
    stages = [stage_of(store, ids.apply(place)) for ids in jobs for place in range(ids.size())]
    skipped = [stage for stage in stages if stage is not None and stage.status().toString() == "SKIPPED"]
    for stage in skipped:
        key = gateway.new_array(gateway.jvm.int, 2)
        key[0], key[1] = stage.stageId(), stage.attemptId()
        store.store().delete(kind, key)
    return len(skipped) + stages.count(None)


def stage_of(store: Any, stage: int) -> Any:  # noqa: ANN401 - objects of the JVM
    """The last attempt of a stage; None if the store has forgotten it."""
    try:
        return store.lastStageAttempt(stage)
    except Exception:  # noqa: BLE001 - py4j's own, which is no dependency of ours
        return None

"""How far Spark is with what it does now, from its status store; not known under Spark Connect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.spark.gateway import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class WorkInSpark:
    """All stages that run now, together."""

    tasks: int = 0
    tasks_done: int = 0
    rows: int = 0


def work_in_spark(spark: SparkSession) -> WorkInSpark | None:
    """What its stages have done so far; rows are those read, or written where a stage reads from no source."""
    if is_connect(spark):
        return None
    stages = spark.sparkContext._jsc.sc().statusStore().activeStages()
    listed = [stages.apply(place) for place in range(stages.size())]
    return WorkInSpark(
        tasks=sum(stage.numTasks() for stage in listed),
        tasks_done=sum(stage.numCompleteTasks() for stage in listed),
        rows=sum(_rows(stage.inputRecords(), stage.shuffleReadRecords(), stage.outputRecords()) for stage in listed),
    )


def _rows(read: int, shuffled: int, written: int) -> int:
    return read or shuffled or written

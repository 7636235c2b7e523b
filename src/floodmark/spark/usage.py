"""What Spark used for a batch, asked from its own status store: no job is started for it, and nothing is sampled.

Jobs of a batch are known by a tag of this thread. Under Spark Connect, and wherever the driver is elsewhere, nobody
can tell: then nothing is told, and never a 0.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from floodmark.logs import get_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = get_logger(__name__)
NANOSECONDS = 1e9
TAG = "floodmark-batch-"
LAST = threading.local()
"""The meter of this thread that has begun and not ended."""
SETTLING_MILLISECONDS = 1_000
"""Spark notes the end of a stage a moment after it has told us of it; a run waits no longer than this for a figure."""


@dataclass(frozen=True)
class Meter:
    """Tags the Spark jobs of this thread from `begin` to `end`, and adds up what they used.

    A batch that failed never came to its end: the tag that it left is taken away when the next one begins.
    """

    context: Any
    tag: str

    @classmethod
    def begin(cls, spark: SparkSession, batch: str) -> Meter | None:
        """None where the status store is not in reach."""
        try:
            context, tag = spark.sparkContext, f"{TAG}{batch}"
            left: Meter | None = getattr(LAST, "meter", None)  # to ask Spark for its tags takes many calls
            if left is not None and left.context is context:
                context.removeJobTag(left.tag)
            context.addJobTag(tag)
        except Exception:  # noqa: BLE001 - Connect has no context and says so in its own words
            return None
        LAST.meter = meter = cls(context, tag)
        return meter

    def end(self) -> dict[str, float]:
        """CPU seconds of all tasks, bytes shuffled and spilled, the highest execution memory of a stage's tasks.

        Later jobs of this thread are not of the batch.
        """
        LAST.meter = None
        try:
            self.context.removeJobTag(self.tag)
            return self._read()
        except Exception as error:  # noqa: BLE001 - a figure is not worth a batch
            log.debug("what Spark used is not known", error=str(error))
            return {}

    def _read(self) -> dict[str, float]:
        scala = self.context._jsc.sc()
        scala.listenerBus().waitUntilEmpty(SETTLING_MILLISECONDS)
        store = scala.statusStore()
        jobs = [store.job(job) for job in scala.statusTracker().getJobIdsForTag(self.tag)]
        ids = {stage for job in jobs for stage in _items(job.stageIds())}
        stages = [each for each in (_stage(store, stage) for stage in ids) if each is not None]
        if not stages or len(ids) - len(stages) > sum(job.numSkippedStages() for job in jobs):
            return {}
        return {
            "cpu_seconds": round(sum(stage.executorCpuTime() for stage in stages) / NANOSECONDS, 3),
            "peak_memory_bytes": max(stage.peakExecutionMemory() for stage in stages),
            "shuffle_bytes": sum(stage.shuffleReadBytes() + stage.shuffleWriteBytes() for stage in stages),
            "spill_bytes": sum(stage.memoryBytesSpilled() + stage.diskBytesSpilled() for stage in stages),
        }


def _stage(store: Any, stage: int) -> Any:  # noqa: ANN401 - objects of the JVM
    """The last attempt of a stage; None if it is not there: Spark forgets skipped ones first, which used nothing."""
    try:
        return store.lastStageAttempt(stage)
    except Exception:  # noqa: BLE001 - whatever the JVM says, nobody can tell what the stage used
        return None


class ScalaSequence(Protocol):
    """A sequence of the JVM, as Python sees it."""

    def apply(self, place: int) -> int: ...
    def size(self) -> int: ...


def _items(sequence: ScalaSequence) -> list[int]:
    return [sequence.apply(place) for place in range(sequence.size())]

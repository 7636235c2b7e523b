"""Counting the rows of a batch in the pass that writes them, without a second one."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodmark.sources.contract import Reading
from floodmark.step.spool import Counted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

PATIENCE_SECONDS = 5.0


@dataclass(frozen=True)
class Count:
    """Rows of one source, observed directly above its scan, where no shuffle can have them counted twice."""

    rows: DataFrame
    observation: Observation
    reading: Reading

    def result(self, *, was_executed: bool) -> Counted:
        """What the write saw; where nothing was written (all sinks had it already), the span is counted on its own."""
        seen = observed(self.observation) if was_executed else None
        return Counted(**seen) if seen else self._counted_again()

    def _counted_again(self) -> Counted:
        row = self.reading.rows.agg(*measures(self.reading)).collect()[0]
        return Counted(**row.asDict())


def observed(observation: Observation) -> dict[str, Any] | None:
    """`Observation.get` waits for ever if the plan was skipped: a thread asks it that may be left behind."""
    answers: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: answers.append(observation.get), daemon=True)
    asking.start()
    asking.join(PATIENCE_SECONDS)
    return answers[0] if answers and answers[0] else None


def count(reading: Reading, rows: DataFrame) -> Count:
    """Put the counter on the rows; it costs no job of its own."""
    from pyspark.sql import Observation

    observation = Observation()
    return Count(rows.observe(observation, *measures(reading)), observation, reading)


def measures(reading: Reading) -> tuple[Column, Column]:
    """How many rows there are, and how many of them could not be parsed."""
    from pyspark.sql import functions as F

    is_dead = reading.reason.isNotNull() if reading.reason is not None else F.lit(False)
    return F.count(F.lit(1)).alias("read"), F.count_if(is_dead).alias("dead")

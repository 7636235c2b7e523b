"""The rows of a fact for the dates that have to be built, from inputs at pinned versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.errors import TransformFailed
from floodmark.medallion.dates import DATE_SK
from floodmark.medallion.fact_inputs import pinned
from floodmark.medallion.fact_source import Pins, TouchedDates
from floodmark.sinks.delta_dates import naming
from floodmark.spark.delta_tables import quoted
from floodmark.step.transform import Transform

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Rebuilding:
    """The rows of the fact for the touched dates, from the inputs as they were at the batch's versions."""

    source: TouchedDates
    build: Transform

    def apply(self, frames: Mapping[str, DataFrame], *, job: str, attempt: str, batch_time: datetime) -> DataFrame:
        from pyspark.sql import functions as F

        [touched] = frames.values()
        spark, dates, pins = touched.sparkSession, sorted(row[0] for row in touched.collect()), Pins.of(touched)
        rows, own = pinned(self.source.rows, spark, pins.versions), F.col(quoted(self.source.rows.date))
        inputs = {each.name: pinned(each, spark, pins.versions) for each in self.source.lookups}
        inputs[self.source.rows.name] = rows.where(own.isNotNull() if pins.is_whole else own.isin(dates))
        built = self.build.apply(inputs, job=job, attempt=attempt, batch_time=batch_time)
        if DATE_SK not in built.columns:
            raise TransformFailed(job, reason=f"the fact's rows have no column {DATE_SK}")
        return naming(built, DATE_SK, None if pins.is_whole else dates)

    def fingerprint(self) -> str:
        return self.build.fingerprint()

    def is_deterministic(self) -> bool:
        return self.build.is_deterministic()

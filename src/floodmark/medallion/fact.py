"""A fact: a table by date that is built from others, and built again for exactly the dates that a change touches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError, TransformFailed
from floodmark.jobs.job import Job, as_transform
from floodmark.medallion.dates import DATE_SK
from floodmark.medallion.fact_inputs import FactRows, Lookup, pinned
from floodmark.medallion.fact_source import Pins, TouchedDates
from floodmark.sinks.delta_dates import DeltaDates, naming
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


def fact(
    name: str,
    *,
    rows: FactRows,
    build: str | Callable[..., DataFrame],
    lookups: Sequence[Lookup] = (),
    path: str | None = None,
    table: str | None = None,
    change_feed: bool = False,
    **options: Any,  # noqa: ANN401 - the other fields of a job
) -> Job:
    """The job that keeps a fact: `build` is SQL over the inputs' names, or a function that takes them by name.

    It is shown the rows of the dates that have to be built, and the lookups as a whole; it gives rows with `date_sk`
    that depend on input rows of the same date only. Without lookups, SQL calls the rows `source`. A fact with a
    `change_feed` can be the rows of another one.
    """
    source = TouchedDates(rows, tuple(lookups))
    if len({each.name for each in source.inputs}) != len(source.inputs):
        raise ConfigError(f"fact '{name}' has two inputs of one name.", hint="give each input a name of its own")
    sink = DeltaDates(path, table, name=name, change_feed=change_feed)
    transform = Rebuilding(source, as_transform(build))
    return Job(name=name, source=source, sinks=[sink], transform=transform, **options)

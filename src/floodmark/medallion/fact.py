"""A fact: a table by date that is built from others, and built again for exactly the dates that a change touches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from floodmark.jobs.job import Job
from floodmark.medallion.fact_inputs import FactRows, Lookup
from floodmark.medallion.fact_source import TouchedDates
from floodmark.sinks.delta_dates import DeltaDates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
    sink = DeltaDates(path, table, name=name, change_feed=change_feed)
    return Job(name=name, source=source, sinks=[sink], transform=build, **options)

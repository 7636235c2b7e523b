"""Sources of a job that have nothing new in a batch: the transform names them all, so it gets them without rows."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.sources.contract import Source, Telling
from floodmark.step.transform import Function, Sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.step.work import Work


def without_rows(work: Work, present: Collection[str], spark: SparkSession) -> dict[str, DataFrame]:
    """An empty frame for each source that the batch reads nothing from, where the transform takes sources by name."""
    if not isinstance(work.transform, (Function, Sql)):
        return {}
    return {each.name: emptied(each, work.name, spark) for each in work.sources if each.name not in present}


def emptied(source: Source, job: str, spark: SparkSession) -> DataFrame:
    """The columns of a source. Raises ConfigError for a source that cannot tell them without rows."""
    if not isinstance(source, Telling):
        raise ConfigError(
            f"source '{source.name}' of job '{job}' has nothing new, and cannot tell its columns without rows.",
            hint="give the source a method without_rows(spark), which returns a Reading",
        )
    reading = source.without_rows(spark)
    return reading.rows.limit(0).drop(*reading.hidden)

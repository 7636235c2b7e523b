"""Where a Delta table lies, and what its parts are called in SQL."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.locations import absolute, quote, quote_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession


class DeltaPlace:
    """A table given by path or by name; a name is looked up in Spark's catalog when somebody asks, and remembered.

    It may be dropped and made anew elsewhere at any time: whoever begins a batch asks again.
    """

    def __init__(self, path: str | None, table: str | None) -> None:
        if (path is None) == (table is None):
            raise ConfigError(
                "a Delta table needs a path or a table name, and not both.", hint="give `path:` or `table:`"
            )
        self.table = table
        self._location = absolute(path) if path is not None else None
        self._asked_at = 0.0

    def __str__(self) -> str:
        return self.table or str(self._location)

    def location(self, session: Callable[[], SparkSession]) -> str | None:
        """The folder or URL, or None if the catalog has no table of that name yet."""
        if self._location is None and self.table is not None:
            spark, self._asked_at = session(), time.monotonic()
            if spark.catalog.tableExists(self.table):
                self._location = str(spark.sql(f"DESCRIBE DETAIL {quote_table(self.table)}").collect()[0]["location"])
        return self._location

    def location_now(self, session: Callable[[], SparkSession], *, after_seconds: float = 0.0) -> str | None:
        """As `location`, but a name is looked up again if that was done longer ago than this."""
        if self.table is not None and time.monotonic() - self._asked_at >= after_seconds:
            self._location = None
        return self.location(session)

    @property
    def known_location(self) -> str | None:
        """As `location`, as far as it is known already."""
        return self._location

    @property
    def sql(self) -> str:
        """How a statement names it."""
        return quote_table(self.table) if self.table else f"delta.{quote(str(self._location))}"


def create_table(
    empty: DataFrame,
    place: DeltaPlace,
    partition_by: Sequence[str],
    cluster_by: Sequence[str],
    properties: Mapping[str, str],
) -> None:
    """Make an empty table where there is none. CREATE TABLE takes any folder that is not empty for a table."""
    spark = empty.sparkSession
    writer = empty.write.format("delta").partitionBy(*partition_by).options(**properties)
    if place.table:
        writer.mode("ignore").saveAsTable(place.table)
    else:
        writer.mode("append").save(place.location(lambda: spark))
    cluster_table(spark, place, cluster_by)


def cluster_table(spark: SparkSession, place: DeltaPlace, cluster_by: Sequence[str]) -> None:
    """Set the clustering columns, which the writer of a path leaves out without a word."""
    if cluster_by:
        spark.sql(f"ALTER TABLE {place.sql} CLUSTER BY ({', '.join(map(quote, cluster_by))})")

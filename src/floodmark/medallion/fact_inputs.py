"""The tables that a fact is made of: the rows themselves, and what is looked up for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from floodmark.errors import ConfigError, SourceUnreadable
from floodmark.medallion.dates import DATE_SK
from floodmark.spark.delta_tables import DeltaPlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.sources.contract import Session

Versions: TypeAlias = Mapping[str, int]


@dataclass(frozen=True)
class FactRows:
    """The rows that are counted or summed; the column `date` says to which date of the fact a row belongs."""

    name: str
    path: str | None = None
    table: str | None = None
    date: str = DATE_SK


@dataclass(frozen=True)
class Lookup:
    """A table that rows are joined to: `on` pairs the rows' columns with its own.

    With `at`, the rows' moment, it has versions (`valid_from`, `valid_to`), of which one is valid at a time. When a
    row of it changes, `restate` builds the dates again that saw it; `freeze` leaves them as they were. `columns` are
    those that matter; by default all but the interval.
    """

    name: str
    path: str | None = None
    table: str | None = None
    on: Mapping[str, str] = field(default_factory=dict)
    at: str | None = None
    when_moved: Literal["restate", "freeze"] = "restate"
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.on:
            raise ConfigError(f"lookup '{self.name}' has no columns to join on.", hint="on: {sku: sku_name}")
        if self.when_moved not in ("restate", "freeze"):
            raise ConfigError(f"when_moved: {self.when_moved!r} is not known.", hint="one of: restate, freeze")


Input: TypeAlias = FactRows | Lookup


def place_of(table: Input) -> DeltaPlace:
    """Where the table lies."""
    return DeltaPlace(table.path, table.table)


def location_of(table: Input, session: Session) -> str:
    """Its folder. Raises SourceUnreadable if the catalog does not know it."""
    place = place_of(table)
    location = place.location(session)
    if location is None:
        raise SourceUnreadable(f"delta table {place}", reason="the catalog has no table of that name")
    return location


def pinned(table: Input, spark: SparkSession, versions: Versions) -> DataFrame:
    """The table as it was at its version of the batch."""
    reader = spark.read.format("delta").option("versionAsOf", str(versions[table.name]))
    return reader.load(location_of(table, lambda: spark))

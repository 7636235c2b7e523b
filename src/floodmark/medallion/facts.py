"""The inputs of a fact as one source: all of them between pinned versions, and the dates that the changes touch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError, SourceUnreadable
from floodmark.hwm import HWM, Json, Span, TableVersionsHWM, VersionHWM
from floodmark.medallion.dates import DATE_SK
from floodmark.medallion.fact_inputs import FactRows, Input, Lookup, Versions, location_of, pinned, place_of
from floodmark.medallion.readers import known_as
from floodmark.medallion.touched import dates_in, dates_of_partners, dates_of_rows
from floodmark.probes.delta import DeltaProbe
from floodmark.sources.contract import Immutable, Reading, Request, Session, Sight
from floodmark.sources.delta_span import Planner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.step.transform import Transform

PINS = "floodmark.pins"
"""Under this name the column of the dates carries what else is known of the batch, in its metadata."""


@dataclass(frozen=True)
class Pins:
    """The version of every input, and whether all dates are built: then nothing of what was built can be relied on."""

    versions: Versions
    is_whole: bool

    @classmethod
    def of(cls, touched: DataFrame) -> Pins:
        told: dict[str, Any] = touched.schema[DATE_SK].metadata[PINS]
        return cls({name: int(version) for name, version in told["versions"].items()}, bool(told["is_whole"]))

    def on(self, dates: DataFrame) -> DataFrame:
        """The dates, with this beside them."""
        told = {"versions": dict(self.versions), "is_whole": self.is_whole}
        return dates.withMetadata(DATE_SK, {PINS: told})


@dataclass(frozen=True)
class TouchedDates(Immutable):
    """Dates that have to be built again: one row each. The mark is the version of every input."""

    rows: FactRows
    lookups: tuple[Lookup, ...] = ()
    name: str = "inputs"
    _probes: dict[str, DeltaProbe] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        twice = [name for name, times in Counter(each.name for each in self.inputs).items() if times > 1]
        if twice:
            raise ConfigError(f"a fact has two inputs of one name: '{twice[0]}'.", hint="give each a name of its own")

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (self.rows, *self.lookups)

    def fingerprint(self, session: Session) -> str:
        return f"delta tables {', '.join(self._told(each, session) for each in self.inputs)}"

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        if request.start is not None:
            raise ConfigError("a fact has no place to begin from.", hint="--full-refresh builds all dates again")
        known: Mapping[str, int] = mark.value if mark is not None and not request.whole else {}
        sights = {each.name: self._sight(each, known.get(each.name), session) for each in self.inputs}
        upto = {name: sight.span.upto.value for name, sight in sights.items() if sight.span}
        if not upto:
            return Sight(None)
        latest = {each.name: self._looked(each, session).latest() for each in self.inputs}
        at: dict[str, Json] = {name: upto.get(name, known.get(name, latest[name])) for name in latest}
        changed: dict[str, Json] = {name: dict(s.span.detail) for name, s in sights.items() if s.span}
        after = TableVersionsHWM(self.name, known) if known else None
        return Sight(Span(after, TableVersionsHWM(self.name, upto), {"at": at, "changed": changed}))

    def read(self, spark: SparkSession, span: Span) -> Reading:
        versions: Versions = span.detail["at"]  # type: ignore[assignment]
        changed: Mapping[str, Any] = span.detail["changed"]  # type: ignore[assignment]
        is_whole = any("snapshot" in how for how in changed.values())
        rows = pinned(self.rows, spark, versions)
        dates = dates_in(rows, self.rows) if is_whole else self._touched(spark, changed, rows)
        return Reading(Pins(versions, is_whole).on(dates.distinct().where(f"{DATE_SK} IS NOT NULL")))

    def building(self, transform: Transform) -> Transform:
        """The dates are not the fact's rows: those are built by the transform from the inputs."""
        from floodmark.medallion.rebuilding import Rebuilding

        return Rebuilding(self, transform)

    def _touched(self, spark: SparkSession, changed: Mapping[str, Any], rows: DataFrame) -> DataFrame:
        """The dates that changed rows had or have, and those of rows whose partner moved."""
        found = [dates_of_rows(self._feed(self.rows, spark, changed), self.rows)] if self.rows.name in changed else []
        moved = [each for each in self.lookups if each.name in changed and each.when_moved == "restate"]
        found += [dates_of_partners(self._feed(one, spark, changed), one, self.rows, rows) for one in moved]
        return reduce(lambda one, other: one.unionByName(other), found or [dates_in(rows.limit(0), self.rows)])

    def _feed(self, table: Input, spark: SparkSession, changed: Mapping[str, Any]) -> DataFrame:
        first, last = changed[table.name]["first"], changed[table.name]["last"]
        feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", str(first))
        return feed.option("endingVersion", str(last)).load(location_of(table, lambda: spark))

    def _sight(self, table: Input, version: int | None, session: Session) -> Sight:
        place = place_of(table)
        planner = Planner(self._looked(table, session), str(place), place.sql, "feed")
        mark = lambda number: VersionHWM(table.name, number)  # noqa: E731 - what a planner makes marks with
        return planner.snapshot(mark) if version is None else planner.feed_after(version, mark)

    def _told(self, table: Input, session: Session) -> str:
        return f"{known_as(table.name, self._looked(table, session).table_id())} at {place_of(table)}"

    def _looked(self, table: Input, session: Session) -> DeltaProbe:
        location = location_of(table, session)
        probe = self._probes.setdefault(location, DeltaProbe(location))
        if not probe.refresh():
            raise SourceUnreadable(f"delta table {place_of(table)}", reason="there is no such table")
        return probe


def touched_dates(rows: Mapping[str, Any], lookups: Sequence[Mapping[str, Any]]) -> TouchedDates:
    """The source from plain values, as the project file has them."""
    return TouchedDates(FactRows(**rows), tuple(Lookup(**each) for each in lookups))

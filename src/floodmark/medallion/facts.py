"""Facts: tables by date, built again for exactly the dates that a change of their inputs touches.

A fact is a job of three parts: `TouchedDates` is its source and gives the dates that have to be built, `FactTransform`
builds the rows of those dates from the inputs as they were at the batch's versions, and the sink `DeltaDates` puts
them in place of the old ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from floodmark.errors import ConfigError, DeltaTableMissing, SourceUnreadable, TransformFailed
from floodmark.hwm import HWM, Json, Span, TableVersionsHWM, VersionHWM
from floodmark.jobs.job import Job
from floodmark.jobs.table_readers import fingerprint_of_input
from floodmark.locations import quote
from floodmark.medallion.dates import DATE_SK
from floodmark.medallion.dimensions import SUCCESSOR, current_members, has_superseded
from floodmark.probes.delta import DeltaProbe
from floodmark.sinks.delta import DeltaDates, with_dates
from floodmark.sinks.scd.events import INTERVAL, VALID_FROM, VALID_TO, state_of
from floodmark.sources.contract import Immutable, Reading, Request, Session, Sight
from floodmark.sources.delta import VersionPlanner
from floodmark.spark.table_files import CHANGE, TIME, VERSION, read_changes, read_table
from floodmark.spark.tables import DeltaPlace
from floodmark.step.transform import Transform, over_sources

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column, DataFrame, SparkSession


SIGN, PAYLOAD = "_fm_sign", "_fm_payload"


@dataclass(frozen=True)
class FactRows:
    """The rows that are counted or summed; the column `date` says to which date of the fact a row belongs.

    >>> FactRows("usage", path="silver/usage", date="day_sk").date
    'day_sk'
    """

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

    >>> Lookup("prices", path="silver/prices", on={"sku": "sku"}, at="ordered_at").when_moved
    'restate'
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
"""A table that a fact is made of: the rows themselves, or what is looked up for them."""


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

    >>> fact(
    ...     "cost",
    ...     rows=FactRows("usage", path="/lake/usage"),
    ...     lookups=[Lookup("prices", path="/lake/prices", on={"sku": "sku"}, at="used_at")],
    ...     build="SELECT u.date_sk, u.hours * p.price AS cost FROM usage u JOIN prices p USING (sku)",
    ...     path="/lake/cost",
    ... )
    Job(cost: TouchedDates inputs → delta table /lake/cost)
    """
    source = TouchedDates(rows, tuple(lookups))
    sink = DeltaDates(path, table, name=name, change_feed=change_feed)
    return Job(name=name, source=source, sinks=[sink], transform=build, **options)


@dataclass(frozen=True)
class Pins:
    """The version of every input, and whether all dates are built: then nothing of what was built can be relied on."""

    versions: Mapping[str, int]
    is_whole: bool

    @classmethod
    def of(cls, span: Span) -> Pins:
        versions: Mapping[str, int] = span.detail["at"]  # type: ignore[assignment]
        changed: Mapping[str, Any] = span.detail["changed"]  # type: ignore[assignment]
        return cls(versions, any("snapshot" in how for how in changed.values()))

    def read(self, table: Input, spark: SparkSession) -> DataFrame:
        """The table as it was at its version of the batch; of a dimension, its current members."""
        return current_members(read_table(spark, location_of(table, lambda: spark), self.versions[table.name]))


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
        tables = [
            f"{fingerprint_of_input(each.name, self._probe(each, session).table_id())} at {place_of(each)}"
            for each in self.inputs
        ]
        return f"delta tables {', '.join(tables)}"

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        if request.start is not None:
            raise ConfigError("a fact has no place to begin from.", hint="--full-refresh builds all dates again")
        known: Mapping[str, int] = mark.value if mark is not None and not request.whole else {}
        sights = {each.name: self._sight(each, known.get(each.name), session) for each in self.inputs}
        upto = {name: sight.span.upto.value for name, sight in sights.items() if sight.span}
        if not upto:
            return Sight(None)
        latest = {each.name: self._probe(each, session).latest() for each in self.inputs}
        at: dict[str, Json] = {name: upto.get(name, known.get(name, latest[name])) for name in latest}
        changed: dict[str, Json] = {name: dict(s.span.detail) for name, s in sights.items() if s.span}
        after = TableVersionsHWM(self.name, known) if known else None
        return Sight(Span(after, TableVersionsHWM(self.name, upto), {"at": at, "changed": changed}))

    def read(self, spark: SparkSession, span: Span) -> Reading:
        pins = Pins.of(span)
        rows = pins.read(self.rows, spark)
        dates = rows.select(_date(self.rows)) if pins.is_whole else self._touched_dates(spark, span, rows)
        return Reading(dates.distinct().where(f"{DATE_SK} IS NOT NULL"))

    def transform_for(self, transform: Transform) -> Transform:
        """The dates are not the fact's rows: those are built by the transform from the inputs."""
        return FactTransform(self, transform)

    def _touched_dates(self, spark: SparkSession, span: Span, rows: DataFrame) -> DataFrame:
        """The dates that changed rows had or have, and those of rows whose partner moved."""
        changed: Mapping[str, Any] = span.detail["changed"]  # type: ignore[assignment]
        feeds = {
            each.name: _feed(each, spark, changed[each.name], self._probe(each, lambda: spark))
            for each in self.inputs
            if each.name in changed
        }
        moved = [each for each in self.lookups if each.name in feeds and each.when_moved == "restate"]
        dates = [dates_of_rows(feeds[self.rows.name], self.rows)] if self.rows.name in feeds else []
        dates += [dates_of_partners(feeds[each.name], each, self.rows, rows) for each in moved]
        return reduce(lambda one, other: one.unionByName(other), dates or [rows.limit(0).select(_date(self.rows))])

    def _sight(self, table: Input, version: int | None, session: Session) -> Sight:
        place = place_of(table)
        planner = VersionPlanner(self._probe(table, session), str(place), place.sql, "feed")
        mark = lambda number: VersionHWM(table.name, number)  # noqa: E731 - what a planner makes marks with
        return planner.snapshot(mark) if version is None else planner.feed_after(version, mark)

    def log_places(self) -> tuple[str, ...]:
        """Where the logs of its inputs are, of those that are not known to the catalog alone."""
        known = (place_of(each).known_location for each in self.inputs)
        return tuple(place for place in known if place is not None)

    def ask_through(self, probes: Mapping[str, DeltaProbe]) -> None:
        """For somebody who looks at the same tables for other reasons, too."""
        self._probes.update(probes)

    def _probe(self, table: Input, session: Session) -> DeltaProbe:
        location = location_of(table, session)
        probe = self._probes.setdefault(location, DeltaProbe(location))
        if not probe.refresh():
            raise DeltaTableMissing(place_of(table))
        return probe


@dataclass(frozen=True)
class FactTransform:
    """The rows of the fact for the touched dates, from the inputs as they were at the batch's versions."""

    source: TouchedDates
    build: Transform
    pins: Pins | None = None

    def for_spans(self, spans: Mapping[str, Span]) -> FactTransform:
        return replace(self, pins=Pins.of(spans[self.source.name]))

    def apply(self, frames: Mapping[str, DataFrame], *, job: str, attempt: str, batch_time: datetime) -> DataFrame:
        """The dates are collected: as literals they keep Spark from reading the files of all others."""
        from pyspark.sql import functions as F

        if self.pins is None:
            raise TransformFailed(job, reason="a fact is built for the span of a batch, and was given none")
        [touched] = frames.values()
        spark, pins, dates = touched.sparkSession, self.pins, sorted(row[0] for row in touched.collect())
        rows, own = pins.read(self.source.rows, spark), F.col(quote(self.source.rows.date))
        inputs = {each.name: pins.read(each, spark) for each in self.source.lookups}
        inputs[self.source.rows.name] = rows.where(own.isNotNull() if pins.is_whole else own.isin(dates))
        built = self.build.apply(inputs, job=job, attempt=attempt, batch_time=batch_time)
        if DATE_SK not in built.columns:
            raise TransformFailed(job, reason=f"the fact's rows have no column {DATE_SK}")
        return with_dates(built, DATE_SK, None if pins.is_whole else dates)

    def fingerprint(self) -> str:
        return self.build.fingerprint()

    def is_deterministic(self) -> bool:
        return over_sources(self.build, [each.name for each in self.source.inputs]).is_deterministic()


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


def dates_of_rows(feed: DataFrame, rows: FactRows) -> DataFrame:
    """Dates of the old and of the new image of every row that changed: a row that moved touches two."""
    from pyspark.sql import functions as F

    # Of the rows only the date is asked for, so nothing has to be sorted: a sum by hash is enough.
    netted = signed_changes(feed, _date(rows)).groupBy(DATE_SK, "s").agg(F.sum("n").alias(SIGN))
    return netted.where(f"{SIGN} <> 0").select(DATE_SK)


def dates_of_partners(feed: DataFrame, lookup: Lookup, rows: FactRows, whole: DataFrame) -> DataFrame:
    """Dates of rows whose partner says something else now; a version that only ended earlier than before says the same
    to rows inside of it."""
    from pyspark.sql import functions as F

    moved = net_changes(feed)
    payload = list(lookup.columns) or [name for name in moved.columns if name not in (*INTERVAL, SIGN)]
    own = [*lookup.on, *((lookup.at,) if lookup.at else ())]
    pairs = whole.select(_date(rows), *map(quote, own)).distinct()
    old = _partner(moved.where(f"{SIGN} < 0"), lookup, payload, "old")
    new = _partner(moved.where(f"{SIGN} > 0"), lookup, payload, "new")
    both = pairs.join(old, _matches(lookup, "old"), "left").join(new, _matches(lookup, "new"), "left")
    differs = ~F.col(f"{PAYLOAD}_old").eqNullSafe(F.col(f"{PAYLOAD}_new"))
    return both.where(differs).select(DATE_SK)


def net_changes(feed: DataFrame) -> DataFrame:
    """Rows that the span took away (SIGN below 0) or put there; what was taken and put back as it was is neither."""
    from pyspark.sql import functions as F

    changes = signed_changes(feed, F.struct(*map(quote, _columns(feed))).alias("_fm_row"))
    # Some row of those that are equal stands for all of them.
    netted = changes.groupBy("s").agg(F.sum("n").alias(SIGN), F.max_by("_fm_row", "n").alias("_fm_row"))
    return netted.where(f"{SIGN} <> 0").select("_fm_row.*", SIGN)


def signed_changes(feed: DataFrame, *own: Column) -> DataFrame:
    """Each change of a feed as its state, -1 or 1 for taken away or put there, and columns of one's own."""
    from pyspark.sql import functions as F

    sign = F.when(F.col(CHANGE).isin("delete", "update_preimage"), -1).otherwise(1)
    return feed.select(*own, state_of(feed.schema, _columns(feed)).alias("s"), sign.alias("n"))


def _feed(table: Input, spark: SparkSession, versions: Mapping[str, Any], probe: DeltaProbe) -> DataFrame:
    location = location_of(table, lambda: spark)
    changes = read_changes(spark, location, probe, versions["first"], versions["last"])
    # A member that is superseded is gone to those who look it up: only its image before that is left here.
    keeps_superseded = SUCCESSOR in changes.columns and has_superseded(read_table(spark, location))
    return changes.where(f"{SUCCESSOR} IS NULL") if keeps_superseded else changes


def _columns(feed: DataFrame) -> list[str]:
    return [name for name in feed.columns if name not in (CHANGE, VERSION, TIME)]


def _date(rows: FactRows) -> Column:
    from pyspark.sql import functions as F

    return F.col(quote(rows.date)).cast("int").alias(DATE_SK)


def _partner(moved: DataFrame, lookup: Lookup, payload: Sequence[str], image: str) -> DataFrame:
    from pyspark.sql import functions as F

    keys = [F.col(quote(theirs)).alias(f"_fm_{image}_{place}") for place, theirs in enumerate(lookup.on.values())]
    ends = [F.col(end).alias(f"_fm_{image}_{end}") for end in (VALID_FROM, VALID_TO)] if lookup.at else []
    return moved.select(*keys, *ends, state_of(moved.schema, payload).alias(f"{PAYLOAD}_{image}"))


def _matches(lookup: Lookup, image: str) -> Column:
    from pyspark.sql import functions as F

    same = [F.col(quote(ours)) == F.col(f"_fm_{image}_{place}") for place, ours in enumerate(lookup.on)]
    if lookup.at is None:
        return reduce(and_, same)
    moment, begin, end = F.col(quote(lookup.at)), F.col(f"_fm_{image}_{VALID_FROM}"), F.col(f"_fm_{image}_{VALID_TO}")
    return reduce(and_, same) & (moment >= begin) & (end.isNull() | (moment < end))

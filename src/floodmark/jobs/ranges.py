"""A range of a source at or below its mark, piece by piece: from a value that is in it to one that is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Protocol

from floodmark.errors import ConfigError, MarkInvalid, RangeAboveMark
from floodmark.hwm import HWM, Json, Span
from floodmark.jobs.quarantine import literal
from floodmark.sources import Jdbc, Kafka, Postgres, Sqlite
from floodmark.sources.contract import Request, Session, Sight, Source
from floodmark.sources.kafka_mark import mark_of, offsets_in
from floodmark.sources.kafka_span import as_json, from_json, split
from floodmark.sources.table_cursor import Cursor
from floodmark.spark.delta_tables import quoted
from floodmark.stores.record import JobRecord

TABLES = (Postgres, Jdbc, Sqlite)
LARGEST_LONG = 2**63 - 1


@dataclass(frozen=True)
class Bounds:
    """A half-open range as somebody asked for it; None is the beginning, or the mark."""

    start: str | None = None
    stop: str | None = None

    def __str__(self) -> str:
        return f"from {self.start or 'the beginning'} to {self.stop or 'the mark'}"


class Range(Protocol):
    """Rows of one source between two values, in pieces."""

    @property
    def condition(self) -> str | None:
        """What a row of a piece has to keep as well, as SQL: the last piece ends with a value that is not in it."""

    @property
    def is_cut(self) -> bool:
        """Whether the range was asked to go beyond the mark, and ends with it."""

    def piece(self, after: HWM[Any] | None, max_rows: int | None, remembered: Mapping[str, Json]) -> Sight:
        """The next piece behind a mark, or the first one; its span is None if there is none left."""


def range_of(source: Source, mark: HWM[Any], bounds: Bounds, session: Session) -> Range:
    """The range in the words of the source. Raises ConfigError where it is empty, above the mark, or has no order."""
    if isinstance(source, TABLES):
        return table_range(source, mark, bounds, session)
    if isinstance(source, Kafka):
        return OffsetRange(source, mark, bounds, session)
    raise ConfigError(
        f"source '{source.name}' has no range of values that could be read again.",
        hint="that works for tables (postgres, jdbc, sqlite) and for Kafka; others: floodmark run --full-refresh",
    )


def mark_in(record: JobRecord, source: Source) -> HWM[Any]:
    """The mark that a range is held against. Raises ConfigError if there is none."""
    mark = record.marks.get(source.name)
    if mark is None:
        raise ConfigError(f"job '{record.job}' has no mark, so nothing was delivered yet.", hint="floodmark run")
    return mark


def table_range(source: Postgres | Jdbc | Sqlite, mark: HWM[Any], bounds: Bounds, session: Session) -> TableRange:
    """The range of a table, by its cursor."""
    low = None if bounds.start is None else placed(mark, bounds.start, "--from")
    high = None if bounds.stop is None else placed(mark, bounds.stop, "--to")
    if low is not None and not mark.reaches(low.value):
        raise RangeAboveMark(source.name, start=str(low.show()), mark=str(mark.show()))
    if low is not None and high is not None and low.reaches(high.value):
        raise empty_range(bounds)
    ends_below = high is not None and mark.reaches(high.value)
    cursor = Cursor.of(source.cursor)
    # Everything at or below the mark was judged final when the mark passed it.
    trusting = replace(source, cursor=replace(cursor, safety="none"))
    condition = below(columns_of(cursor), high) if high is not None and ends_below else None
    end = high if high is not None and ends_below else mark
    return TableRange(trusting, low, end, condition, session, is_cut=high is not None and not ends_below)


@dataclass(frozen=True)
class TableRange:
    """Rows of a table up to and with `end`, without those at it where `condition` says so."""

    source: Postgres | Jdbc | Sqlite
    low: HWM[Any] | None
    end: HWM[Any]
    condition: str | None
    session: Session = field(repr=False)
    is_cut: bool = False

    def piece(self, after: HWM[Any] | None, max_rows: int | None, remembered: Mapping[str, Json]) -> Sight:
        first = None if after is not None or self.low is None else str(self.low.dump())
        request = Request(first, max_rows, whole=after is None and first is None, extras=remembered)
        sight = self.source.look(after, request, self.session)
        if sight.span is None or self._begins_beyond(sight.span):
            return replace(sight, span=None)
        if self.end.reaches(sight.span.upto.value):
            return sight
        return replace(sight, span=replace(sight.span, upto=self.end), expected_rows=None)

    def _begins_beyond(self, span: Span) -> bool:
        """As far as the look tells; if it does not, the piece is read and has no rows."""
        lowest = span.detail.get("lowest")
        if lowest is None:
            return False
        found = self.end.set_value(lowest)
        return not self.end.reaches(found.value) or (self.condition is not None and found.reaches(self.end.value))


@dataclass(frozen=True)
class OffsetRange:
    """Messages by offset. Partitions that `stop` does not name are left out; each ends at the mark at the latest."""

    source: Kafka
    mark: HWM[Any]
    bounds: Bounds
    session: Session = field(repr=False)
    condition: str | None = None

    def __post_init__(self) -> None:
        start, stop, mark = self._asked(self.bounds.start), self._asked(self.bounds.stop), self._offsets(self.mark)
        above = {place for place, at in start.items() if at > mark.get(place, 0)}
        if above:
            raise RangeAboveMark(self.source.name, start=str(self.bounds.start), mark=str(self.mark.show()))
        if start and stop and not any(at < stop.get(place, at) for place, at in start.items()):
            raise empty_range(self.bounds)

    @property
    def is_cut(self) -> bool:
        mark = self._offsets(self.mark)
        return any(at > mark.get(place, 0) for place, at in self._asked(self.bounds.stop).items())

    def piece(self, after: HWM[Any] | None, max_rows: int | None, remembered: Mapping[str, Json]) -> Sight:
        first = self.bounds.start if after is None else None
        sight = self.source.look(after, Request(first, whole=after is None and first is None), self.session)
        return replace(sight, span=self._cut(sight.span, max_rows) if sight.span else None, expected_rows=None)

    def _cut(self, span: Span, max_rows: int | None) -> Span | None:
        begin, found = from_json(span.detail["from"]), from_json(span.detail["upto"])
        ends = {place: min(found[place], self._ends().get(place, 0)) for place in begin}
        lags = {place: max(ends[place] - begin[place], 0) for place in begin}
        shares = lags if max_rows is None else split(lags, max_rows)
        taken = {place: at for place, at in begin.items() if shares[place]}
        if not taken:
            return None
        upto = {place: begin[place] + shares[place] for place in taken}
        detail = {**span.detail, "from": as_json(taken), "upto": as_json(upto)}
        stays = self._offsets(span.upto) | begin
        return Span(span.after, mark_of(span.upto.name, self.source.topics, stays | upto), detail)

    def _ends(self) -> dict[tuple[str, int], int]:
        mark = self._offsets(self.mark)
        stop = self._asked(self.bounds.stop) or mark
        return {place: min(at, mark.get(place, 0)) for place, at in stop.items()}

    def _asked(self, text: str | None) -> dict[tuple[str, int], int]:
        return {} if text in (None, "earliest") else self._offsets(placed(self.mark, str(text), "--from or --to"))

    def _offsets(self, mark: HWM[Any]) -> dict[tuple[str, int], int]:
        return offsets_in(mark, self.source.topics)


def placed(mark: HWM[Any], text: str, option: str) -> HWM[Any]:
    """The mark at the value of an option. Raises ConfigError for one that it cannot have."""
    try:
        found = mark.set_value(text)
    except MarkInvalid as error:
        raise ConfigError(f"{option} {text}: {error.reason}.", hint=f"write it like the mark: {mark.show()}") from error
    zones = {getattr(each, "tzinfo", None) is None for each in (mark.value, found.value)}
    if len(zones) > 1:
        what = "has no time zone" if getattr(mark.value, "tzinfo", None) is None else "has a time zone"
        raise ConfigError(f"{option} {text}: the cursor {what}.", hint=f"write it like the mark: {mark.show()}")
    return found


def cursor_columns(source: Source) -> tuple[str, ...]:
    """The columns that a table is read by; none for any other source."""
    return columns_of(Cursor.of(source.cursor)) if isinstance(source, TABLES) else ()


def columns_of(cursor: Cursor) -> tuple[str, ...]:
    """One name, or several from left to right."""
    return (cursor.column,) if isinstance(cursor.column, str) else tuple(cursor.column)


def below(columns: Sequence[str], mark: HWM[Any]) -> str:
    """The SQL for what lies below a value, which of several columns is compared from left to right."""
    values = mark.value if isinstance(mark.value, tuple) else (mark.value,)
    return compared(columns, values, "<")


def compared(columns: Sequence[str], values: Sequence[object], sign: str) -> str:
    """The SQL that compares columns with values, from left to right; the last column decides by the whole sign."""
    column, value = quoted(columns[0]), sql_literal(values[0])
    if len(columns) == 1:
        return f"{column} {sign} {value}"
    rest = compared(columns[1:], values[1:], sign)
    return f"({column} {sign[0]} {value} OR ({column} = {value} AND {rest}))"


def sql_literal(value: object) -> str:
    """A mark's value as Spark's SQL takes it, of the very type and without a zone of this process."""
    if isinstance(value, int):
        return str(value) if abs(value) <= LARGEST_LONG else f"{value}BD"
    if isinstance(value, Decimal):
        return f"{value:f}BD"
    if isinstance(value, datetime):
        return f"TIMESTAMP{'' if value.tzinfo else '_NTZ'} '{value.isoformat()}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return literal(str(value))


def empty_range(bounds: Bounds) -> ConfigError:
    """What is said of a range in which no value can lie."""
    return ConfigError(
        f"nothing lies {bounds}.", hint="--from is in the range and --to is not: give --to a higher value"
    )

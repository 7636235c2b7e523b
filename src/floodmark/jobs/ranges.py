"""A range of a source at or below its mark, piece by piece: from a value that is in it to one that is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from floodmark.errors import ConfigError, MarkInvalid, MarkKindMismatch, RangeAboveMark
from floodmark.hwm import HWM, CompositeHWM, Json, Span
from floodmark.locations import quote
from floodmark.sources import Jdbc, Kafka, Postgres, Sqlite, Table
from floodmark.sources.contract import Request, Session, Sight, Source
from floodmark.sources.kafka.offsets import as_json, from_json, mark_of, offsets_in, split
from floodmark.sources.tables.cursor import Cursor

if TYPE_CHECKING:
    from floodmark.stores.record import JobRecord


TABLES = (Postgres, Jdbc, Sqlite, Table)
AnyTable: TypeAlias = "Postgres | Jdbc | Sqlite | Table"
LARGEST_LONG = 2**63 - 1
XMIN = "xmin"


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
    """The range in the words of the source. Raises ConfigError where it is empty, or where there is no order.

    Raises RangeAboveMark for one that begins above the mark.
    """
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


def mark_at(mark: HWM[Any], text: str, option: str) -> HWM[Any]:
    """The mark at the value of an option. Raises ConfigError for one that it cannot have."""
    hint = f"write it like the mark: {mark.show()}"
    try:
        found = mark.set_value(text)
        mark.reaches(found.value)
    except MarkInvalid as error:
        raise ConfigError(f"{option} {text}: {error.reason}.", hint=hint) from error
    except MarkKindMismatch as error:  # a moment with a zone, and one without
        raise ConfigError(f"{option} {text}: it cannot be compared with the mark.", hint=hint) from error
    return found


def empty_range(bounds: Bounds) -> ConfigError:
    """What is said of a range in which no value can lie."""
    return ConfigError(
        f"nothing lies {bounds}.", hint="--from is in the range and --to is not: give --to a higher value"
    )


@dataclass(frozen=True)
class OffsetRange:
    """Messages by offset. Partitions that `stop` does not name are left out; each ends at the mark at the latest."""

    source: Kafka
    mark: HWM[Any]
    bounds: Bounds
    session: Session = field(repr=False)
    condition: str | None = None

    def __post_init__(self) -> None:
        start, stop, mark = (
            self._offsets_at(self.bounds.start),
            self._offsets_at(self.bounds.stop),
            self._offsets(self.mark),
        )
        above = {place for place, at in start.items() if at > mark.get(place, 0)}
        if above:
            raise RangeAboveMark(self.source.name, start=str(self.bounds.start), mark=str(self.mark.show()))
        if start and stop and not any(at < stop.get(place, at) for place, at in start.items()):
            raise empty_range(self.bounds)

    @property
    def is_cut(self) -> bool:
        mark = self._offsets(self.mark)
        return any(at > mark.get(place, 0) for place, at in self._offsets_at(self.bounds.stop).items())

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
        stop = self._offsets_at(self.bounds.stop) or mark
        return {place: min(at, mark.get(place, 0)) for place, at in stop.items()}

    def _offsets_at(self, text: str | None) -> dict[tuple[str, int], int]:
        return {} if text in (None, "earliest") else self._offsets(mark_at(self.mark, str(text), "--from or --to"))

    def _offsets(self, mark: HWM[Any]) -> dict[tuple[str, int], int]:
        return offsets_in(mark, self.source.topics)


def table_range(source: AnyTable, mark: HWM[Any], bounds: Bounds, session: Session) -> TableRange:
    """The range of a table. Everything at or below the mark was final when the mark passed it.

    So nothing has to wait, and no row comes later to one that has the same value: all of them are in one piece.
    """
    low = None if bounds.start is None else End.of(mark, bounds.start, "--from")
    high = None if bounds.stop is None else End.of(mark, bounds.stop, "--to")
    reached = values_of(mark)
    if low is not None and reached[: len(low.values)] < low.values:
        raise RangeAboveMark(source.name, start=low.text, mark=str(mark.show()))
    if low is not None and high is not None and high.values <= low.values:
        raise empty_range(bounds)
    cursor = Cursor.of(source.cursor)
    if bounds != Bounds() and cursor.columns == (XMIN,):
        raise ConfigError("xmin counts transactions, of which nobody knows a range.", hint="leave --from and --to out")
    on_null = cursor.on_null if bounds == Bounds() else "exclude"
    trusting = replace(cursor, safety="none", unique=True, on_null=on_null)
    stop = high if high is not None and high.values <= reached[: len(high.values)] else None
    plain = replace(source, cursor=trusting)
    return TableRange(plain, mark, low, stop, session, is_cut=high is not None and stop is None)


@dataclass(frozen=True)
class TableRange:
    """Rows of a table from `low` to `stop`, or up to and with the mark."""

    source: AnyTable
    mark: HWM[Any]
    low: End | None
    stop: End | None
    session: Session = field(repr=False)
    is_cut: bool = False

    @property
    def condition(self) -> str | None:
        return self.stop.sql(cursor_terms(self.source), "<") if self.stop else None

    @property
    def condition_of_range(self) -> str:
        """The whole range as a condition, for a table that holds its rows."""
        terms = cursor_terms(self.source)
        low = self.low.sql(terms, ">=") if self.low else "true"
        return f"{low} AND {self.condition or comparison_sql(terms, values_of(self.mark), '<=')}"

    def piece(self, after: HWM[Any] | None, max_rows: int | None, remembered: Mapping[str, Json]) -> Sight:
        first = self.low.text if self.low is not None and after is None else None
        request = Request(first, max_rows, whole=after is None and first is None, extras=remembered)
        sight = self.source.look(after, request, self.session)
        if sight.span is None or self._begins_beyond(sight.span):
            return replace(sight, span=None)
        if self._last.reaches(sight.span.upto.value):
            return sight
        return replace(sight, span=replace(sight.span, upto=self._last), expected_rows=None)

    @cached_property
    def _last(self) -> HWM[Any]:
        """The highest value a span may reach: the mark, or one from which on the condition takes nothing."""
        if self.stop is None:
            return self.mark
        if len(self.stop.values) == len(values_of(self.mark)):
            return self.mark.set_value(self.stop.text)
        beyond = self.source.look(None, Request(self.stop.text, 1), self.session).span
        lowest = beyond.detail.get("lowest") if beyond else None
        found = self.mark if lowest is None else self.mark.set_value(lowest)
        return found if self.mark.reaches(found.value) else self.mark

    def _begins_beyond(self, span: Span) -> bool:
        """As far as the look tells; if it does not, the piece is read and has no rows."""
        lowest = span.detail.get("lowest")
        if lowest is None:
            return False
        found = self.mark.set_value(lowest)
        at = values_of(found)
        is_stopped = self.stop is not None and at[: len(self.stop.values)] >= self.stop.values
        return is_stopped or not self.mark.reaches(found.value)


@dataclass(frozen=True)
class End:
    """One end of a range: the values of the cursor's columns, or of the first of them."""

    text: str
    values: tuple[Any, ...]

    @classmethod
    def of(cls, mark: HWM[Any], text: str, option: str) -> End:
        """What somebody wrote, held against the kinds of the mark. Raises ConfigError."""
        is_first_alone = isinstance(mark, CompositeHWM) and not text.lstrip().startswith("[")
        if isinstance(mark, CompositeHWM) and is_first_alone:
            first = mark.kinds[0](mark.name, mark.value[0] if mark.value else None)
            return cls(text, values_of(mark_at(first, text, option)))
        return cls(text, values_of(mark_at(mark, text, option)))

    def sql(self, terms: Sequence[str], sign: str) -> str:
        """The SQL for what lies below it, or not below it."""
        return comparison_sql(terms[: len(self.values)], self.values, sign)


def cursor_columns(source: Source) -> tuple[str, ...]:
    """Every column that has a say in how far a table is read; none for any other source."""
    return tuple(name for group in _groups(source) for name in group) if isinstance(source, TABLES) else ()


def order_of(source: Source) -> tuple[str, ...]:
    """The columns by which one row of a table is newer than another; none where another column may stand in."""
    groups = _groups(source) if isinstance(source, TABLES) else ()
    return tuple(group[0] for group in groups) if all(len(group) == 1 for group in groups) else ()


def cursor_terms(source: AnyTable) -> tuple[str, ...]:
    """The cursor in SQL: each column, or what stands in for it where it is NULL."""
    spelt = [[quote(name) for name in group] for group in _groups(source)]
    return tuple(names[0] if len(names) == 1 else f"coalesce({', '.join(names)})" for names in spelt)


def _groups(source: AnyTable) -> tuple[tuple[str, ...], ...]:
    return Cursor.of(source.cursor).request().columns


def values_of(mark: HWM[Any]) -> tuple[Any, ...]:
    """The mark's value for each of its columns."""
    return mark.value if isinstance(mark.value, tuple) else (mark.value,)


def comparison_sql(terms: Sequence[str], values: Sequence[object], sign: str) -> str:
    """The SQL that compares columns with values, from left to right; the last one decides by the whole sign."""
    term, value = terms[0], sql_literal(values[0])
    if len(terms) == 1:
        return f"{term} {sign} {value}"
    rest = comparison_sql(terms[1:], values[1:], sign)
    return f"({term} {sign[0]} {value} OR ({term} = {value} AND {rest}))"


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


def literal(text: str) -> str:
    """A text as Spark's SQL takes it, whatever is in it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"

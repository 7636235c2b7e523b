"""A range of a table, by its cursor: all of its columns, or the first of several alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

from floodmark.errors import ConfigError, RangeAboveMark
from floodmark.hwm import HWM, CompositeHWM, Json, Span
from floodmark.jobs.quarantine import literal
from floodmark.jobs.ranges import Bounds, empty_range, placed
from floodmark.sources import Jdbc, Postgres, Sqlite
from floodmark.sources.contract import Request, Session, Sight, Source
from floodmark.sources.table_cursor import Cursor
from floodmark.spark.delta_tables import quoted

TABLES = (Postgres, Jdbc, Sqlite)
LARGEST_LONG = 2**63 - 1
XMIN = "xmin"


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
            return cls(text, values_of(placed(first, text, option)))
        return cls(text, values_of(placed(mark, text, option)))

    def compared(self, terms: Sequence[str], sign: str) -> str:
        """The SQL for what lies below it, or not below it."""
        return compared(terms[: len(self.values)], self.values, sign)


def table_range(source: Postgres | Jdbc | Sqlite, mark: HWM[Any], bounds: Bounds, session: Session) -> TableRange:
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

    source: Postgres | Jdbc | Sqlite
    mark: HWM[Any]
    low: End | None
    stop: End | None
    session: Session = field(repr=False)
    is_cut: bool = False

    @property
    def condition(self) -> str | None:
        return self.stop.compared(cursor_terms(self.source), "<") if self.stop else None

    @property
    def condition_held(self) -> str:
        """The whole range as a condition, for a table that holds its rows."""
        terms = cursor_terms(self.source)
        low = self.low.compared(terms, ">=") if self.low else "true"
        return f"{low} AND {self.condition or compared(terms, values_of(self.mark), '<=')}"

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


def cursor_columns(source: Source) -> tuple[str, ...]:
    """Every column that has a say in how far a table is read; none for any other source."""
    return tuple(name for group in _groups(source) for name in group) if isinstance(source, TABLES) else ()


def order_of(source: Source) -> tuple[str, ...]:
    """The columns by which one row of a table is newer than another; none where another column may stand in."""
    groups = _groups(source) if isinstance(source, TABLES) else ()
    return tuple(group[0] for group in groups) if all(len(group) == 1 for group in groups) else ()


def cursor_terms(source: Postgres | Jdbc | Sqlite) -> tuple[str, ...]:
    """The cursor in SQL: each column, or what stands in for it where it is NULL."""
    spelt = [[quoted(name) for name in group] for group in _groups(source)]
    return tuple(names[0] if len(names) == 1 else f"coalesce({', '.join(names)})" for names in spelt)


def _groups(source: Postgres | Jdbc | Sqlite) -> tuple[tuple[str, ...], ...]:
    return Cursor.of(source.cursor).asked().columns


def values_of(mark: HWM[Any]) -> tuple[Any, ...]:
    """The mark's value for each of its columns."""
    return mark.value if isinstance(mark.value, tuple) else (mark.value,)


def compared(terms: Sequence[str], values: Sequence[object], sign: str) -> str:
    """The SQL that compares columns with values, from left to right; the last one decides by the whole sign."""
    term, value = terms[0], sql_literal(values[0])
    if len(terms) == 1:
        return f"{term} {sign} {value}"
    rest = compared(terms[1:], values[1:], sign)
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

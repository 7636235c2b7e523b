"""One look at a table: from a mark and one probe to the span of the next batch.

`TableLook` is how a table is looked at; `LagLook` begins below the mark, for `safety: lag`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError, CursorNull, SourceRegressed
from floodmark.hwm import ColumnHWM, CompositeHWM, Span
from floodmark.hwm.parsing import seconds_in
from floodmark.probes.tables import CursorValue, LowerBound, TableBounds, TableProbe, UpperBound
from floodmark.probes.tables.queries import COUNTED_AT_MOST
from floodmark.sources.contract import Request, Sight
from floodmark.sources.tables.cursor import (
    ENDS,
    FROM,
    KNOWN,
    NULLS,
    REMEMBERED_BYTES,
    TIES,
    VOID,
    Cursor,
    CursorMarks,
    SpanEnd,
    TieSearch,
    cursor_value,
    few_keys,
    keys_from_json,
    keys_to_json,
    lower_bound_at,
    require_distinguishable,
    too_many_ties,
    value_to_json,
)
from floodmark.sources.tables.safety import TIMES, Guard, SafeBounds, require_time

if TYPE_CHECKING:
    from floodmark.hwm import HWM, Json


LAG = "lag"
"""Under which the record keeps how many rows the window had."""
DAY_SECONDS = 86_400


@dataclass(frozen=True)
class SpanStart:
    """Where a span begins: the mark, and what a statement makes of it; `mark` is one that a start passes by."""

    after: ColumnHWM[Any] | None
    low: LowerBound
    mark: HWM[Any] | None = None


@dataclass(frozen=True)
class NullRows:
    """Rows without a cursor that are read all the same: the keys of those that are new, and of all there are."""

    new: tuple[CursorValue, ...] = ()
    all: tuple[CursorValue, ...] = ()


@dataclass(frozen=True)
class HeldRows:
    """Rows that are there and are not read now, each kind with its reason."""

    kinds: tuple[tuple[int, str], ...] = ()

    @classmethod
    def above(cls, safe: SafeBounds) -> HeldRows:
        """What the upper bounds hold back."""
        pairs = zip(safe.bounds.held_rows, safe.upper, strict=True)
        return cls(tuple((rows, bound.reason) for rows, bound in pairs if rows))

    def with_rows(self, rows: int, reason: str) -> HeldRows:
        return HeldRows((*self.kinds, (rows, reason)))

    @property
    def total(self) -> int:
        return sum(rows for rows, _ in self.kinds)

    @property
    def reason(self) -> str | None:
        """How many wait, and why, for people."""
        most = f"more than {COUNTED_AT_MOST:,}"
        reasons = [f"{most if rows > COUNTED_AT_MOST else f'{rows:,}'} rows {why}" for rows, why in self.kinds]
        return "; ".join(reasons) or None


@dataclass(frozen=True)
class TableLook:
    """One look at one table, past the guard of its safety.

    `source` is what an error calls the table. `is_whole` says that the probe sees all of it, also what lies at or below
    the mark.
    """

    source: str
    name: str
    entity: str
    cursor: Cursor
    probe: TableProbe
    guard: Guard
    is_whole: bool = True

    def look(self, mark: HWM[Any] | None, request: Request) -> Sight:
        """The span above the mark, the user's start, or the beginning. Raises CursorNull, SourceRegressed."""
        require_distinguishable(self.source, self.probe.cursor(), is_whole=self.is_whole)
        start = self._start(mark, request)
        if start is None:
            return self._mark_at_end(self.guard.bounds(LowerBound(), None, self._future(), request))
        safe = self.guard.bounds(start.low, request.max_rows, self._future(), request)
        if start.after is not None and self.is_whole:
            self._require_not_below(start.after, safe.bounds)
        return self._sight(start, safe, request)

    @cached_property
    def _marks(self) -> CursorMarks:
        return CursorMarks(self.source, self.name, self.entity, self.probe.cursor())

    def _start(self, mark: HWM[Any] | None, request: Request) -> SpanStart | None:
        """None is the end of the table: only what comes is wanted."""
        first = self.cursor.start if mark is None and not request.whole else None
        start = request.start if request.start is not None else first
        if start == "latest":
            return None
        if start is not None and start != "earliest":
            return SpanStart(None, LowerBound(self._marks.start_value(start), inclusive=True), mark)
        if mark is None or mark.value is None:
            return SpanStart(None, LowerBound())
        after = self._marks.at_value(mark.dump())
        return SpanStart(after, lower_bound_at(cursor_value(after) or (), self.probe.cursor(), request.extras))

    def _future(self) -> tuple[UpperBound, ...]:
        if self.cursor.max_future is None:
            return ()
        ahead = seconds_in(self.cursor.max_future, field="max_future")
        reason = f"lie more than {self.cursor.max_future} ahead of the database's clock"
        return (UpperBound(ahead_seconds=ahead, reason=reason),)

    def _require_not_below(self, after: ColumnHWM[Any], bounds: TableBounds) -> None:
        highest = self._marks.at(bounds.highest)
        if highest.value is None or not (self._lies_above(after, bounds) or highest.reaches(after.value)):
            text = "no row at all" if highest.value is None else str(highest.show())
            raise SourceRegressed(self.source, mark=str(after.show()), highest=text)

    def _lies_above(self, after: ColumnHWM[Any], bounds: TableBounds) -> bool:
        """Of text in the database's own order, whether that found a row at the mark or above it."""
        if not self.probe.cursor().columns[0].has_own_order:
            return False
        at_mark = LowerBound(cursor_value(after), inclusive=True)
        return bounds.lowest is not None or self.probe.bounds(at_mark, None).lowest is not None

    def _mark_at_end(self, safe: SafeBounds) -> Sight:
        """A mark at the table's end by a batch without rows; of an empty table too, since all that comes is new."""
        bounds = safe.bounds
        if bounds.top is None and bounds.highest is not None:
            return self._nothing_new(HeldRows.above(safe), safe)
        end = self._end(bounds.top, LowerBound(), safe.upper) if bounds.top is not None else None
        upto = self._marks.at(end.value if end else None)
        extras = end.extras() if end else {}
        return Sight(Span(None, upto, {VOID: True}), expected_rows=0, extras=extras, pending=safe.pending)

    def _nothing_new(self, held: HeldRows, safe: SafeBounds) -> Sight:
        return Sight(None, held_back=held.total, held_reason=held.reason, expected_rows=0, pending=safe.pending)

    def _sight(self, start: SpanStart, safe: SafeBounds, request: Request) -> Sight:
        bounds, nulls = safe.bounds, self._null_rows(safe.bounds, request)
        wanted, rows = (bounds.top, bounds.rows) if bounds.cut is None else (bounds.cut, request.max_rows)
        end = None if bounds.lowest is None or wanted is None else self._end(wanted, start.low, safe.upper)
        held = self._held_rows(safe, end)
        if end is None and not nulls.new:
            return self._nothing_new(held, safe)
        extras = self._extras(start, end, request)
        if nulls.all:
            extras[NULLS] = keys_to_json(nulls.all)
        return Sight(
            self._span(start, end, bounds, rows, nulls),
            held_back=held.total,
            held_reason=held.reason,
            expected_rows=None if rows is None else (rows if end else 0) + len(nulls.new),
            extras=extras,
            ahead=self._ahead(bounds, end),
            pending=safe.pending,
        )

    def _extras(self, start: SpanStart, end: SpanEnd | None, request: Request) -> dict[str, Json]:
        """The keys at the mark after this batch; a start that ends below the mark leaves it where it is."""
        standing = start.mark.value if start.mark is not None else None
        has_own_order = self.probe.cursor().columns[0].has_own_order  # then the mark goes where the batch ends
        if end is not None and (has_own_order or self._marks.at(end.value).reaches(standing)):
            return end.extras()
        return {TIES: request.extras[TIES]} if request.extras.get(TIES) else {}

    def _ahead(self, bounds: TableBounds, end: SpanEnd | None) -> float | None:
        if end is None or bounds.cut is None or bounds.top is None:
            return 0.0
        lowest, upto, top = (self._marks.at(value) for value in (bounds.lowest, end.value, bounds.top))
        return share_ahead(lowest, upto, top)

    def _span(
        self, start: SpanStart, end: SpanEnd | None, bounds: TableBounds, rows: int | None, nulls: NullRows
    ) -> Span:
        detail: dict[str, Json] = {NULLS: keys_to_json(nulls.new)} if nulls.new else {}
        low = start.low
        if end is None or bounds.lowest is None:
            return Span(start.after, start.after or self._marks.at(None), {**detail, VOID: True})
        detail |= {"lowest": self._marks.at(bounds.lowest).dump(), "rows": rows}
        if low.inclusive and low.value is not None and low.value != cursor_value(start.after):
            detail[FROM] = value_to_json(low.value)
        elif low.inclusive:
            detail[KNOWN] = keys_to_json(low.known_keys)
        if end.keys is not None:
            detail[ENDS] = keys_to_json(end.keys)
        return Span(start.after, self._marks.at(end.value), detail)

    def _end(self, wanted: CursorValue, low: LowerBound, upper: tuple[UpperBound, ...]) -> SpanEnd | None:
        """Where the span ends. Raises TiesTooMany if rows would have to wait for ever."""
        value = cursor_value(self._marks.at(wanted)) or ()
        if self.probe.cursor().is_unique:
            return SpanEnd(value)
        end = TieSearch(self.probe, low, upper, self._budget_bytes).end(value)
        if end is None and not any(bound.is_final for bound in upper):
            raise too_many_ties(self.source, self.probe.cursor(), value)
        return end and replace(end, value=cursor_value(self._marks.at(end.value)) or ())

    @property
    def _budget_bytes(self) -> int:
        return REMEMBERED_BYTES // 2 if self.cursor.on_null == "include" else REMEMBERED_BYTES

    def _null_rows(self, bounds: TableBounds, request: Request) -> NullRows:
        if self.cursor.on_null != "include" or not bounds.nulls:
            return NullRows()
        keys = few_keys(self.probe, None, self._budget_bytes)
        if keys is None:
            raise too_many_ties(self.source, self.probe.cursor(), None)
        before = set(keys_from_json(request.extras.get(NULLS)))
        return NullRows(tuple(key for key in keys if key not in before), keys)

    def _held_rows(self, safe: SafeBounds, end: SpanEnd | None) -> HeldRows:
        """What is there and not read. Raises CursorNull."""
        bounds, column, held = safe.bounds, self.probe.cursor().expression, HeldRows.above(safe)
        if bounds.nulls and self.cursor.on_null == "fail":
            raise CursorNull(self.source, column=column, rows=bounds.nulls)
        if bounds.nulls and self.cursor.on_null == "exclude":
            held = held.with_rows(bounds.nulls, f"have no {column} and are left out (on_null: exclude)")
        if bounds.lowest is not None and end is None:
            rows = COUNTED_AT_MOST + 1 if bounds.rows is None else bounds.rows
            why = f"have the same {column}, are too many to be remembered, and wait until a later one is there"
            held = held.with_rows(rows, why)
        return held


@dataclass(frozen=True)
class LagLook(TableLook):
    """A look that begins below the mark: so close to it that a row which came late may stand among those read.

    The mark goes to the true maximum all the same. Whether anything came late is told by the number of rows in the
    window; where that is beyond what a look counts, the window is read again with the next new row.
    """

    def look(self, mark: HWM[Any] | None, request: Request) -> Sight:
        """The window as a whole and what lies above it: part of it would be read for ever."""
        require_time("lag", self.probe.cursor().columns[0], (*TIMES, "date"))
        if not self.is_whole:
            raise ConfigError(
                "safety: lag reads below the mark, and the query begins at :after.", hint="take :after and :upto out"
            )
        has_mark = mark is not None and mark.value is not None
        return super().look(mark, replace(request, max_rows=None) if has_mark else request)

    def _start(self, mark: HWM[Any] | None, request: Request) -> SpanStart | None:
        start = super()._start(mark, request)
        if start is None or start.after is None:
            return start
        return SpanStart(start.after, self._window(start.after))

    def _end(self, wanted: CursorValue, low: LowerBound, upper: tuple[UpperBound, ...]) -> SpanEnd | None:
        """What comes later at the last value is in the next window."""
        return SpanEnd(cursor_value(self._marks.at(wanted)) or ())

    def _sight(self, start: SpanStart, safe: SafeBounds, request: Request) -> Sight:
        sight = super()._sight(start, safe, request)
        if sight.span is None or self._is_known(start, safe.bounds, request):
            return replace(sight, span=None, expected_rows=0)
        upto = cursor_value(sight.span.upto)
        window = self.probe.bounds(self._window(sight.span.upto), None, (UpperBound(upto),)) if upto else safe.bounds
        return replace(sight, extras={**sight.extras, LAG: window.rows})

    def _is_known(self, start: SpanStart, bounds: TableBounds, request: Request) -> bool:
        """Whether there is nothing above the mark, and nothing more below it than there was."""
        if start.after is None or self._marks.at(bounds.top).value != start.after.value:
            return False
        return bounds.rows is None or bounds.rows == request.extras.get(LAG)

    def _window(self, mark: HWM[Any]) -> LowerBound:
        """Where the window below a mark begins."""
        first: HWM[Any] = mark.kinds[0](mark.name) if isinstance(mark, CompositeHWM) else mark
        value: Any = (mark.value or ())[0] if isinstance(mark, CompositeHWM) else mark.value
        seconds, is_day = self.cursor.safety_seconds, self.probe.cursor().columns[0].kind == "date"
        back = timedelta(days=math.ceil(seconds / DAY_SECONDS)) if is_day else timedelta(seconds=seconds)
        return LowerBound(cursor_value(first.set_value(value - back)), inclusive=True)


def repeat_columns(cursor: Cursor, key: Sequence[str]) -> tuple[str, ...]:
    """The columns by which a row that a lag reads again is known; none without a lag. Raises ConfigError for no key."""
    if cursor.safety_way != "lag":
        return ()
    if not key:
        raise ConfigError("safety: lag reads some rows again, and nothing tells them apart.", hint="name the key: [id]")
    return tuple(dict.fromkeys((*key, *cursor.columns)))


def share_ahead(lowest: ColumnHWM[Any], upto: ColumnHWM[Any], top: ColumnHWM[Any]) -> float | None:
    """The share of lowest..top that lies above `upto`, by the distance between values: no row is counted for it.

    None where values have no distance (text) or are all one.
    """
    low, here, high = (mark.value[0] if isinstance(mark.value, tuple) else mark.value for mark in (lowest, upto, top))
    whole, left = _distance(low, high), _distance(here, high)
    return None if not whole or left is None else left / whole


def _distance(low: object, high: object) -> float | None:
    if isinstance(low, (int, Decimal)) and isinstance(high, (int, Decimal)):
        return float(Decimal(high) - Decimal(low))
    if isinstance(low, datetime) and isinstance(high, datetime):
        return (high - low).total_seconds()
    if isinstance(low, date) and isinstance(high, date):
        return (high - low) / timedelta(days=1)
    return None

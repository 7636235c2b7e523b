"""Reading some rows again: those so close below the mark that one which came late may stand among them.

The mark goes to the true maximum all the same. Whether anything came late is told by the number of rows in the window;
where that is beyond what a look counts, the window is read again with the next new row.
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
from floodmark.probes.tables import Bounds, Ceiling, Low, Point, TableProbe
from floodmark.probes.tables.questions import COUNTED_AT_MOST
from floodmark.sources.contract import Request, Sight
from floodmark.sources.tables.cursor import (
    ENDS,
    FROM,
    NULLS,
    REMEMBERED_BYTES,
    SEEN,
    TIES,
    VOID,
    Cursor,
    End,
    Marks,
    Ties,
    keys_from,
    known_keys,
    low_above,
    point_of,
    require_told_apart,
    stored_keys,
    stored_point,
    too_many,
)
from floodmark.sources.tables.safety import TIMES, Guard, Guarded, Unguarded, require_time

if TYPE_CHECKING:
    from floodmark.hwm import HWM, Json


# How far a span goes into what lies above the mark, by the distance between values: no row is counted for it.
def share_ahead(lowest: ColumnHWM[Any], upto: ColumnHWM[Any], top: ColumnHWM[Any]) -> float | None:
    """The share of lowest..top that lies above `upto`; None where values have no distance (text) or are all one."""
    low, here, high = (_first(mark.value) for mark in (lowest, upto, top))
    whole = _distance(low, high)
    left = _distance(here, high)
    return None if not whole or left is None else left / whole


def _first(value: Any) -> Any:  # noqa: ANN401 - a value of any kind of cursor
    return value[0] if isinstance(value, tuple) else value


def _distance(low: object, high: object) -> float | None:
    if isinstance(low, (int, Decimal)) and isinstance(high, (int, Decimal)):
        return float(Decimal(high) - Decimal(low))
    if isinstance(low, datetime) and isinstance(high, datetime):
        return (high - low).total_seconds()
    if isinstance(low, date) and isinstance(high, date):
        return (high - low) / timedelta(days=1)
    return None


# How far a table is read: from a mark and one probe to the span of the next batch.
@dataclass(frozen=True)
class Beginning:
    """Where a span begins: the mark, and what a statement makes of it; `mark` is one that a start passes by."""

    after: ColumnHWM[Any] | None
    low: Low
    mark: HWM[Any] | None = None


@dataclass(frozen=True)
class Nulls:
    """Rows without a cursor that are read all the same: the keys of those that are new, and of all there are."""

    new: tuple[Point, ...] = ()
    all: tuple[Point, ...] = ()


@dataclass(frozen=True)
class Waiting:
    """Rows that are there and are not read now, each kind with its reason."""

    kinds: tuple[tuple[int, str], ...] = ()

    @classmethod
    def under(cls, bounds: Bounds, ceilings: tuple[Ceiling, ...]) -> Waiting:
        """What the ceilings hold back."""
        pairs = zip(bounds.held, ceilings, strict=True)
        return cls(tuple((rows, ceiling.reason) for rows, ceiling in pairs if rows))

    def with_rows(self, rows: int, reason: str) -> Waiting:
        return Waiting((*self.kinds, (rows, reason)))

    def told(self) -> tuple[int, str | None]:
        """How many, and why, for people."""
        most = f"more than {COUNTED_AT_MOST:,}"
        reasons = [f"{most if rows > COUNTED_AT_MOST else f'{rows:,}'} rows {why}" for rows, why in self.kinds]
        return sum(rows for rows, _ in self.kinds), "; ".join(reasons) or None


@dataclass(frozen=True)
class Looker:
    """One look at one table, past the guard of its safety.

    `is_whole` says that the probe sees all of it, also what lies at or below the mark.
    """

    source: str
    name: str
    entity: str
    cursor: Cursor
    probe: TableProbe
    is_whole: bool = True
    guard: Guard | None = None

    def look(self, mark: HWM[Any] | None, request: Request) -> Sight:
        """The span above the mark, the user's start, or the beginning. Raises CursorNull, SourceRegressed."""
        require_told_apart(self.source, self.probe.cursor(), is_whole=self.is_whole)
        beginning, guard = self._beginning(mark, request), self.guard or Unguarded(self.probe)
        if beginning is None:
            return self._nothing_before(guard.bounds(Low(), None, self._future(), request))
        guarded = guard.bounds(beginning.low, request.max_rows, self._future(), request)
        if beginning.after is not None and self.is_whole:
            self._require_not_below(beginning.after, self._marks.found(guarded.bounds.highest))
        return self._sight(beginning, guarded, request)

    @cached_property
    def _marks(self) -> Marks:
        return Marks(self.source, self.name, self.entity, self.probe.cursor())

    def _beginning(self, mark: HWM[Any] | None, request: Request) -> Beginning | None:
        """None is the end of the table: only what comes is wanted."""
        first = self.cursor.start if mark is None and not request.whole else None
        start = request.start if request.start is not None else first
        if start == "latest":
            return None
        if start is not None and start != "earliest":
            return Beginning(None, Low(self._marks.start(start), inclusive=True), mark)
        if mark is None or mark.value is None:
            return Beginning(None, Low())
        after = self._marks.given(mark.dump())
        return Beginning(after, low_above(point_of(after) or (), self.probe.cursor(), request.extras))

    def _future(self) -> tuple[Ceiling, ...]:
        if self.cursor.max_future is None:
            return ()
        ahead = seconds_in(self.cursor.max_future, field="max_future")
        reason = f"lie more than {self.cursor.max_future} ahead of the database's clock"
        return (Ceiling(ahead_seconds=ahead, reason=reason),)

    def _nothing_before(self, guarded: Guarded) -> Sight:
        """A mark at the table's end by a batch without rows; of an empty table too, since all that comes is new."""
        bounds, ceilings = guarded.bounds, guarded.ceilings
        if bounds.top is None and bounds.highest is not None:
            return self._nothing_new(Waiting.under(bounds, ceilings), guarded)
        end = self._end(bounds.top, Low(), ceilings) if bounds.top is not None else None
        upto = self._marks.found(end.value if end else None)
        extras = end.remembered() if end else {}
        return Sight(Span(None, upto, {VOID: True}), expected_rows=0, extras=extras, pending=guarded.pending)

    def _nothing_new(self, waiting: Waiting, guarded: Guarded) -> Sight:
        held, reason = waiting.told()
        return Sight(None, held_back=held, held_reason=reason, expected_rows=0, pending=guarded.pending)

    def _sight(self, beginning: Beginning, guarded: Guarded, request: Request) -> Sight:
        bounds, nulls = guarded.bounds, self._nulls(guarded.bounds, request)
        wanted, rows = (bounds.top, bounds.rows) if bounds.cut is None else (bounds.cut, request.max_rows)
        end = None if bounds.lowest is None or wanted is None else self._end(wanted, beginning.low, guarded.ceilings)
        waiting = self._waiting(guarded, end)
        if end is None and not nulls.new:
            return self._nothing_new(waiting, guarded)
        span = self._span(beginning, end, bounds, rows, nulls)
        remembered = self._remembered(beginning, end, request)
        if nulls.all:
            remembered[NULLS] = stored_keys(nulls.all)
        expected = None if rows is None else (rows if end else 0) + len(nulls.new)
        ahead = self._ahead(bounds, end)
        return Sight(
            span, *waiting.told(), expected_rows=expected, extras=remembered, ahead=ahead, pending=guarded.pending
        )

    def _remembered(self, beginning: Beginning, end: End | None, request: Request) -> dict[str, Json]:
        """The keys at the mark after this batch; a start that ends below the mark leaves it where it is."""
        standing = beginning.mark.value if beginning.mark is not None else None
        if end is not None and self._marks.found(end.value).reaches(standing):
            return end.remembered()
        return {TIES: request.extras[TIES]} if request.extras.get(TIES) else {}

    def _ahead(self, bounds: Bounds, end: End | None) -> float | None:
        if end is None or bounds.cut is None or bounds.top is None:
            return 0.0
        found = self._marks.found
        return share_ahead(found(bounds.lowest), found(end.value), found(bounds.top))

    def _span(self, beginning: Beginning, end: End | None, bounds: Bounds, rows: int | None, nulls: Nulls) -> Span:
        detail: dict[str, Json] = {NULLS: stored_keys(nulls.new)} if nulls.new else {}
        low = beginning.low
        if end is None or bounds.lowest is None:
            upto = beginning.after or self._marks.found(None)
            return Span(beginning.after, upto, {**detail, VOID: True})
        detail |= {"lowest": self._marks.found(bounds.lowest).dump(), "rows": rows}
        if low.inclusive and low.value is not None and low.value != point_of(beginning.after):
            detail[FROM] = stored_point(low.value)
        elif low.inclusive:
            detail[SEEN] = stored_keys(low.seen)
        if end.keys is not None:
            detail[ENDS] = stored_keys(end.keys)
        return Span(beginning.after, self._marks.found(end.value), detail)

    def _end(self, wanted: Point, low: Low, ceilings: tuple[Ceiling, ...]) -> End | None:
        """Where the span ends. Raises TiesTooMany if rows would have to wait for ever."""
        value = point_of(self._marks.found(wanted)) or ()
        if self.probe.cursor().is_unique:
            return End(value)
        end = Ties(self.probe, low, ceilings, self._budget).end(value)
        if end is None and not any(ceiling.is_final for ceiling in ceilings):
            raise too_many(self.source, self.probe.cursor(), value)
        return end and replace(end, value=point_of(self._marks.found(end.value)) or ())

    @property
    def _budget(self) -> int:
        return REMEMBERED_BYTES // 2 if self.cursor.on_null == "include" else REMEMBERED_BYTES

    def _nulls(self, bounds: Bounds, request: Request) -> Nulls:
        if self.cursor.on_null != "include" or not bounds.nulls:
            return Nulls()
        keys = known_keys(self.probe, None, self._budget)
        if keys is None:
            raise too_many(self.source, self.probe.cursor(), None)
        before = set(keys_from(request.extras.get(NULLS)))
        return Nulls(tuple(key for key in keys if key not in before), keys)

    def _waiting(self, guarded: Guarded, end: End | None) -> Waiting:
        """What is there and not read. Raises CursorNull."""
        bounds, column = guarded.bounds, self.probe.cursor().shown
        waiting = Waiting.under(bounds, guarded.ceilings)
        if bounds.nulls and self.cursor.on_null == "fail":
            raise CursorNull(self.source, column=column, rows=bounds.nulls)
        if bounds.nulls and self.cursor.on_null == "exclude":
            waiting = waiting.with_rows(bounds.nulls, f"have no {column} and are left out (on_null: exclude)")
        if bounds.lowest is not None and end is None:
            rows = COUNTED_AT_MOST + 1 if bounds.rows is None else bounds.rows
            why = f"have the same {column}, are too many to be remembered, and wait until a later one is there"
            waiting = waiting.with_rows(rows, why)
        return waiting

    def _require_not_below(self, after: ColumnHWM[Any], highest: ColumnHWM[Any]) -> None:
        if highest.value is None or not highest.reaches(after.value):
            shown = "no row at all" if highest.value is None else str(highest.show())
            raise SourceRegressed(self.source, mark=str(after.show()), highest=shown)


LAG = "lag"
"""Under which the record keeps how many rows the window had."""
DAY_SECONDS = 86_400


@dataclass(frozen=True)
class Again(Looker):
    """A look that begins below the mark."""

    def look(self, mark: HWM[Any] | None, request: Request) -> Sight:
        """The window as a whole and what lies above it: part of it would be read for ever."""
        self._require_possible()
        has_mark = mark is not None and mark.value is not None
        return super().look(mark, replace(request, max_rows=None) if has_mark else request)

    def _beginning(self, mark: HWM[Any] | None, request: Request) -> Beginning | None:
        beginning = super()._beginning(mark, request)
        if beginning is None or beginning.after is None:
            return beginning
        return Beginning(beginning.after, self._before(beginning.after))

    def _end(self, wanted: Point, low: Low, ceilings: tuple[Ceiling, ...]) -> End | None:
        """What comes later at the last value is in the next window."""
        return End(point_of(self._marks.found(wanted)) or ())

    def _sight(self, beginning: Beginning, guarded: Guarded, request: Request) -> Sight:
        sight = super()._sight(beginning, guarded, request)
        if sight.span is None or self._is_known(beginning, guarded.bounds, request):
            return replace(sight, span=None, expected_rows=0)
        upto = point_of(sight.span.upto)
        window = self.probe.bounds(self._before(sight.span.upto), None, (Ceiling(upto),)) if upto else guarded.bounds
        return replace(sight, extras={**sight.extras, LAG: window.rows})

    def _is_known(self, beginning: Beginning, bounds: Bounds, request: Request) -> bool:
        """Whether there is nothing above the mark, and nothing more below it than there was."""
        if beginning.after is None or self._marks.found(bounds.top).value != beginning.after.value:
            return False
        return bounds.rows is None or bounds.rows == request.extras.get(LAG)

    def _before(self, mark: HWM[Any]) -> Low:
        first: HWM[Any] = mark.kinds[0](mark.name) if isinstance(mark, CompositeHWM) else mark
        value: Any = (mark.value or ())[0] if isinstance(mark, CompositeHWM) else mark.value
        seconds, is_day = self.cursor.safety_seconds, self.probe.cursor().columns[0].kind == "date"
        back = timedelta(days=math.ceil(seconds / DAY_SECONDS)) if is_day else timedelta(seconds=seconds)
        return Low(point_of(first.set_value(value - back)), inclusive=True)

    def _require_possible(self) -> None:
        require_time("lag", self.probe.cursor().columns[0], (*TIMES, "date"))
        if not self.is_whole:
            raise ConfigError(
                "safety: lag reads below the mark, and the query begins at :after.", hint="take :after and :upto out"
            )


def looker_for(cursor: Cursor) -> type[Looker]:
    """How a cursor is looked at by its safety."""
    return Again if cursor.safety_way == "lag" else Looker


def repeated_by(cursor: Cursor, key: Sequence[str]) -> tuple[str, ...]:
    """The columns by which a row that is read again is known; none if no row is. Raises ConfigError without a key."""
    if cursor.safety_way != "lag":
        return ()
    if not key:
        raise ConfigError("safety: lag reads some rows again, and nothing tells them apart.", hint="name the key: [id]")
    return tuple(dict.fromkeys((*key, *cursor.columns)))

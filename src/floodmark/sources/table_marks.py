"""Marks of a table's cursor: from the database's own text to a mark, and back to what a statement needs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodmark.errors import MarkInvalid, SourceUnreadable
from floodmark.hwm import ColumnHWM, CompositeHWM
from floodmark.probes.tables import MARKS, CursorColumn, Low, Point
from floodmark.probes.tables import Cursor as Seen

if TYPE_CHECKING:
    from floodmark.hwm import HWM, Json, Span

SEEN, ENDS, NULLS, FROM, VOID = "seen", "ends", "nulls", "from", "void"
"""What a span keeps beside its ends: keys that are left out where it begins, the only keys that are read where it ends,
keys of rows without a cursor, a start that is read too, and that no range is read at all."""


@dataclass(frozen=True)
class Marks:
    """Makes the marks of one cursor; `source` is told where a value is wrong."""

    source: str
    name: str
    entity: str
    cursor: Seen

    def given(self, value: object) -> ColumnHWM[Any]:
        """A mark at a value that a user or a store gave. Raises MarkInvalid."""
        columns, shown = self.cursor.columns, self.cursor.shown
        if len(columns) == 1:
            mark: ColumnHWM[Any] = MARKS[columns[0].kind](self.name, value, entity=self.entity, expression=shown)
            return _zoned(mark, columns[0], mark.value)
        kinds = [MARKS[column.kind] for column in columns]
        mark = CompositeHWM(self.name, value, kinds=kinds, entity=self.entity, expression=shown)
        for column, part in zip(columns, mark.value or (), strict=False):
            _zoned(mark, column, part)
        return mark

    def found(self, point: Point | None) -> ColumnHWM[Any]:
        """A mark at what the database said."""
        value = point[0] if point is not None and len(self.cursor.columns) == 1 else point
        try:
            return self.given(value)
        except MarkInvalid as error:
            shown = " and ".join(map(repr, point or ()))
            what = f"the cursor {self.cursor.shown!r} holds {shown}, which no mark can follow ({error.reason})"
            raise SourceUnreadable(self.source, reason=what, hint="mend the row, or leave it out by a query") from error

    def start(self, value: object) -> Point:
        """Where a user wants to begin: a whole value, or one of the first column alone."""
        texts = _parts(value)
        if texts is not None and len(texts) == len(self.cursor.columns):
            return point_of(self.given(value)) or ()
        first = self.cursor.columns[0]
        mark = MARKS[first.kind](self.name, value, entity=self.entity, expression=first.shown)
        return point_of(_zoned(mark, first, mark.value)) or ()


def point_of(mark: HWM[Any] | None) -> Point | None:
    """The mark's value in the text that a literal is made of."""
    if mark is None or mark.value is None:
        return None
    dumped = mark.dump()
    return tuple(str(part) for part in dumped) if isinstance(dumped, list) else (str(dumped),)


def low_of(span: Span) -> Low:
    """Where a span begins, as a statement needs it."""
    if FROM in span.detail:
        return Low(point_from(span.detail[FROM]), inclusive=True)
    value = point_of(span.after)
    if SEEN in span.detail:
        return Low(value, inclusive=True, seen=keys_from(span.detail[SEEN]))
    return Low(value)


def point_from(stored: Json) -> Point:
    """A value out of a span's detail."""
    return tuple(map(str, stored)) if isinstance(stored, list) else (str(stored),)


def stored_point(point: Point) -> Json:
    """A value as a span's detail keeps it."""
    return point[0] if len(point) == 1 else list(point)


def keys_from(stored: Json) -> tuple[Point, ...]:
    """Keys out of a span's detail, or out of a record."""
    return tuple(point_from(each) for each in stored) if isinstance(stored, list) else ()


def stored_keys(keys: Sequence[Point]) -> list[Json]:
    """Keys as they are kept."""
    return [stored_point(key) for key in keys]


def _parts(value: object) -> Sequence[object] | None:
    """The parts of a composite value; a user writes it as a JSON list."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, (list, tuple)) else None


def _zoned(mark: ColumnHWM[Any], column: CursorColumn, value: object) -> ColumnHWM[Any]:
    """The mark, if a moment has a zone exactly where its column has one."""
    is_moment = value is not None and column.kind in ("timestamp", "timestamptz")
    has_zone = getattr(value, "tzinfo", None) is not None
    if is_moment and has_zone != (column.kind == "timestamptz"):
        needs = "has no time zone" if column.kind == "timestamp" else "needs a time zone"
        raise MarkInvalid(mark.kind, value, reason=f"the column {column.name!r} is {column.type}, so it {needs}")
    return mark

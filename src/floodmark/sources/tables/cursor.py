"""The column or columns that a table is read by, the marks they make, and where a span may end if rows share a value.

A mark on a value that two rows may share says nothing about a third one that comes later. So the keys of the rows that
were read there are remembered, the next look reads at the mark again, and leaves those out. What is read at the end of
a span is held to the keys that were seen when it was fixed: then a repeat reads the same rows, and no key is forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Literal, get_args

from floodmark.errors import ConfigError, MarkInvalid, SourceUnreadable, TiesTooMany, UnknownKind
from floodmark.hwm import ColumnHWM, ColumnTextHWM, CompositeHWM
from floodmark.hwm.columns import DATABASE
from floodmark.hwm.parsing import seconds_in
from floodmark.probes.tables import (
    MARKS,
    CursorColumn,
    CursorValue,
    LowerBound,
    RequestedCursor,
    ResolvedCursor,
    TableProbe,
    UpperBound,
)
from floodmark.sources.tables.safety import Safety, SafetyOption, Way

if TYPE_CHECKING:
    from floodmark.hwm import HWM, Json, Span


OnNull = Literal["fail", "exclude", "include"]
Collation = Literal["bytes", "database"]

KNOWN, ENDS, NULLS, FROM, VOID = "seen", "ends", "nulls", "from", "void"
"""What a span keeps beside its ends: keys that are left out where it begins, the only keys that are read where it ends,
keys of rows without a cursor, a start that is read too, and that no range is read at all."""
TIES = "ties"
"""Under which the record keeps the keys at the mark."""
REMEMBERED_BYTES = 64 * 1024
SHORTEST_KEY_BYTES = 4
"""A digit, its quotes and a comma."""
VALUES_TRIED = 16
"""A table with so many values in a row that cannot be remembered has the wrong cursor."""
MOVING_ON = ("int", "timestamp", "timestamptz")
"""Kinds of which a later transaction takes another value. A day lasts, and a text may come again."""


@dataclass(frozen=True)
class Cursor:
    """The column that grows, or several that do together. `start` is "earliest", "latest" or a value, read too.

    `unique` is the user's word that no two rows share a value; without it the catalog is asked, and where rows may
    share one, those at the mark are read again and told apart by their key. `coalesce` names the column and others of
    its type that stand in for it where it is null. `max_future` ("1h") keeps rows waiting that lie further ahead of
    the database's clock. `safety` says what is done about rows that commit late: "fence" (left out, it is this on
    PostgreSQL), "none" (left out elsewhere), {"delay": "30s"} or {"lag": "1h"}. `collation` "database" compares text as
    the database orders the column, so that its index serves; else text is compared by its bytes.

    >>> Cursor(["updated_at", "id"], start="latest", max_future="1h").on_null
    'fail'
    """

    column: str | Sequence[str] = ()
    start: str | int | Sequence[str | int] = "earliest"
    on_null: OnNull = "fail"
    safety: SafetyOption | None = None
    unique: bool = False
    coalesce: Sequence[str] = ()
    max_future: str | None = None
    collation: Collation = "bytes"

    def __post_init__(self) -> None:
        if self.on_null not in get_args(OnNull):
            raise UnknownKind("on_null", self.on_null, known=get_args(OnNull))
        if self.collation not in get_args(Collation):
            raise UnknownKind("collation", self.collation, known=get_args(Collation))
        if self.safety is not None:
            Safety.of(self.safety)
        if self.max_future is not None:
            seconds_in(self.max_future, field="max_future")
        if self.coalesce and self.coalesce[0] not in self.columns:
            raise ConfigError(
                f"cursor: coalesce begins with {self.coalesce[0]!r}, which is not the column that is read by.",
                hint=f"begin with it, as in coalesce: [{self.columns[0]}, {self.coalesce[0]}]",
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns, also of a cursor that names one alone, or only what stands in for it."""
        named = (self.column,) if isinstance(self.column, str) else tuple(self.column)
        return tuple(name for name in named if name) or tuple(self.coalesce[:1])

    @property
    def safety_way(self) -> Way | None:
        """What was chosen, if anything was."""
        return Safety.of(self.safety).way if self.safety is not None else None

    @property
    def safety_seconds(self) -> float:
        """How long the choice lasts."""
        return Safety.of(self.safety or "none").seconds

    @property
    def restates(self) -> str | None:
        """What makes a row come twice, as a user wrote it."""
        return "on_null: include" if self.on_null == "include" else None

    def request(self, key: Sequence[str] = ()) -> RequestedCursor:
        """The cursor in the words of a probe; `key` is the source's."""
        stand_in = {name: tuple(self.coalesce) for name in self.coalesce[:1]}
        groups = tuple(stand_in.get(name, (name,)) for name in self.columns)
        return RequestedCursor(groups, tuple(key), self.unique, self.collation == "database")

    @classmethod
    def of(cls, option: str | Sequence[str] | Cursor) -> Cursor:
        """The cursor, from the name of its column alone too, or from the names of several."""
        cursor = option if isinstance(option, Cursor) else cls(option)
        if not cursor.columns:
            raise ConfigError("a table is read by a cursor.", hint="name a column that grows, as in cursor: id")
        twice = sorted({name for name in cursor.columns if cursor.columns.count(name) > 1})
        if twice:
            raise ConfigError(f"cursor: the column {twice[0]!r} is named twice.", hint="name each column once")
        return cursor


@dataclass(frozen=True)
class CursorMarks:
    """Makes the marks of one cursor; `source` is what an error calls the table."""

    source: str
    name: str
    entity: str
    cursor: ResolvedCursor

    def at_value(self, value: object) -> ColumnHWM[Any]:
        """A mark at a value that a user or a store gave. Raises MarkInvalid."""
        columns, expression = self.cursor.columns, self.cursor.expression
        if len(columns) == 1:
            mark = self._single(columns[0], value)
            return _require_zone(mark, columns[0], mark.value)
        kinds = [MARKS[column.kind] for column in columns]
        mark = CompositeHWM(self.name, value, kinds=kinds, entity=self.entity, expression=expression)
        for column, part in zip(columns, mark.value or (), strict=False):
            _require_zone(mark, column, part)
        return mark

    def _single(self, column: CursorColumn, value: object) -> ColumnHWM[Any]:
        if column.has_own_order:
            return ColumnTextHWM(self.name, value, collation=DATABASE, entity=self.entity, expression=column.expression)
        return MARKS[column.kind](self.name, value, entity=self.entity, expression=column.expression)

    def at(self, value: CursorValue | None) -> ColumnHWM[Any]:
        """A mark at what the database said."""
        try:
            return self.at_value(value[0] if value is not None and len(self.cursor.columns) == 1 else value)
        except MarkInvalid as error:
            texts = " and ".join(map(repr, value or ()))
            what = f"the cursor {self.cursor.expression!r} holds {texts}, which no mark can follow ({error.reason})"
            raise SourceUnreadable(self.source, reason=what, hint="fix the row, or leave it out by a query") from error

    def start_value(self, value: object) -> CursorValue:
        """Where a user wants to begin: a whole value, or one of the first column alone."""
        texts = _parts(value)
        if texts is not None and len(texts) == len(self.cursor.columns):
            return cursor_value(self.at_value(value)) or ()
        first = self.cursor.columns[0]
        mark = self._single(first, value)
        return cursor_value(_require_zone(mark, first, mark.value)) or ()


def cursor_value(mark: HWM[Any] | None) -> CursorValue | None:
    """The mark's value in the text that a literal is made of."""
    if mark is None or mark.value is None:
        return None
    dumped = mark.dump()
    return tuple(str(part) for part in dumped) if isinstance(dumped, list) else (str(dumped),)


def lower_bound(span: Span) -> LowerBound:
    """Where a span begins, as a statement needs it."""
    if FROM in span.detail:
        return LowerBound(value_from_json(span.detail[FROM]), inclusive=True)
    value = cursor_value(span.after)
    if KNOWN in span.detail:
        return LowerBound(value, inclusive=True, known_keys=keys_from_json(span.detail[KNOWN]))
    return LowerBound(value)


def value_from_json(stored: Json) -> CursorValue:
    """A value out of a span's detail."""
    return tuple(map(str, stored)) if isinstance(stored, list) else (str(stored),)


def value_to_json(value: CursorValue) -> Json:
    """A value as a span's detail keeps it."""
    return value[0] if len(value) == 1 else list(value)


def keys_from_json(stored: Json) -> tuple[CursorValue, ...]:
    """Keys out of a span's detail, or out of a record."""
    return tuple(value_from_json(each) for each in stored) if isinstance(stored, list) else ()


def keys_to_json(keys: Sequence[CursorValue]) -> list[Json]:
    """Keys as they are kept."""
    return [value_to_json(key) for key in keys]


def _parts(value: object) -> Sequence[object] | None:
    """The parts of a composite value; a user writes it as a JSON list."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, (list, tuple)) else None


def _require_zone(mark: ColumnHWM[Any], column: CursorColumn, value: object) -> ColumnHWM[Any]:
    """The mark, if a moment has a zone exactly where its column has one."""
    is_moment = value is not None and column.kind in ("timestamp", "timestamptz")
    has_zone = getattr(value, "tzinfo", None) is not None
    if is_moment and has_zone != (column.kind == "timestamptz"):
        needs = "has no time zone" if column.kind == "timestamp" else "needs a time zone"
        raise MarkInvalid(mark.kind, value, reason=f"the column {column.name!r} is {column.type}, so it {needs}")
    return mark


@dataclass(frozen=True)
class SpanEnd:
    """The value a span reaches, and the keys of the rows there; None if no row can come there any more."""

    value: CursorValue
    keys: tuple[CursorValue, ...] | None = None

    def extras(self) -> dict[str, Json]:
        """What the record has to know beside the mark."""
        return {} if self.keys is None else {TIES: {"at": value_to_json(self.value), "keys": keys_to_json(self.keys)}}


@dataclass(frozen=True)
class TieSearch:
    """Looks for the end of one span of a cursor that is not unique."""

    probe: TableProbe
    low: LowerBound
    upper: Sequence[UpperBound]
    budget_bytes: int = REMEMBERED_BYTES

    def end(self, wanted: CursorValue) -> SpanEnd | None:
        """At the wanted value if its rows can be remembered; else below it, or above it; None if all have to wait."""
        found = (self._end_at(value) for value in islice(self._candidates(wanted), VALUES_TRIED))
        return next((end for end in found if end is not None), None)

    def _candidates(self, wanted: CursorValue) -> Iterator[CursorValue]:
        """The value, then those below it from near to far, then those above it."""
        yield wanted
        yield from islice(self._towards(wanted, 0), VALUES_TRIED // 2)
        yield from self._towards(wanted, 1)

    def _towards(self, value: CursorValue, side: Literal[0, 1]) -> Iterator[CursorValue]:
        found = self.probe.neighbours(value, self.low, self.upper)[side]
        while found is not None:
            yield found
            found = self.probe.neighbours(found, self.low, self.upper)[side]

    def _end_at(self, value: CursorValue) -> SpanEnd | None:
        keys = few_keys(self.probe, value, self.budget_bytes)
        if keys is not None:
            return SpanEnd(value, keys)
        return SpanEnd(value) if self._is_final(value) else None

    def _is_final(self, value: CursorValue) -> bool:
        final = next((bound.upto for bound in self.upper if bound.is_final), None)
        if final is None:
            return False
        return final != value or all(column.kind in MOVING_ON for column in self.probe.cursor().columns)


def few_keys(probe: TableProbe, value: CursorValue | None, budget_bytes: int) -> tuple[CursorValue, ...] | None:
    """The keys at a value; None if they are too many to be remembered. Raises ConfigError if two rows have the same."""
    keys = tuple(sorted(probe.keys_at(value, budget_bytes // SHORTEST_KEY_BYTES)))
    twice = next((one for one, other in pairwise(keys) if one == other), None)
    if twice is not None:
        named = ", ".join(probe.cursor().key)
        raise ConfigError(
            f"key: several rows with the same cursor have the same {named} ({', '.join(twice)}).",
            hint="name columns that are unique together",
        )
    return keys if len(json.dumps(keys_to_json(keys)).encode()) <= budget_bytes else None


def lower_bound_at(value: CursorValue, cursor: ResolvedCursor, extras: Mapping[str, Json]) -> LowerBound:
    """Above the mark; or at it, without what was read there. A mark that somebody set was read to its end."""
    ties = extras.get(TIES)
    if cursor.is_unique or not isinstance(ties, dict) or ties.get("at") != value_to_json(value):
        return LowerBound(value)
    return LowerBound(value, inclusive=True, known_keys=keys_from_json(ties.get("keys")))


def require_distinguishable(source: str, cursor: ResolvedCursor, *, is_whole: bool) -> None:
    """A row that comes later, at a value that was read, must not be lost."""
    if cursor.is_unique:
        return
    hint = (
        f"read by more columns, as in column: [{cursor.columns[0].name}, id]; or say unique: true if no two rows ever"
        " have the same"
    )
    if not is_whole:
        raise ConfigError(
            f"{source}: the query reads above :after, and a row that comes later with the same {cursor.expression}"
            " is not.",
            hint=hint,
        )
    if not cursor.key:
        raise ConfigError(
            f"{source}: several rows may have the same {cursor.expression}, and nothing tells them apart.",
            hint=f"name the key, as in key: [id]; or {hint}",
        )


def too_many_ties(source: str, cursor: ResolvedCursor, value: CursorValue | None) -> TiesTooMany:
    """More rows share a value than can be remembered, and nothing says that no more will come."""
    return TiesTooMany(source, column=cursor.expression, value=None if value is None else ", ".join(value))

"""The questions that every probe of a table asks, however it gets its answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from floodmark.errors import SourceUnreadable
from floodmark.probes.tables import Bounds, Ceiling, Cursor, CursorColumn, Low, Point
from floodmark.probes.tables.dialects import Ansi, Dialect, Sign, row
from floodmark.probes.tables.relation import Relation


# Conditions on a cursor in SQL: above a mark, at or below a value, among the rows that share one.
def above(dialect: Dialect, cursor: Cursor, low: Low) -> str:
    """The condition for what lies above the low bound; a row without a cursor never does."""
    if low.value is None:
        return not_null(dialect, cursor)
    bound = compared(dialect, cursor.columns, ">=" if low.inclusive else ">", low.value)
    # (a, b) > (1, 2) holds for a = 2, b = null: such a row has no cursor all the same.
    nullable = [column for column in cursor.columns[1:] if column.is_nullable]
    has_cursor = [f"{dialect.ordered(column)} IS NOT NULL" for column in nullable]
    return " AND ".join([bound, *has_cursor, *unseen(dialect, cursor, low)])


def unseen(dialect: Dialect, cursor: Cursor, low: Low) -> list[str]:
    """The condition that leaves out rows at the low bound that were read before, if there are any.

    IS NOT TRUE, since NOT would leave out a key that is null too; and of a CASE the planner would expect few rows, and
    scan the table for them.
    """
    if low.value is None or not low.seen:
        return []
    tied = compared(dialect, cursor.columns, "=", low.value)
    return [f"({tied} AND {is_among(dialect, cursor, low.seen)}) IS NOT TRUE"]


def at_or_below(dialect: Dialect, cursor: Cursor, value: Point) -> str:
    """The condition for what lies at or below a value."""
    return compared(dialect, cursor.columns, "<=", value)


def only_among(dialect: Dialect, cursor: Cursor, value: Point, keys: Sequence[Point]) -> str:
    """The condition that leaves out rows at a value whose key is not among these."""
    tied = compared(dialect, cursor.columns, "=", value)
    return f"({tied} AND ({is_among(dialect, cursor, keys)}) IS NOT TRUE) IS NOT TRUE"


def is_among(dialect: Dialect, cursor: Cursor, keys: Sequence[Point]) -> str:
    """Whether a row has one of these keys."""
    literals = ", ".join(dialect.packed_literal(key) for key in keys)
    return f"{key_of(dialect, cursor)} IN ({literals})" if keys else dialect.truth(False)


def key_of(dialect: Dialect, cursor: Cursor) -> str:
    """A row's key as one text."""
    return dialect.packed([f"fm.{dialect.quote(name)}" for name in cursor.key])


def within(dialect: Dialect, cursor: Cursor, ceiling: Ceiling) -> str:
    """The condition for what does not pass a ceiling."""
    if ceiling.ahead_seconds is not None:
        first = cursor.columns[0]
        return f"{dialect.ordered(first)} <= {dialect.ahead(first, ceiling.ahead_seconds)}"
    return dialect.truth(False) if ceiling.upto is None else at_or_below(dialect, cursor, ceiling.upto)


def not_null(dialect: Dialect, cursor: Cursor) -> str:
    """The condition for a row that has a cursor."""
    return " AND ".join(f"{dialect.ordered(column)} IS NOT NULL" for column in cursor.columns)


def has_null(dialect: Dialect, cursor: Cursor) -> str:
    """The condition for a row that has none, or only part of it."""
    parts = [f"{dialect.ordered(column)} IS NULL" for column in cursor.columns if column.is_nullable]
    return f"({' OR '.join(parts)})" if parts else dialect.truth(False)


def compared(dialect: Dialect, columns: Sequence[CursorColumn], sign: Sign, value: Point) -> str:
    """The cursor beside a value; a shorter value is compared with its first columns."""
    some = columns[: len(value)]
    literals = [dialect.literal(text, column) for text, column in zip(value, some, strict=True)]
    return dialect.compared([dialect.ordered(column) for column in some], sign, literals)


def from_clause(dialect: Dialect, relation: Relation, cursor: Cursor, low: Low, upto: Point | None) -> str:
    """The table or query, with the bounds in it where the query asks for them; `upto` None is before it is known.

    A start that is read too counts as a first run: the user's `> :after` would leave it out.
    """
    is_first, columns = low.value is None or low.inclusive, cursor.columns
    nothing = [
        dialect.literal(None, each) if "first_run" in relation.named else dialect.bottom(each) for each in columns
    ]
    values = {
        "after": row(nothing if is_first else literals(dialect, cursor, low.value or ())),
        "upto": row([dialect.top(each) for each in columns] if upto is None else literals(dialect, cursor, upto)),
        "first_run": dialect.truth(is_first),
    }
    return relation.sql(dialect.quote, values)


def literals(dialect: Dialect, cursor: Cursor, value: Point) -> list[str]:
    """A value, column by column."""
    return [dialect.literal(text, column) for text, column in zip(value, cursor.columns, strict=True)]


# Questions about a table's cursor, in SQL: how far it reaches, what lies above a mark, which rows share a value.
COUNTED_AT_MOST = 100_000
"""Rows are counted up to here: an index does that in some 10 ms."""


@dataclass(frozen=True)
class Question:
    """What lies above `low` in a table or query, under every ceiling."""

    dialect: Dialect
    relation: Relation
    cursor: Cursor
    low: Low
    ceilings: tuple[Ceiling, ...] = ()

    @property
    def width(self) -> int:
        """How many columns the cursor has."""
        return len(self.cursor.columns)

    def bounds(self, max_rows: int | None) -> str:
        """One statement, whose one row `told` understands. Each part is a lookup at one end of the index, if any."""
        inside = self.inside()
        cut = f"({self._picked(inside)} LIMIT 1 OFFSET {max_rows - 1})" if max_rows else "NULL"
        top = f"({self._picked(inside, descending=True)} LIMIT 1)" if self.ceilings else "NULL"
        held = [f"({self._counted(condition)})" for condition in self._above_ceilings()]
        nulls = f"({self._counted(has_null(self.dialect, self.cursor))})" if self._may_be_null() else "0"
        parts = [
            f"({self._picked(not_null(self.dialect, self.cursor), descending=True)} LIMIT 1) AS h",
            f"({self._picked(inside)} LIMIT 1) AS l, {top} AS t",
            f"({self._counted(inside)}) AS r, {nulls} AS n, {cut} AS c",
            *(f"{count} AS b{place}" for place, count in enumerate(held)),
        ]
        return f"SELECT {', '.join(parts)}"

    def told(self, answer: Sequence[Any]) -> Bounds:
        """The one row that `bounds` gives."""
        highest, lowest, top, rows, nulls, cut, *held = answer
        highest, lowest, top, cut = (self.dialect.unpacked(each, self.width) for each in (highest, lowest, top, cut))
        counted = int(rows) if int(rows) <= COUNTED_AT_MOST else None
        return Bounds(
            highest, lowest, top if self.ceilings else highest, counted, int(nulls), cut, tuple(map(int, held))
        )

    def keys_at(self, value: Point | None, at_most: int) -> str:
        """The keys of rows at a value, or of those without one."""
        where = has_null(self.dialect, self.cursor) if value is None else self.at(value)
        return (
            f"SELECT {key_of(self.dialect, self.cursor)} FROM {self.source()} AS fm WHERE {where} LIMIT {at_most + 1}"
        )

    def beside(self, value: Point) -> str:
        """The next value below, and the next above."""
        below = f"{self.inside()} AND {compared(self.dialect, self.cursor.columns, '<', value)}"
        over = f"{self.inside()} AND {compared(self.dialect, self.cursor.columns, '>', value)}"
        return f"SELECT ({self._picked(below, descending=True)} LIMIT 1) AS b, ({self._picked(over)} LIMIT 1) AS o"

    def source(self) -> str:
        return from_clause(self.dialect, self.relation, self.cursor, self.low, None)

    def inside(self) -> str:
        """Above the low bound and under every ceiling."""
        under = [within(self.dialect, self.cursor, ceiling) for ceiling in self.ceilings]
        return " AND ".join([above(self.dialect, self.cursor, self.low), *under])

    def at(self, value: Point) -> str:
        return compared(self.dialect, self.cursor.columns, "=", value)

    def _above_ceilings(self) -> list[str]:
        """What each ceiling holds back of what those before it let pass."""
        asked = [replace(self, ceilings=self.ceilings[:count]).inside() for count in range(len(self.ceilings))]
        return [
            f"{passed} AND NOT ({within(self.dialect, self.cursor, ceiling)})"
            for passed, ceiling in zip(asked, self.ceilings, strict=True)
        ]

    def _may_be_null(self) -> bool:
        return any(column.is_nullable for column in self.cursor.columns)

    def _picked(self, condition: str, *, descending: bool = False) -> str:
        ordered = [self.dialect.ordered(column) for column in self.cursor.columns]
        by = ", ".join(f"{each} DESC" if descending else each for each in ordered)
        texts = self.dialect.packed(ordered)
        return f"SELECT {texts} FROM {self.source()} AS fm WHERE {condition} ORDER BY {by}"

    def _counted(self, condition: str) -> str:
        """In the order of the cursor: else a planner that expects many would walk the table from its oldest rows on."""
        by = ", ".join(self.dialect.ordered(column) for column in self.cursor.columns)
        some = f"SELECT 1 FROM {self.source()} AS fm WHERE {condition} ORDER BY {by} LIMIT {COUNTED_AT_MOST + 1}"
        return f"SELECT count(*) FROM ({some}) AS counted"


@dataclass(frozen=True)
class PlainQuestion(Question):
    """The same for a database that is not known: aggregates alone, since each limits a result in its own way."""

    def bounds(self, max_rows: int | None) -> str:
        inside, whole = self.inside(), not_null(self.dialect, self.cursor)
        ends = [
            *self._ends("h", "MAX", whole),
            *self._ends("l", "MIN", inside),
            *(self._ends("t", "MAX", inside) if self.ceilings else ()),
        ]
        nulls = has_null(self.dialect, self.cursor)
        counts = [f"{self._count(inside)} r", f"{self._count(nulls)} n"]
        counts += [f"{self._count(each)} b{place}" for place, each in enumerate(self._above_ceilings())]
        one = f"(SELECT COUNT(*) one FROM {self.source()} fm WHERE 1 = 0) fm_one"
        return f"SELECT {', '.join([*ends, *counts])} FROM {one}"

    def told(self, answer: Sequence[Any]) -> Bounds:
        width, values = self.width, list(answer)
        highest, lowest = self._point(values[:width]), self._point(values[width : 2 * width])
        ends = 3 if self.ceilings else 2
        top = self._point(values[2 * width : 3 * width]) if self.ceilings else highest
        rows, nulls, *held = (int(each) for each in values[ends * width :])
        counted = rows if rows <= COUNTED_AT_MOST else None
        return Bounds(highest, lowest, top, counted, nulls, None, tuple(held))

    def _ends(self, name: str, aggregate: str, condition: str) -> list[str]:
        """The highest or lowest row, column by column: each of those that share the columns before it."""
        found: list[str] = []
        for column in self.cursor.columns:
            value = self.dialect.ordered(column)
            picked = f"(SELECT {aggregate}({value}) FROM {self.source()} fm WHERE {condition})"
            found.append(f"CAST({picked} AS CHAR(64)) {name}{len(found)}")
            condition = f"{condition} AND {value} = {picked}"
        return found

    def _count(self, condition: str) -> str:
        return f"(SELECT COUNT(*) FROM {self.source()} fm WHERE {condition})"

    def _point(self, values: Sequence[Any]) -> Point | None:
        found = [self.dialect.unpacked(each, 1) for each in values]
        return tuple(each[0] for each in found if each) if all(found) else None


def question(
    dialect: Dialect, relation: Relation, cursor: Cursor, low: Low, ceilings: Sequence[Ceiling] = ()
) -> Question:
    """The question as this database understands it."""
    kind = PlainQuestion if isinstance(dialect, Ansi) else Question
    return kind(dialect, relation, cursor, low, tuple(ceilings))


class Asking(ABC):
    """A probe that asks in SQL; it knows its relation, its dialect and its cursor, and fetches rows."""

    relation: Relation

    @property
    @abstractmethod
    def dialect(self) -> Dialect:
        """How the database spells things."""

    @abstractmethod
    def cursor(self) -> Cursor:
        """The cursor, as the database knows it."""

    @abstractmethod
    def _rows(self, sql: str) -> Sequence[Sequence[Any]]:
        """What one statement gives. Raises SourceUnreadable."""

    def question(self, low: Low, ceilings: Sequence[Ceiling] = ()) -> Question:
        """What lies above the low bound and under every ceiling, as a statement."""
        return question(self.dialect, self.relation, self.cursor(), low, ceilings)

    def bounds(self, low: Low, max_rows: int | None, ceilings: Sequence[Ceiling] = ()) -> Bounds:
        asked = self.question(low, ceilings)
        return asked.told(self._rows(asked.bounds(max_rows))[0])

    def keys_at(self, value: Point | None, at_most: int) -> tuple[Point, ...]:
        rows = self._rows(self.question(Low()).keys_at(value, at_most))
        key = self.cursor().key
        found = [self.dialect.unpacked(each[0], len(key)) for each in rows]
        if None in found:
            what = f"a row whose {', '.join(key)} is null"
            raise SourceUnreadable(what, reason="a key tells rows with the same cursor apart, and no two such rows")
        return tuple(key for key in found if key is not None)

    def beside(self, value: Point, low: Low, ceilings: Sequence[Ceiling] = ()) -> tuple[Point | None, Point | None]:
        asked = self.question(low, ceilings)
        below, over = self._rows(asked.beside(value))[0]
        return self.dialect.unpacked(below, asked.width), self.dialect.unpacked(over, asked.width)

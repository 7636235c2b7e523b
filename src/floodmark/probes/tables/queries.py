"""The statements that a probe of a table sends: conditions on its cursor, and one query for each question.

`SqlProbe` answers the questions of a `TableProbe` with them, for every database that is asked in SQL.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from floodmark.errors import SourceUnreadable
from floodmark.probes.tables import CursorColumn, CursorValue, LowerBound, ResolvedCursor, TableBounds, UpperBound
from floodmark.probes.tables.dialects import Ansi, Dialect, Sign, row
from floodmark.probes.tables.relation import Relation

COUNTED_AT_MOST = 100_000
"""Rows are counted up to here: an index does that in some 10 ms."""


class SqlProbe(ABC):
    """A probe that asks in SQL; it knows its relation, its dialect and its cursor, and fetches rows."""

    relation: Relation

    @property
    @abstractmethod
    def dialect(self) -> Dialect:
        """How the database spells things."""

    @abstractmethod
    def cursor(self) -> ResolvedCursor:
        """The cursor, as the database knows it."""

    @abstractmethod
    def fetch(self, sql: str) -> Sequence[Sequence[Any]]:
        """What one statement gives. Raises SourceUnreadable."""

    def query(self, low: LowerBound, upper: Sequence[UpperBound] = ()) -> TableQuery:
        """What lies above the lower bound and under every upper one, as this database understands it."""
        kind = AnsiTableQuery if isinstance(self.dialect, Ansi) else TableQuery
        return kind(Conditions(self.dialect, self.cursor()), self.relation, low, tuple(upper))

    def bounds(self, low: LowerBound, max_rows: int | None, upper: Sequence[UpperBound] = ()) -> TableBounds:
        query = self.query(low, upper)
        return query.parse_bounds(self.fetch(query.bounds_sql(max_rows))[0])

    def keys_at(self, value: CursorValue | None, at_most: int) -> tuple[CursorValue, ...]:
        key = self.cursor().key
        texts = self.fetch(self.query(LowerBound()).keys_sql(value, at_most))
        keys = [self.dialect.unpack_key(each[0], len(key)) for each in texts]
        if None in keys:
            what = f"a row whose {', '.join(key)} is null"
            raise SourceUnreadable(what, reason="a key tells rows with the same cursor apart, and no two such rows")
        return tuple(key for key in keys if key is not None)

    def neighbours(
        self, value: CursorValue, low: LowerBound, upper: Sequence[UpperBound] = ()
    ) -> tuple[CursorValue | None, CursorValue | None]:
        query = self.query(low, upper)
        return query.parse_neighbours(self.fetch(query.neighbours_sql(value))[0])


@dataclass(frozen=True)
class Conditions:
    """Conditions on a cursor in SQL: above a mark, at or below a value, among the rows that share one."""

    dialect: Dialect
    cursor: ResolvedCursor

    def above(self, low: LowerBound) -> str:
        """What lies above the lower bound; a row without a cursor never does."""
        if low.value is None:
            return self.has_value()
        bound = self._compare(">=" if low.inclusive else ">", low.value)
        # (a, b) > (1, 2) holds for a = 2, b = null: such a row has no cursor all the same.
        nullable = [column for column in self.cursor.columns[1:] if column.is_nullable]
        has_cursor = [f"{self.dialect.operand(column)} IS NOT NULL" for column in nullable]
        return " AND ".join([bound, *has_cursor, *self.not_read_before(low)])

    def not_read_before(self, low: LowerBound) -> list[str]:
        """Leaves out rows at the lower bound that were read before, if there are any; one without a key stays."""
        if low.value is None or not low.known_keys:
            return []
        return [self.dialect.untrue(f"{self.at(low.value)} AND {self.is_among(low.known_keys)}")]

    def under(self, upper: UpperBound) -> str:
        """What does not pass an upper bound."""
        if upper.ahead_seconds is not None:
            first = self.cursor.columns[0]
            return f"{self.dialect.operand(first)} <= {self.dialect.ahead(first, upper.ahead_seconds)}"
        return self.dialect.truth(False) if upper.upto is None else self.at_or_below(upper.upto)

    def at(self, value: CursorValue) -> str:
        return self._compare("=", value)

    def below(self, value: CursorValue) -> str:
        return self._compare("<", value)

    def at_or_below(self, value: CursorValue) -> str:
        return self._compare("<=", value)

    def beyond(self, value: CursorValue) -> str:
        return self._compare(">", value)

    def only_keys_at(self, value: CursorValue, keys: Sequence[CursorValue]) -> str:
        """Leaves out rows at a value whose key is not among these."""
        return self.dialect.untrue(f"{self.at(value)} AND {self.dialect.untrue(self.is_among(keys))}")

    def is_among(self, keys: Sequence[CursorValue]) -> str:
        """Whether a row has one of these keys."""
        literals = ", ".join(self.dialect.pack_literal(key) for key in keys)
        return f"{self.key()} IN ({literals})" if keys else self.dialect.truth(False)

    def key(self) -> str:
        """A row's key as one text."""
        return self.dialect.pack([f"fm.{self.dialect.quote(name)}" for name in self.cursor.key])

    def has_value(self) -> str:
        """Whether a row has a cursor."""
        return " AND ".join(f"{operand} IS NOT NULL" for operand in self.operands())

    def is_null(self) -> str:
        """Whether a row has none, or only part of it."""
        nullable = [self.dialect.operand(column) for column in self.cursor.columns if column.is_nullable]
        return f"({' OR '.join(f'{each} IS NULL' for each in nullable)})" if nullable else self.dialect.truth(False)

    def operands(self) -> list[str]:
        """The columns as they are compared."""
        return [self.dialect.operand(column) for column in self.cursor.columns]

    def from_clause(self, relation: Relation, low: LowerBound, upto: CursorValue | None) -> str:
        """The table or query, with the bounds in it where the query asks for them; `upto` None is before it is known.

        A start that is read too counts as a first run: the user's `> :after` would leave it out.
        """
        dialect, columns, is_first = self.dialect, self.cursor.columns, low.value is None or low.inclusive
        nothing = [
            dialect.literal(None, each) if "first_run" in relation.parameters else dialect.bottom(each)
            for each in columns
        ]
        values = {
            "after": row(nothing if is_first else self._literals(low.value or (), columns)),
            "upto": row([dialect.top(each) for each in columns] if upto is None else self._literals(upto, columns)),
            "first_run": dialect.truth(is_first),
        }
        return relation.sql(dialect.quote, values)

    def _compare(self, sign: Sign, value: CursorValue) -> str:
        """The cursor beside a value; a shorter value is compared with its first columns."""
        columns = self.cursor.columns[: len(value)]
        operands = [self.dialect.operand(column) for column in columns]
        return self.dialect.comparison(operands, sign, self._literals(value, columns))

    def _literals(self, value: CursorValue, columns: Sequence[CursorColumn]) -> list[str]:
        return [self.dialect.literal(text, column) for text, column in zip(value, columns, strict=True)]


@dataclass(frozen=True)
class TableQuery:
    """Questions about what lies above a lower bound and under every upper one, each as one statement."""

    conditions: Conditions
    relation: Relation
    low: LowerBound
    upper: tuple[UpperBound, ...] = ()

    def bounds_sql(self, max_rows: int | None) -> str:
        """Gives the one row that `parse_bounds` reads; each part is a lookup at one end of the index, if any."""
        inside, is_null = self._inside(self.upper), self.conditions.is_null()
        may_be_null = any(column.is_nullable for column in self.conditions.cursor.columns)
        cut = f"({self._ends(inside)} LIMIT 1 OFFSET {max_rows - 1})" if max_rows else "NULL"
        top = f"({self._ends(inside, descending=True)} LIMIT 1)" if self.upper else "NULL"
        parts = [
            f"({self._ends(self.conditions.has_value(), descending=True)} LIMIT 1) AS h",
            f"({self._ends(inside)} LIMIT 1) AS l, {top} AS t",
            f"({self._count(inside)}) AS r, {f'({self._count(is_null)})' if may_be_null else '0'} AS n, {cut} AS c",
            *(f"({self._count(each)}) AS b{place}" for place, each in enumerate(self._held_conditions())),
        ]
        return f"SELECT {', '.join(parts)}"

    def parse_bounds(self, answer: Sequence[Any]) -> TableBounds:
        highest, lowest, top, rows, nulls, cut, *held = answer
        width, unpack = len(self.conditions.cursor.columns), self.conditions.dialect.unpack
        highest, lowest, top, cut = (unpack(each, width) for each in (highest, lowest, top, cut))
        count = int(rows) if int(rows) <= COUNTED_AT_MOST else None
        return TableBounds(
            highest, lowest, top if self.upper else highest, count, int(nulls), cut, tuple(map(int, held))
        )

    def keys_sql(self, value: CursorValue | None, at_most: int) -> str:
        """The keys of rows at a value, or of those without one."""
        where = self.conditions.is_null() if value is None else self.conditions.at(value)
        return f"SELECT {self.conditions.key()} FROM {self._source()} AS fm WHERE {where} LIMIT {at_most + 1}"

    def neighbours_sql(self, value: CursorValue) -> str:
        """The next value below, and the next above."""
        inside = self._inside(self.upper)
        below = self._ends(f"{inside} AND {self.conditions.below(value)}", descending=True)
        above = self._ends(f"{inside} AND {self.conditions.beyond(value)}")
        return f"SELECT ({below} LIMIT 1) AS b, ({above} LIMIT 1) AS o"

    def parse_neighbours(self, answer: Sequence[Any]) -> tuple[CursorValue | None, CursorValue | None]:
        below, above = answer
        width, unpack = len(self.conditions.cursor.columns), self.conditions.dialect.unpack
        return unpack(below, width), unpack(above, width)

    def _source(self) -> str:
        return self.conditions.from_clause(self.relation, self.low, None)

    def _inside(self, upper: Sequence[UpperBound]) -> str:
        """Above the lower bound and under these upper ones."""
        return " AND ".join([self.conditions.above(self.low), *map(self.conditions.under, upper)])

    def _held_conditions(self) -> list[str]:
        """What each upper bound holds back of what those before it let pass."""
        return [
            f"{self._inside(self.upper[:place])} AND NOT ({self.conditions.under(upper)})"
            for place, upper in enumerate(self.upper)
        ]

    def _ends(self, condition: str, *, descending: bool = False) -> str:
        """The values that fulfil the condition, from one end."""
        operands = self.conditions.operands()
        by = ", ".join(f"{each} DESC" if descending else each for each in operands)
        texts = self.conditions.dialect.pack(operands)
        return f"SELECT {texts} FROM {self._source()} AS fm WHERE {condition} ORDER BY {by}"

    def _count(self, condition: str) -> str:
        """In the order of the cursor: else a planner that expects many would walk the table from its oldest rows on."""
        by = ", ".join(self.conditions.operands())
        some = f"SELECT 1 FROM {self._source()} AS fm WHERE {condition} ORDER BY {by} LIMIT {COUNTED_AT_MOST + 1}"
        return f"SELECT count(*) FROM ({some}) AS counted"


@dataclass(frozen=True)
class AnsiTableQuery(TableQuery):
    """The same for a database behind JDBC: aggregates where they do, and one row at a time where they do not."""

    def bounds_sql(self, max_rows: int | None) -> str:
        inside, has_value = self._inside(self.upper), self.conditions.has_value()
        ends = [*self._extremes("h", "MAX", has_value), *self._extremes("l", "MIN", inside)]
        if self.upper:
            ends += self._extremes("t", "MAX", inside)
        if max_rows:
            ends += self._nth("c", inside, max_rows)
        counts = [f"({self._count(inside)}) r", f"({self._count(self.conditions.is_null())}) n"]
        counts += [f"({self._count(each)}) b{place}" for place, each in enumerate(self._held_conditions())]
        return self._one_row([*ends, *counts])

    def parse_bounds(self, answer: Sequence[Any]) -> TableBounds:
        counted, values = 2 + len(self.upper), list(answer)
        ends = self._values(values[:-counted])
        rows, nulls, *held = (int(each) for each in values[-counted:])
        highest, lowest, *others = ends
        top = others.pop(0) if self.upper else highest
        count = rows if rows <= COUNTED_AT_MOST else None
        return TableBounds(highest, lowest, top, count, nulls, others[0] if others else None, tuple(held))

    def keys_sql(self, value: CursorValue | None, at_most: int) -> str:
        where = self.conditions.is_null() if value is None else self.conditions.at(value)
        key, page = self.conditions.key(), self._dialect.page(0, at_most + 1)
        return f"SELECT {key} k FROM {self._source()} fm WHERE {where} ORDER BY 1 {page}"

    def neighbours_sql(self, value: CursorValue) -> str:
        inside = self._inside(self.upper)
        below = self._extremes("b", "MAX", f"{inside} AND {self.conditions.below(value)}")
        return self._one_row([*below, *self._extremes("o", "MIN", f"{inside} AND {self.conditions.beyond(value)}")])

    def parse_neighbours(self, answer: Sequence[Any]) -> tuple[CursorValue | None, CursorValue | None]:
        below, above = self._values(list(answer))
        return below, above

    @property
    def _dialect(self) -> Ansi:
        if not isinstance(self.conditions.dialect, Ansi):
            raise TypeError(type(self.conditions.dialect))
        return self.conditions.dialect

    def _one_row(self, items: Sequence[str]) -> str:
        """Not every database selects without a table."""
        one = f"(SELECT COUNT(*) one FROM {self._source()} fm WHERE 1 = 0) fm_one"
        return f"SELECT {', '.join(items)} FROM {one}"

    def _extremes(self, name: str, aggregate: str, condition: str) -> list[str]:
        """The highest or lowest row, column by column: each of those that share the columns before it."""
        items: list[str] = []
        for column, operand in zip(self.conditions.cursor.columns, self.conditions.operands(), strict=True):
            extreme = f"(SELECT {aggregate}({operand}) FROM {self._source()} fm WHERE {condition})"
            items.append(f"{self._dialect.text_of(extreme, column)} {name}{len(items)}")
            condition = f"{condition} AND {operand} = {extreme}"
        return items

    def _nth(self, name: str, condition: str, rows: int) -> list[str]:
        """The row at which so many are read, column by column; NULL if there are fewer."""
        by, page = ", ".join(self.conditions.operands()), self._dialect.page(rows - 1, 1)
        return [
            f"(SELECT {self._dialect.text_of(operand, column)} FROM {self._source()} fm WHERE {condition}"
            f" ORDER BY {by} {page}) {name}{place}"
            for place, (column, operand) in enumerate(
                zip(self.conditions.cursor.columns, self.conditions.operands(), strict=True)
            )
        ]

    def _count(self, condition: str) -> str:
        return f"SELECT COUNT(*) FROM {self._source()} fm WHERE {condition}"

    def _values(self, texts: list[Any]) -> list[CursorValue | None]:
        """The cursor's values, from the texts of all their columns."""
        width = len(self.conditions.cursor.columns)
        return [self._value(texts[start : start + width]) for start in range(0, len(texts), width)]

    def _value(self, texts: Sequence[Any]) -> CursorValue | None:
        """A text is what it is; of any other value the database may have made one of a fixed width."""
        if None in texts:
            return None
        pairs = zip(self.conditions.cursor.columns, texts, strict=True)
        return tuple(str(text) if column.kind == "text" else str(text).strip() for column, text in pairs)

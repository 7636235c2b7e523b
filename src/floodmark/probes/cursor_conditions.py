"""Conditions on a cursor in SQL: above a mark, at or below a value, among the rows that share one."""

from __future__ import annotations

from collections.abc import Sequence

from floodmark.probes.cursor_query import Relation
from floodmark.probes.cursor_sql import Dialect, Sign, row
from floodmark.probes.tables import Ceiling, Cursor, CursorColumn, Low, Point


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

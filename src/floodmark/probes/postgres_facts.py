"""What `check` asks PostgreSQL about the cursor of a table, and about a table that is written to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodmark.probes.cursor_sql import text_literal
from floodmark.probes.postgres import Address, connect, failing_as_unreadable
from floodmark.probes.postgres_fence_fit import Doubt, trust

if TYPE_CHECKING:
    from psycopg import Connection

INDEXES = """
SELECT array_agg(a.attname::text ORDER BY k.place), i.indisunique,
  bool_and(coalesce(co.collname = 'C', true))
FROM pg_index i
CROSS JOIN LATERAL unnest((i.indkey::int2[])[0:i.indnkeyatts - 1], i.indcollation::oid[])
  WITH ORDINALITY AS k(attnum, coll, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
LEFT JOIN pg_collation co ON co.oid = k.coll
WHERE i.indrelid = to_regclass(%s) AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid, i.indisunique
"""
"""A database whose default order is that of bytes has another name for it, and its planner goes by the name."""
COLUMN = """
SELECT format_type(a.atttypid, a.atttypmod), c.reltuples::bigint, has_table_privilege(c.oid, 'SELECT')
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE a.attrelid = to_regclass(%s) AND a.attname = %s AND NOT a.attisdropped
"""
TARGET = """
SELECT c.oid IS NOT NULL,
  coalesce(has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'SELECT'), true),
  coalesce(has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'), true)
FROM (SELECT to_regclass(%s)) AS t(name) LEFT JOIN pg_class c ON c.oid = t.name
"""


@dataclass(frozen=True)
class Index:
    """The columns of an index that covers every row, in their order; text is in the order of its bytes, or not."""

    columns: tuple[str, ...]
    is_unique: bool
    is_by_bytes: bool


@dataclass(frozen=True)
class Table:
    """A table and the first column of its cursor; `rows` is what the planner believes."""

    type: str
    rows: int
    may_read: bool
    indexes: tuple[Index, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    """Why a fence on the column may be incomplete."""

    def index_on(self, columns: Sequence[str]) -> Index | None:
        """An index that begins with these columns, one in the order of bytes if there is one."""
        found = [each for each in self.indexes if each.columns[: len(columns)] == tuple(columns)]
        return next((each for each in found if each.is_by_bytes), found[0] if found else None)

    def is_unique(self, columns: Sequence[str]) -> bool:
        """Whether no two rows have the same values here."""
        return any(each.is_unique and set(each.columns) <= set(columns) for each in self.indexes)


@dataclass(frozen=True)
class Written:
    """A table that a sink writes to; rights that nobody asked for are not missed."""

    exists: bool
    may_insert: bool
    may_change: bool


def described(address: Address, table: str, columns: Sequence[str]) -> Table | None:
    """A table, whose name is quoted as SQL has it; None if it does not have the first of these columns."""
    with _asked(address) as connection:
        column = connection.execute(COLUMN, [table, columns[0]]).fetchone()
        if column is None:
            return None
        indexes = connection.execute(INDEXES, [table]).fetchall()
        trusted = trust(lambda sql: _row(connection, sql), text_literal(table), text_literal(columns[0]))
    kind, rows, may_read = column
    found = tuple(Index(tuple(names), is_unique, is_by_bytes) for names, is_unique, is_by_bytes in indexes)
    return Table(kind, rows, may_read, found, trusted.doubts)


def written(address: Address, table: str) -> Written:
    """What may be done with a target."""
    with _asked(address) as connection:
        return Written(*_row(connection, TARGET.replace("%s", text_literal(table))))


@contextmanager
def _asked(address: Address) -> Iterator[Connection[tuple[Any, ...]]]:
    with failing_as_unreadable(f"postgres {address}"), connect(address, "floodmark/check") as connection:
        yield connection


def _row(connection: Connection[tuple[Any, ...]], sql: str) -> Sequence[Any]:
    return connection.execute(sql.encode()).fetchone() or ()

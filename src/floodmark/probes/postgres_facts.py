"""What PostgreSQL's catalog tells about the cursor of a table, and about a table that is written to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.errors import SourceUnreadable
from floodmark.probes.postgres import Address, connect, driver

if TYPE_CHECKING:
    from collections.abc import Sequence

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
SELECT format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity <> '' OR a.atthasdef,
  coalesce(pg_get_expr(d.adbin, d.adrelid), ''),
  (SELECT s.seqcache FROM pg_sequence s WHERE s.seqrelid = to_regclass(pg_get_serial_sequence(%s, a.attname::text))),
  c.reltuples::bigint
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = to_regclass(%s) AND a.attname = %s AND NOT a.attisdropped
"""
SERVER = """
SELECT pg_is_in_recovery(), pg_has_role(current_user, 'pg_read_all_stats', 'MEMBER'),
  EXISTS (SELECT 1 FROM pg_subscription_rel WHERE srrelid = to_regclass(%s)), has_table_privilege(%s, 'SELECT')
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
    """A table and the first column of its cursor. `cache` is how many values a session takes from the sequence."""

    type: str
    is_required: bool
    has_default: bool
    default: str
    cache: int | None
    rows: int
    indexes: tuple[Index, ...]

    def index_on(self, columns: Sequence[str]) -> Index | None:
        """An index that begins with these columns, one in the order of bytes if there is one."""
        found = [each for each in self.indexes if each.columns[: len(columns)] == tuple(columns)]
        return next((each for each in found if each.is_by_bytes), found[0] if found else None)

    def is_unique(self, columns: Sequence[str]) -> bool:
        """Whether no two rows have the same values here."""
        return any(each.is_unique and set(each.columns) <= set(columns) for each in self.indexes)


@dataclass(frozen=True)
class Server:
    """Who we are asking, and what we may."""

    is_standby: bool
    sees_others: bool
    is_subscribed: bool
    may_read: bool


@dataclass(frozen=True)
class Written:
    """A table that a sink writes to; rights that nobody asked for are not missed."""

    exists: bool
    may_insert: bool
    may_change: bool


def described(address: Address, table: str, columns: Sequence[str]) -> tuple[Server, Table | None]:
    """The server and the table, whose name is quoted as SQL has it; None for a table without that column."""
    psycopg = driver()
    try:
        with connect(address, "floodmark/check") as connection:
            server = Server(*(connection.execute(SERVER, [table, table]).fetchone() or ()))
            column = connection.execute(COLUMN, [table, table, columns[0]]).fetchone()
            found = connection.execute(INDEXES, [table]).fetchall()
    except psycopg.Error as error:
        raise SourceUnreadable(f"postgres {address}", reason=str(error).strip().splitlines()[0]) from None
    indexes = tuple(Index(tuple(names), is_unique, is_by_bytes) for names, is_unique, is_by_bytes in found)
    return server, Table(*(*column, indexes)) if column else None


def written(address: Address, table: str) -> Written:
    """What may be done with a target."""
    psycopg = driver()
    try:
        with connect(address, "floodmark/check") as connection:
            return Written(*(connection.execute(TARGET, [table]).fetchone() or (False, True, True)))
    except psycopg.Error as error:
        raise SourceUnreadable(f"postgres {address}", reason=str(error).strip().splitlines()[0]) from None

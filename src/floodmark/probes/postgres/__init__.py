"""A PostgreSQL table as its own driver sees it: column types, and how far the cursor reaches above a mark.

One connection is kept, read-only and named after the source, so that an idle tick costs one round trip. What `check`
asks about a table stands here too; who may still write to it is in `fence`.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from floodmark.errors import SourceUnreadable
from floodmark.postgres import Address, connect, driver
from floodmark.probes.postgres.fence import Doubt, trust, xmin_cursor
from floodmark.probes.tables import Column, Kind, RequestedCursor, ResolvedCursor
from floodmark.probes.tables.dialects import XMIN, Postgres, text_literal
from floodmark.probes.tables.queries import SqlProbe
from floodmark.probes.tables.relation import Catalog, CursorFinder, Relation, kind_by_type

if TYPE_CHECKING:
    from psycopg import Column as DriverColumn
    from psycopg import Connection


SQL = Postgres()
KINDS: dict[str, Kind] = {
    "smallint": "int",
    "integer": "int",
    "bigint": "int",
    "numeric": "decimal",
    "date": "date",
    "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz",
    "text": "text",
    "character varying": "text",
    "uuid": "uuid",
}
FINDER = CursorFinder(kind_by_type(KINDS), ", ".join(KINDS))
SETTINGS = (
    "SELECT set_config('default_transaction_read_only', 'on', false), set_config('TimeZone', 'UTC', false),"
    " set_config('DateStyle', 'ISO, YMD', false), set_config('default_transaction_isolation', 'read committed', false)"
)
EXACT_DOUBLES = 120_000
"""Servers before version 12 leave out the last digits of a double."""
NAMES = (
    "SELECT json_agg(a.attname ORDER BY k.place)"
    " FROM unnest(CAST(i.indkey AS smallint[])) WITH ORDINALITY AS k(number, place)"
    " JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.number WHERE k.place <= i.indnkeyatts"
)
"""The columns of an index, without those that it only carries along."""
INDEXES = (
    "FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL"
    " AND 0 <> ALL (CAST(i.indkey AS smallint[]))"
)
"""Unique over the whole table and over plain columns."""
REQUIRED = "SELECT json_agg(attname) FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND attnotnull"
COVERING_INDEXES = """
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


@dataclass
class PostgresProbe(SqlProbe):
    """One table or query, over one kept connection."""

    address: Address
    relation: Relation
    requested: RequestedCursor
    name: str = "postgres"
    _connection: Connection[tuple[Any, ...]] | None = field(default=None, repr=False)
    _cursor: ResolvedCursor | None = None

    @property
    def dialect(self) -> Postgres:
        return SQL

    def place(self) -> str:
        return f"postgres {self.address}"

    def columns(self) -> tuple[Column, ...]:
        nothing = {"after": "NULL", "upto": "NULL", "first_run": "TRUE"}
        return self._describe(f"SELECT * FROM {self.relation.sql(SQL.quote, nothing)} AS fm LIMIT 0")

    def cursor(self) -> ResolvedCursor:
        """Kept with the connection, as is what the catalog said."""
        if self._cursor is None and self.requested.columns == ((XMIN.name,),):
            self._cursor = xmin_cursor(self.place(), self.relation.table)
        if self._cursor is None:
            self._cursor = FINDER.cursor(self.requested, self.columns(), self._catalog(), self.place())
        return self._cursor

    def close(self) -> None:
        """Let go of the connection and of what was known by it; the next look begins anew."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._cursor = None, None

    def _describe(self, sql: str) -> tuple[Column, ...]:
        """The columns of a statement; the full names of their types are known to the server alone."""
        with self._failing_as_unreadable():
            connection = self._open()
            columns = connection.execute(sql.encode()).description or ()
            oids = [each.type_code for each in columns]
            rows = connection.execute("SELECT o, format_type(o, NULL) FROM unnest(%s::oid[]) AS o", [oids]).fetchall()
        types = {oid: str(name) for oid, name in rows}
        return tuple(_column(each, types[each.type_code]) for each in columns)

    def _catalog(self) -> Catalog:
        rows = self.fetch(catalog_sql(self.relation)) if self.relation.table is not None else []
        return parse_catalog(rows[0][0]) if rows else Catalog()

    def at_once(self, *statements: str) -> list[list[tuple[Any, ...]]]:
        """The rows of each statement, in one round trip; each is a transaction of its own."""
        with self._failing_as_unreadable():
            connection, answers = self._open(), []
            together = connection.pipeline() if driver().Pipeline.is_supported() else nullcontext()  # libpq 14
            with together as pipeline:
                for statement in statements:
                    answers.append(connection.execute(statement.encode()))
                    if pipeline:
                        pipeline.sync()  # without it they would all be one transaction
            return [answer.fetchall() for answer in answers]

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        with self._failing_as_unreadable():
            return self._open().execute(sql.encode()).fetchall()

    def copy(self, statement: str, most_bytes: int) -> bytes | None:
        """What a COPY to STDOUT gives; None where it is larger, or an error: whoever asks knows another way."""
        psycopg, size = driver(), 0
        parts: list[bytes | bytearray | memoryview] = []
        try:
            if self._open().info.server_version < EXACT_DOUBLES:
                return None
            with self._open().cursor() as cursor, cursor.copy(statement.encode()) as answer:
                for part in answer:
                    parts.append(part)
                    size += len(part)
                    if size > most_bytes:
                        return None
        except psycopg.Error:
            self.close()
            return None
        return b"".join(parts)

    def _open(self) -> Connection[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = connect_read_only(self.address, f"floodmark/{self.name}")
            weakref.finalize(self, self._connection.close)  # one that is only forgotten complains
        return self._connection

    @contextmanager
    def _failing_as_unreadable(self) -> Iterator[None]:
        try:
            with failing_as_unreadable(self.place()):
                yield
        except SourceUnreadable:
            self.close()
            raise


@contextmanager
def failing_as_unreadable(place: str) -> Iterator[None]:
    """What the driver raises becomes SourceUnreadable, with the first line of what it says: the rest may be the URL."""
    psycopg = driver()
    try:
        yield
    except psycopg.Error as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SourceUnreadable(place, reason=reason) from None


def _column(column: DriverColumn, type_name: str) -> Column:
    is_numeric = type_name in ("numeric", "numeric[]")  # a timestamp has a precision too, of another sense
    return Column(column.name, type_name, *((column.precision, column.scale) if is_numeric else ()))


def connect_read_only(address: Address, application: str) -> Connection[tuple[Any, ...]]:
    """A connection that answers in UTC and ISO, whatever the zone of the server or of this process."""
    connection = connect(address.resolve(), application)
    connection.execute(SETTINGS)
    return connection


def catalog_sql(relation: Relation) -> str:
    """One statement, which gives one text that `parse_catalog` reads; no row if the name is no table's."""
    table = text_literal(relation.sql(SQL.quote, {}))
    # A table with children gives their rows too, and its index does not know them.
    is_whole = (
        "c.relkind IN ('p', 'm') OR (c.relkind = 'r' AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid))"
    )
    facts = (
        f"'is_known', {is_whole}, 'required', ({REQUIRED}),"
        f" 'unique', (SELECT json_agg(({NAMES})) {INDEXES}), 'key', (SELECT ({NAMES}) {INDEXES} AND i.indisprimary)"
    )
    return f"SELECT CAST(json_build_object({facts}) AS text) FROM pg_class AS c WHERE c.oid = to_regclass({table})"


def parse_catalog(text: str) -> Catalog:
    """The unique indexes of a table, its primary key, and which columns are never null."""
    facts = json.loads(text)
    if not facts["is_known"]:
        return Catalog()
    unique = tuple(frozenset(names) for names in facts["unique"] or ())
    return Catalog(unique, tuple(facts["key"] or ()), frozenset(facts["required"] or ()))


@dataclass(frozen=True)
class Index:
    """The columns of an index that covers every row, in their order; text is in the order of its bytes, or not."""

    columns: tuple[str, ...]
    is_unique: bool
    is_by_bytes: bool


@dataclass(frozen=True)
class TableFacts:
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
class TargetFacts:
    """A table that a sink writes to; rights that nobody asked for are not missed."""

    exists: bool
    may_insert: bool
    may_change: bool


def table_facts(address: Address, table: str, columns: Sequence[str]) -> TableFacts | None:
    """A table, whose name is quoted as SQL has it; None if it does not have the first of these columns."""
    with _connection(address) as connection:
        column = connection.execute(COLUMN, [table, columns[0]]).fetchone()
        if column is None:
            return None
        indexes = connection.execute(COVERING_INDEXES, [table]).fetchall()
        trusted = trust(lambda sql: _row(connection, sql), text_literal(table), text_literal(columns[0]))
    kind, rows, may_read = column
    found = tuple(Index(tuple(names), is_unique, is_by_bytes) for names, is_unique, is_by_bytes in indexes)
    return TableFacts(kind, rows, may_read, found, trusted.doubts)


def target_facts(address: Address, table: str) -> TargetFacts:
    """What may be done with a target."""
    with _connection(address) as connection:
        return TargetFacts(*_row(connection, TARGET.replace("%s", text_literal(table))))


@contextmanager
def _connection(address: Address) -> Iterator[Connection[tuple[Any, ...]]]:
    with failing_as_unreadable(f"postgres {address}"), connect_read_only(address, "floodmark/check") as connection:
        yield connection


def _row(connection: Connection[tuple[Any, ...]], sql: str) -> Sequence[Any]:
    return connection.execute(sql.encode()).fetchone() or ()

"""The table of one attempt that tasks put their encoded rows into; only what a winning task reported ever leaves it."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.logs import get_logger
from floodmark.probes.postgres_ledger import PostgresLedger

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed

log = get_logger(__name__)
COLUMNS = "attempt bigint, place integer, rows bigint, bytes bytea"
"""Which try of which task it was (Spark gives no number twice in an application), and its stream in pieces."""
LEFT_BEHIND = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relkind = 'r' AND starts_with(c.relname, %s) AND c.relname COLLATE "C" <= %s
ORDER BY 1
"""


@dataclass(frozen=True)
class Copied:
    """What one task reported: which try of which partition, and how many rows it put there."""

    task: int
    attempt: int
    rows: int


@dataclass(frozen=True)
class Piece:
    """Some bytes of a task's stream; `rows` are those that begin with them."""

    rows: int
    content: bytes | memoryview


@dataclass(frozen=True)
class Staging:
    """A table beside the target. Names of one ledger sort by the time they were made, by the server's clock."""

    schema: str
    name: str

    @classmethod
    def named(cls, connection: Connection, ledger: PostgresLedger, attempt: str) -> Staging:
        row = connection.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").fetchone()
        moment = int(row[0]) if row else 0
        return cls(ledger.schema, f"{_prefix(ledger)}{moment:012x}_{attempt[:12]}_{uuid.uuid4().hex[:6]}")

    @property
    def sql(self) -> Composed:
        from psycopg.sql import SQL, Identifier

        return SQL("{}").format(Identifier(self.schema, self.name))

    def create(self, connection: Connection) -> None:
        """Without a log: what a crash of the server takes is missed when rows are counted. Nor is it compressed."""
        from psycopg.sql import SQL

        create = f"CREATE UNLOGGED TABLE {{}} ({COLUMNS}) WITH (autovacuum_enabled = false)"
        connection.execute(SQL(create).format(self.sql))
        connection.execute(SQL("ALTER TABLE {} ALTER COLUMN bytes SET STORAGE EXTERNAL").format(self.sql))

    def put(self, connection: Connection, attempt: int, pieces: Iterator[Piece]) -> int:
        """A task's pieces, all of them or none; returns how many rows they hold."""
        from psycopg.sql import SQL

        insert, rows = SQL("INSERT INTO {} VALUES (%s, %s, %s, %b)").format(self.sql), 0
        with connection.transaction(), connection.cursor() as cursor:
            # What is staged need not be durable before it is moved, and the move's own commit waits for all before it.
            cursor.execute("SET LOCAL synchronous_commit = off")
            for place, piece in enumerate(pieces):
                cursor.execute(insert, [attempt, place, piece.rows, piece.content])
                rows += piece.rows
        return rows

    def pieces(self, connection: Connection, winners: Sequence[Copied]) -> Generator[Piece, None, None]:
        """The streams that count, one behind the other: every other attempt was lost, and may still go on."""
        from psycopg.sql import SQL, Literal

        won = "SELECT rows, bytes FROM {} WHERE attempt = ANY({}::bigint[]) ORDER BY attempt, place"
        select = SQL(won).format(self.sql, Literal([each.attempt for each in winners]))
        with (
            connection.cursor() as cursor,
            cursor.copy(SQL("COPY ({}) TO STDOUT (FORMAT binary)").format(select)) as copy,
        ):
            copy.set_types(["bigint", "bytea"])
            for rows, content in copy.rows():
                yield Piece(rows, content)


def drop_upto(connection: Connection, ledger: PostgresLedger, newest: Staging) -> None:
    """Drop this staging table and those of older attempts, while nobody else writes for this ledger.

    One that a lost task still copies into is left for the next batch: waiting for it could take hours.
    """
    from psycopg.errors import LockNotAvailable
    from psycopg.sql import SQL, Identifier

    with connection.transaction():
        ledger.hold(connection)
        connection.execute("SET LOCAL lock_timeout = '2s'")
        for (name,) in connection.execute(LEFT_BEHIND, [ledger.schema, _prefix(ledger), newest.name]).fetchall():
            try:
                with connection.transaction():
                    connection.execute(SQL("DROP TABLE IF EXISTS {}").format(Identifier(ledger.schema, name)))
            except LockNotAvailable:
                log.info("a staging table is still in use and stays for now", table=name)


def _prefix(ledger: PostgresLedger) -> str:
    return f"_fm_stage_{hashlib.sha256(ledger.ledger.encode()).hexdigest()[:10]}_"

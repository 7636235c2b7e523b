"""The table of one attempt that tasks copy into; only rows that a winning task reported ever leave it."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.logs import get_logger
from floodmark.probes.postgres_ledger import PostgresLedger
from floodmark.sinks.postgres_target import TargetColumn

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed

log = get_logger(__name__)
ATTEMPT = "_fm_attempt"
"""Which try of which task copied a row: Spark gives no number twice in an application."""
LEFT_BEHIND = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relkind = 'r' AND starts_with(c.relname, %s) AND c.relname COLLATE "C" <= %s
ORDER BY 1
"""


@dataclass(frozen=True)
class Copied:
    """What one task reported: which try of which partition, and how many rows it copied."""

    task: int
    attempt: int
    rows: int


@dataclass(frozen=True)
class Staging:
    """A table beside the target. Names of one ledger sort by the time they were made, by the server's clock."""

    schema: str
    name: str
    columns: tuple[TargetColumn, ...] = ()
    key: tuple[str, ...] = ()

    @classmethod
    def named(cls, connection: Connection, ledger: PostgresLedger, attempt: str) -> Staging:
        row = connection.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").fetchone()
        moment = int(row[0]) if row else 0
        return cls(ledger.schema, f"{_prefix(ledger)}{moment:012x}_{attempt[:12]}_{uuid.uuid4().hex[:6]}")

    @property
    def sql(self) -> Composed:
        from psycopg.sql import SQL, Identifier

        return SQL("{}").format(Identifier(self.schema, self.name))

    def create(self, connection: Connection, *, may_become_target: bool = False) -> None:
        """Without a log, unless it may be kept: what a crash of the server takes is missed when rows are counted."""
        from psycopg.sql import SQL

        parts = [
            SQL("{}{}").format(column.defined(), SQL(" NOT NULL" if column.name in self.key else ""))
            for column in self.columns
        ]
        kind = SQL("" if may_become_target else "UNLOGGED ")
        create = f"CREATE {{}}TABLE {{}} ({{}}, {ATTEMPT} bigint) WITH (autovacuum_enabled = false)"
        connection.execute(SQL(create).format(kind, self.sql, SQL(", ").join(parts)))

    def copy_statement(self) -> Composed:
        """Fields in the order of the columns, then the attempt; NULL is nothing, an empty text is quoted."""
        from psycopg.sql import SQL, Identifier

        names = SQL(", ").join(map(Identifier, (*(column.name for column in self.columns), ATTEMPT)))
        return SQL("COPY {} ({}) FROM STDIN (FORMAT csv, ENCODING 'UTF8')").format(self.sql, names)

    def won(self, winners: Sequence[Copied]) -> Composed:
        """The rows that count: those of every other attempt are of a try that was lost, and may still go on."""
        from psycopg.sql import SQL, Identifier

        names = SQL(", ").join(Identifier(column.name) for column in self.columns)
        return SQL("(SELECT {} FROM {} WHERE {})").format(names, self.sql, is_won(winners))


def is_won(winners: Sequence[Copied]) -> Composed:
    """The condition on a row that its attempt is one that Spark took."""
    from psycopg.sql import SQL, Literal

    return SQL(f"{ATTEMPT} = ANY({{}}::bigint[])").format(Literal([each.attempt for each in winners]))


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

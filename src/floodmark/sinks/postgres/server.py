"""The server of a PostgreSQL sink, and the ledger on it.

Driver and tasks reach the server without a secret in any message. The ledger is a table beside the targets of a schema,
with a row per target, job and sink that is written in the transaction of the rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, SinkUnreachable
from floodmark.formats import FIRST, require_known
from floodmark.postgres import DURABLE, IDLE_CONNECTIONS, Address, connect, driver
from floodmark.sinks.contract import Recorded

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed

    from floodmark.hwm import Json

DEFAULTS = {
    # A server that is gone without a word fails the task within about a minute, instead of holding it for hours.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
TABLE = "floodmark_ledger"
COMMENT = "Floodmark ledger, format "
FORMAT = 2
"""Format 1 had no target in the key: two tables of one schema shared an entry if their jobs had one name."""
BEFORE = "@before"
"""No mark is called so."""
ENTRY = f"number, digest, rows, (marks ->> '{BEFORE}')::bigint"
COLUMNS = (
    "ledger text PRIMARY KEY, number bigint NOT NULL, digest text, rows bigint, marks jsonb, "
    "modified_time timestamptz NOT NULL DEFAULT now()"
)


@dataclass(frozen=True)
class PostgresServer:
    """A server and a database on it; `application` is what the server's own lists of sessions call us.

    Where `keeps` is set, connections are kept for whoever needs one next: not in a task, of which there are many.
    """

    url: str = field(repr=False)
    application: str = "floodmark"
    keeps: bool = False

    def describe(self) -> str:
        """Host, port and database."""
        return str(self.address)

    @property
    def address(self) -> Address:
        """Raises ConfigError, which does not repeat the URL."""
        return Address.parse(self.url)

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """An open connection without a transaction. Raises SinkUnreachable if there is none, or if it breaks."""
        psycopg = driver()
        connection: Connection | None = None
        make = IDLE_CONNECTIONS.lend if self.keeps else connect
        try:
            with make(self.address, self.application, DEFAULTS) as connection:
                yield connection
        except psycopg.OperationalError as error:
            if connection is not None and not connection.broken:
                raise
            raise SinkUnreachable(f"PostgreSQL at {self.describe()}", reason=self.reason(error)) from None

    def reason(self, error: Exception) -> str:
        """What the server said, in one line."""
        diagnosis = getattr(error, "diag", None)
        message = getattr(diagnosis, "message_primary", None) or str(error) or type(error).__name__
        more = [getattr(diagnosis, part, None) for part in ("message_detail", "context")]
        line = "; ".join(" ".join(text.split()) for text in (message, *more) if text)
        return self.address.without_secrets(line)


@dataclass(frozen=True)
class LedgerEntry:
    """The highest number that was recorded. A batch has a digest and the rows that it wrote; a fence has neither.

    Where the marks of a batch stand, a fence keeps the number of the batch below it.
    """

    number: int
    digest: str | None = None
    rows: int | None = None
    marks: Mapping[str, Json] = field(default_factory=dict)
    before: int | None = None

    @classmethod
    def fence(cls, number: int, over: LedgerEntry | None) -> LedgerEntry:
        """The number without rows, over the entry that is there, if one is."""
        before = over.recorded.last_batch if over else 0
        return cls(number, marks={BEFORE: before}, before=before)

    @property
    def recorded(self) -> Recorded:
        """As every sink says it. Fences of earlier versions said that they had written 0 rows."""
        is_fence = self.digest is None and not self.rows
        return Recorded(self.number, self.digest, is_fence, before=self.before if is_fence else None)


@dataclass(frozen=True)
class PostgresLedger:
    """What one sink of one job remembers of its target, in the ledger table of the target's schema."""

    schema: str
    table: str
    ledger: str

    @property
    def key(self) -> str:
        """Names of jobs and sinks hold no blank, so nothing else is spelt like it."""
        return f"{self.ledger} {self.table}"

    def entry(self, connection: Connection) -> LedgerEntry | None:
        """What is recorded now; waits for nobody. None also where there is no ledger table yet."""
        if self._version(connection) is None:
            return None
        either = f"SELECT {ENTRY} FROM {{}} WHERE ledger IN (%s, %s) ORDER BY length(ledger) DESC LIMIT 1"
        return self._read(connection, either, self.key, self.ledger)

    def lock(self, connection: Connection) -> LedgerEntry | None:
        """What is recorded, held until the transaction ends: nobody else records for this ledger meanwhile.

        The transaction's commit is durable from here on.
        """
        from psycopg.sql import SQL

        # What an earlier version recorded without the target is where this one goes on.
        blank = (
            "INSERT INTO {} (ledger, number, digest, rows, marks) SELECT %s, coalesce(e.number, 0), digest, rows, marks"
            " FROM (SELECT 1) AS one LEFT JOIN {} AS e ON e.ledger = %s ON CONFLICT DO NOTHING"
        )
        values = [self.key, self.ledger]
        is_first = connection.execute(SQL(blank).format(self._table, self._table), values).rowcount == 1
        entry = self.hold(connection)
        return None if is_first and entry and not entry.number else entry

    def hold(self, connection: Connection) -> LedgerEntry | None:
        """The same without making a first entry: where there is none, nothing is held."""
        query = f"SELECT {ENTRY}, {DURABLE} FROM {{}} WHERE ledger = %s FOR UPDATE"
        return self._read(connection, query, self.key)

    def record(self, connection: Connection, entry: LedgerEntry) -> None:
        """Take the number, within the transaction that holds the lock."""
        from psycopg.sql import SQL

        update = (
            "UPDATE {} SET number = %s, digest = %s, rows = %s, marks = %s::jsonb, modified_time = now()"
            " WHERE ledger = %s"
        )
        values = [entry.number, entry.digest, entry.rows, json.dumps(dict(entry.marks)), self.key]
        connection.execute(SQL(update).format(self._table), values)

    def ensure(self, connection: Connection) -> None:
        """Make table and schema where they are missing. Raises ConfigError with the statements if it may not.

        A table of an earlier format is taken as it is, and shut to programs that only know that one.
        """
        from psycopg.errors import InsufficientPrivilege

        version = self._version(connection)
        if version is not None and version < FORMAT:
            self._raise_version(connection)
        if version is not None:
            return
        try:
            with connection.transaction():
                # Two that make the same table at once: one of them would fail in spite of IF NOT EXISTS.
                connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [TABLE])
                for statement in self._statements(connection):
                    connection.execute(statement)
        except InsufficientPrivilege as error:
            wanted = "; ".join(statement.as_string(connection) for statement in self._statements(connection))
            raise ConfigError(
                f"the ledger {self.schema}.{TABLE} is missing and this role may not make it.",
                hint=f"have its owner run: {wanted}, and grant SELECT, INSERT, UPDATE on it and CREATE on the schema",
            ) from error

    def _statements(self, connection: Connection) -> list[Composed]:
        from psycopg.sql import SQL, Identifier

        table = SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(self._table, SQL(COLUMNS))
        there = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [self.schema]).fetchone()
        schema = [] if there else [SQL("CREATE SCHEMA IF NOT EXISTS {}").format(Identifier(self.schema))]
        return [*schema, table, self._comment()]

    def _comment(self) -> Composed:
        from psycopg.sql import SQL

        return SQL("COMMENT ON TABLE {} IS {}").format(self._table, f"{COMMENT}{FORMAT}")

    def _raise_version(self, connection: Connection) -> None:
        """Only its owner may; whoever else writes there has to be as new as this program."""
        from psycopg.errors import InsufficientPrivilege

        with suppress(InsufficientPrivilege), connection.transaction():
            connection.execute(self._comment())

    def _version(self, connection: Connection) -> int | None:
        """The format of the table; None where there is none yet. Raises FormatTooNew."""
        query = (
            "SELECT obj_description(oid, 'pg_class') FROM pg_class"
            " WHERE relname = %s AND relnamespace = to_regnamespace(quote_ident(%s))"
        )
        row = connection.execute(query, [TABLE, self.schema]).fetchone()
        if row is None:
            return None
        found = (row[0] or "").removeprefix(COMMENT)
        version = int(found) if found.isdigit() else FIRST
        require_known(version, "the ledger", where=f"{self.schema}.{TABLE}", known=FORMAT)
        return version

    def _read(self, connection: Connection, query: str, *values: str) -> LedgerEntry | None:
        from psycopg.sql import SQL

        row = connection.execute(SQL(query).format(self._table), values).fetchone()
        return LedgerEntry(row[0], row[1], row[2], before=row[3]) if row else None

    @property
    def _table(self) -> Composed:
        from psycopg.sql import SQL, Identifier

        return SQL("{}").format(Identifier(self.schema, TABLE))

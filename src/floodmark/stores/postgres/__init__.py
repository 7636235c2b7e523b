"""The connection of the PostgreSQL store: kept, opened again after a loss, and one transaction per page."""

from __future__ import annotations

import threading
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from floodmark.errors import StoreNotPrepared, StoreUnreachable
from floodmark.stores.memory import MemoryPage
from floodmark.stores.postgres_page import PostgresPage
from floodmark.stores.postgres_tables import COMMENT, FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from psycopg import Connection

    from floodmark.stores.page import Page
    from floodmark.stores.postgres_address import Address
    from floodmark.stores.postgres_page import Rows

SNAPSHOT = "begin isolation level repeatable read read only"
LOCK = "select pg_advisory_xact_lock(hashtextextended(%s, 0))"


class PostgresPages:
    """One connection, used by one thread at a time: the heartbeat has a thread of its own."""

    def __init__(self, address: Address, namespace: str, patience_seconds: float) -> None:
        self._address, self._namespace = address, namespace
        self._begin = f"begin; set local lock_timeout = {int(patience_seconds * 1000)}"
        self._lock = threading.RLock()
        self._connection: Connection[Any] | None = None
        self._prepared = False

    def describe(self) -> str:
        return self._address.describe()

    def names(self) -> Sequence[str]:
        marks, runs = self._address.tables.marks, self._address.tables.beside("runs")
        query = f"select key from {marks} where namespace = %(n)s union select job from {runs} where namespace = %(n)s"
        with self._usable() as connection:
            if not self._is_prepared(connection):
                return []
            return [name for (name,) in self._rows(connection).execute(query, {"n": self._namespace}).fetchall()]

    @contextmanager
    def reading(self, job: str) -> Iterator[Page]:
        with self._usable() as connection:
            if not self._is_prepared(connection):  # a look or a plan creates nothing
                yield MemoryPage()
                return
            with self._transaction(connection):
                yield self._page(connection, job)

    @contextmanager
    def writing(self, job: str) -> Iterator[PostgresPage]:
        with self._usable() as connection:
            if not self._is_prepared(connection):
                self._prepare(connection)
            with self._transaction(connection):
                connection.execute(self._begin)
                yield self.within(connection, job)

    def within(self, connection: Connection[Any], job: str) -> PostgresPage:
        """The job's page in the transaction of this connection, which nobody else changes until it ends."""
        rows, tables = self._rows(connection), self._address.tables
        # A lock on the row would not do: the first commit and the first lease have no row yet.
        rows.execute(LOCK, [f"{tables} {self._namespace} {job}"])
        return PostgresPage(rows, tables, self._namespace, job)

    def prepare(self) -> None:
        """Make the tables, if they are not there."""
        with self._usable() as connection:
            if not self._is_prepared(connection):
                self._prepare(connection)

    def close(self) -> None:
        with self._lock:
            if self._connection:
                self._connection.close()
            self._connection, self._prepared = None, False

    def _page(self, connection: Connection[Any], job: str) -> PostgresPage:
        """A page to read: a stamp, a lease or a look alone is one query, and only more than that is a snapshot."""
        rows = self._rows(connection)

        def begin() -> None:
            if not _in_transaction(connection):
                rows.execute(SNAPSHOT)

        return PostgresPage(rows, self._address.tables, self._namespace, job, begin)

    @contextmanager
    def _transaction(self, connection: Connection[Any]) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if _in_transaction(connection):
                connection.execute("rollback")
            raise
        if _in_transaction(connection):
            connection.execute("commit")

    @contextmanager
    def _usable(self) -> Iterator[Connection[Any]]:
        import psycopg

        with self._lock:
            try:
                yield self._open()
            except (psycopg.Error, OSError) as error:
                lost = self._connection is None or self._connection.closed
                if lost or isinstance(error, psycopg.OperationalError):
                    with suppress(psycopg.Error):
                        self.close()  # the next call opens another one
                raise StoreUnreachable(self.describe(), reason=_first_line(error)) from error

    def _open(self) -> Connection[Any]:
        import psycopg

        if self._connection is None or self._connection.closed:
            self._prepared = False
            # Prepared statements would not survive a pooler that shares connections between transactions.
            self._connection = psycopg.connect(**self._address.settings, autocommit=True, prepare_threshold=None)  # type: ignore[arg-type]
            weakref.finalize(self, self._connection.close)  # a store that nobody closed lets go as quietly as a file
        return self._connection

    def _rows(self, connection: Connection[Any]) -> Rows:
        from psycopg.rows import tuple_row

        return connection.cursor(row_factory=tuple_row)

    def _is_prepared(self, connection: Connection[Any]) -> bool:
        if not self._prepared:
            query = "select to_regclass(%s)::oid, obj_description(to_regclass(%s), 'pg_class')"
            row = self._rows(connection).execute(query, [self._address.tables.marks] * 2).fetchone()
            table, comment = row or (None, None)
            if table is not None:
                _check_format(comment)
            self._prepared = table is not None
        return self._prepared

    def _prepare(self, connection: Connection[Any]) -> None:
        import psycopg

        tables = self._address.tables
        try:
            with self._transaction(connection):
                connection.execute(self._begin)
                self._rows(connection).execute(LOCK, [f"floodmark tables {tables}"])
                if not self._is_prepared(connection):
                    if tables.schema and not self._has_schema(connection, tables.schema):
                        connection.execute(tables.make_schema())
                    connection.execute(tables.make_tables())
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.InvalidSchemaName) as error:
            raise StoreNotPrepared(self.describe(), reason=_first_line(error), ddl=tables.ddl()) from error

    def _has_schema(self, connection: Connection[Any], schema: str) -> bool:
        found = self._rows(connection).execute("select from pg_namespace where nspname = %s", [schema])
        return found.fetchone() is not None


def _in_transaction(connection: Connection[Any]) -> bool:
    from psycopg.pq import TransactionStatus

    idle = (TransactionStatus.IDLE, TransactionStatus.UNKNOWN)  # unknown: the connection is gone
    return connection.info.transaction_status not in idle


def _check_format(comment: str | None) -> None:
    if comment is None or not comment.startswith(COMMENT):
        raise OSError("a table of that name is there, and was not made by Floodmark")
    found = comment.removeprefix(COMMENT)
    if found != str(FORMAT):
        raise OSError(f"its format is {found}, and this version of Floodmark knows {FORMAT}")


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'}"

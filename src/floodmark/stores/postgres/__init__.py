"""Marks in PostgreSQL: shared by every host of a project, readable with plain SQL, and able to move with the rows."""

from __future__ import annotations

import threading
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from floodmark.errors import StoreNotPrepared, StoreUnreachable
from floodmark.formats import require_known
from floodmark.postgres import DURABLE
from floodmark.stores.memory import MemoryPage
from floodmark.stores.paged import PagedMarkStore, utc_now
from floodmark.stores.postgres.page import COMMENT, FORMAT, PostgresPage, StoreAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from psycopg import Connection

    from floodmark.stores.postgres.page import Rows
    from floodmark.stores.record import JobRecord, Lease, Receipt
    from floodmark.stores.wire import Page


SNAPSHOT = "begin isolation level repeatable read read only"
COMMITTED = f"begin isolation level read committed; select {DURABLE}"
"""For writing: a snapshot from before the lock was got would not show what its last holder wrote."""
LOCK = "select pg_advisory_xact_lock(hashtextextended(%s, 0))"


class PostgresMarkStore(PagedMarkStore):
    """Marks in a PostgreSQL database; `select val from floodmark_marks where key = 'orders'` shows one.

    `url` is `postgresql://…?table=schema.name`. The tables are made by the first save.

    >>> store = PostgresMarkStore("postgresql://etl@db/shop?table=etl.marks")
    >>> print(store.ddl().splitlines()[0])  # for an administrator; `store.prepare()` makes the tables
    create schema if not exists "etl";
    """

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "default",
        keep_history: int = 100,
        keep_runs: int = 1000,
        patience_seconds: float = 10.0,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.address = StoreAddress.of(url)
        self._postgres = PostgresPages(self.address, namespace, patience_seconds)
        super().__init__(self._postgres, namespace=namespace, keep_history=keep_history, keep_runs=keep_runs, now=now)

    def prepare(self) -> None:
        """Make the tables, if they are not there. Raises StoreNotPrepared, with the statements, if it may not."""
        self._postgres.prepare()

    def ddl(self) -> str:
        """The statements that make the tables."""
        return self.address.tables.ddl()

    def seconds_since_beat(self, lease: Lease) -> float | None:
        """How long its owner has been silent, by the database's clock; None if this lease is no longer there."""
        with self._postgres.reading(lease.job) as page:
            return page.seconds_since_beat(lease.token) if isinstance(page, PostgresPage) else None

    def commit_within(
        self,
        connection: Connection[Any],
        record: JobRecord,
        *,
        expected: int,
        lease: Lease,
        receipt: Receipt | None = None,
    ) -> None:
        """Do what `commit` does as part of the transaction that is open on the caller's connection.

        Call it last: until that transaction ends, the heartbeat waits. Raises as `commit` does, and the caller rolls
        back; also LeaseLost if the connection leads to another database, where nobody holds this lease.
        """
        self._save_commit(self._postgres.within(connection, record.job), record, expected, lease, receipt)

    def is_reached_by(self, connection: Connection[Any], lease: Lease) -> bool:
        """Whether the connection leads to the database of this store: then this very lease is seen there."""
        tables = self.address.tables
        there = connection.execute("select to_regclass(%s)", [tables.beside("leases")]).fetchone()
        if there is None or there[0] is None:
            return False
        query = f"select 1 from {tables.beside('leases')} where namespace = %s and job = %s and val ->> 'token' = %s"
        return connection.execute(query, [self.namespace, lease.job, lease.token]).fetchone() is not None


class PostgresPages:
    """One connection, kept and opened again after a loss, with one transaction per page.

    It is used by one thread at a time: the heartbeat has a thread of its own.
    """

    def __init__(self, address: StoreAddress, namespace: str, patience_seconds: float) -> None:
        self._address, self._namespace = address, namespace
        self._begin = f"{COMMITTED}; set local lock_timeout = {int(patience_seconds * 1000)}"
        self._lock = threading.RLock()
        self._connection: Connection[Any] | None = None
        self._prepared = False

    def describe(self) -> str:
        return self._address.describe()

    def names(self) -> Sequence[str]:
        runs = self._address.tables.beside("runs")
        return self._names_in(f"{self._recorded()} union select job from {runs} where namespace = %(n)s")

    def recorded_names(self) -> Sequence[str]:
        return self._names_in(self._recorded())

    def _recorded(self) -> str:
        return f"select key from {self._address.tables.marks} where namespace = %(n)s"

    def _names_in(self, query: str) -> list[str]:
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
        if self._connection is None or self._connection.closed:
            self._prepared = False
            self._connection = self._address.connect()
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
                _check_format(comment, self.describe())
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


def _check_format(comment: str | None, where: str) -> None:
    if comment is None or not comment.startswith(COMMENT):
        raise OSError("a table of that name is there, and was not made by Floodmark")
    require_known(comment.removeprefix(COMMENT), "the table of the marks", where=where, known=FORMAT)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'}"

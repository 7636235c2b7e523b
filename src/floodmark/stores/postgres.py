"""Marks in PostgreSQL: shared by every host of a project, readable with plain SQL, and able to move with the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from floodmark.stores.paged import PagedMarkStore, utc_now
from floodmark.stores.postgres_address import Address
from floodmark.stores.postgres_page import PostgresPage
from floodmark.stores.postgres_pages import PostgresPages

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from psycopg import Connection

    from floodmark.stores.record import JobRecord, Lease, Receipt


class PostgresMarkStore(PagedMarkStore):
    """Marks in a PostgreSQL database; `select val from floodmark_marks where key = 'orders'` shows one.

    `url` is `postgresql://…?table=schema.name`. The tables are made by the first save.
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
        self.address = Address.of(url)
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

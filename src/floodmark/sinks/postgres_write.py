"""One batch on its way into PostgreSQL: straight from the tasks where they are near, else through a staging table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.errors import SinkUnreachable
from floodmark.logs import get_logger
from floodmark.probes.postgres_ledger import Entry, PostgresLedger
from floodmark.sinks.contract import Batch
from floodmark.sinks.postgres_copy import StagingOutlet, copy_rows
from floodmark.sinks.postgres_load import Load
from floodmark.sinks.postgres_pour import Pieces, StagedPieces
from floodmark.sinks.postgres_server import PostgresServer
from floodmark.sinks.postgres_staging import Staging, drop_upto
from floodmark.sinks.postgres_stream import Torn, can_stream, streaming

if TYPE_CHECKING:
    from psycopg import Connection

    Putting = Callable[[Connection, Load, Pieces, str], int]
    """Brings the pieces into the target; returns the rows that were written."""
    Joining = Callable[[Connection, int], None]
    """Called with the open transaction and the rows written, just before the commit."""

log = get_logger(__name__)


class Reached(Exception):
    """This number, or a higher one, was recorded by somebody else meanwhile."""


@dataclass(frozen=True)
class Write:
    """One attempt to write a batch; `staging` is the name that a table of it has, or would have."""

    server: PostgresServer
    batch: Batch
    ledger: PostgresLedger
    staging: Staging
    put: Putting
    joining: Joining

    def run(self, load: Load | None, *, staged: bool) -> int | None:
        """Rows of the batch, now or when it was recorded; there is no load where it was there before."""
        try:
            if load is None:
                with self.server.connect() as connection:
                    return self._repeated(connection)
            return self._staged(load) if staged or load.alters else self._streamed_if_near(load)
        finally:
            self._clean()

    def _streamed_if_near(self, load: Load) -> int | None:
        if not can_stream(load.rows.sparkSession):
            return self._staged(load)
        try:
            return self._streamed(load)
        except Torn:
            log.info("a task was lost on its way: the batch is staged instead", job=self.batch.job)
            return self._staged(load)

    def _streamed(self, load: Load) -> int | None:
        with streaming(load.rows, load.encoding) as stream:
            stream.await_first()
            with self.server.connect() as connection:
                # A COPY lasts as long as the tasks do, which says nothing about the health of the server.
                return self._commit(connection, load, stream, "SET LOCAL statement_timeout = 0")

    def _staged(self, load: Load) -> int | None:
        """No connection is kept while the tasks run: there may be a long way to them, and nothing to say."""
        with self.server.connect() as connection:
            self.staging.create(connection)
        winners = copy_rows(load.rows, load.encoding, StagingOutlet(self.staging, self.server))
        with self.server.connect() as connection:
            return self._commit(connection, load, StagedPieces(self.server, self.staging, winners))

    def _commit(self, connection: Connection, load: Load, pieces: Pieces, *settings: str) -> int | None:
        """The one transaction. The ledger is held last: a writer that stands still in the middle is in nobody's way.

        Whoever is first to record the number has written; the other's rows are taken back.
        """
        import psycopg

        try:
            with connection.transaction():
                for setting in settings:
                    connection.execute(setting.encode())
                written = self.put(connection, load, pieces, self.batch.kind)
                if self._is_reached(self.ledger.lock(connection)):
                    raise Reached
                batch = self.batch
                self.ledger.record(connection, Entry(batch.number, batch.digest, written, batch.marks))
                self.joining(connection, written)
                return written
        except (Reached, psycopg.Error):
            # What the other wrote may be what stood in our way: its table, or its keys.
            if connection.broken or not self._is_reached(self.ledger.entry(connection)):
                raise
            return self._repeated(connection)

    def _is_reached(self, entry: Entry | None) -> bool:
        return entry is not None and entry.number >= self.batch.number

    def _repeated(self, connection: Connection) -> int | None:
        with connection.transaction():
            entry = self.ledger.lock(connection)
            known = entry.rows if entry is not None and entry.number == self.batch.number else None
            self.joining(connection, known or 0)
            return known

    def _clean(self) -> None:
        """What cannot be dropped now is dropped by the next batch: it must not hide what the write has to say."""
        import psycopg

        try:
            with self.server.connect() as connection:
                drop_upto(connection, self.ledger, self.staging)
        except (psycopg.Error, SinkUnreachable) as error:
            log.info("staging tables stay for now", job=self.batch.job, reason=self.server.reason(error))

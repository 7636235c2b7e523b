"""One batch on its way into PostgreSQL: straight from the tasks where they are near, else through a staging table."""

from __future__ import annotations

import selectors
import socket
import struct
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from floodmark.errors import SinkUnreachable
from floodmark.logs import get_logger
from floodmark.sinks.contract import Batch, require_confirmed, require_own_number
from floodmark.sinks.postgres.encoding import Encoding
from floodmark.sinks.postgres.server import LedgerEntry, PostgresLedger, PostgresServer
from floodmark.sinks.postgres.statements import Load
from floodmark.sinks.postgres.transport import (
    BatchRefused,
    Chunk,
    CopyChunks,
    DriverChunks,
    StagedChunks,
    Staging,
    StagingReceiver,
    TaskReport,
    copy_rows,
    drop_upto,
)
from floodmark.sinks.small import rows_as_arrow, why_not_small

if TYPE_CHECKING:
    from psycopg import Connection
    from pyspark.sql import DataFrame, SparkSession

log = get_logger(__name__)
ATTEMPT, HEAD = struct.Struct(">q"), struct.Struct(">qq")
"""What a stream begins with; and each chunk of it: its rows, and the length of the bytes that follow."""
LONGEST_FOLDER = 70
"""Systems take about a hundred bytes for the whole path of a socket."""
BACKLOG = 128
WriteRows: TypeAlias = "Callable[[Connection, Load, CopyChunks, str], int]"
"""Brings the chunks into the target; returns the rows that were written."""
InTransaction: TypeAlias = "Callable[[Connection, int], None]"
"""Called with the open transaction and the rows written, just before the commit."""


@dataclass(frozen=True)
class Write:
    """One attempt to write a batch; `staging` is the name that a table of it has, or would have."""

    server: PostgresServer
    sink: str
    batch: Batch
    ledger: PostgresLedger
    staging: Staging
    write_rows: WriteRows
    in_transaction: InTransaction

    def run(self, load: Load | None, *, staged: bool) -> int | None:
        """Rows of the batch, now or when it was recorded; there is no load where its number was taken before."""
        try:
            if load is None:
                with self.server.connect() as connection:
                    return self._repeat(connection)
            self.batch.notes.ways[self.sink] = "spark"
            if not staged and why_not_small(self.batch.size, self._rows_before) is None:
                return self._write_small(load)
            return self._write_staged(load) if staged or load.alters else self._write_near(load)
        finally:
            self._clean()

    def _rows_before(self) -> int | None:
        with self.server.connect() as connection:
            entry = self.ledger.entry(connection)
        return entry.rows if entry else None

    def _write_small(self, load: Load) -> int | None:
        """The rows are here before the transaction begins, so nothing that it shuts is waited for."""
        arrow = rows_as_arrow(load.rows, self.batch)
        if arrow is None:
            return self._write_staged(load) if load.alters else self._write_near(load)
        self.batch.notes.ways[self.sink] = "arrow"
        with self.server.connect() as connection:
            return self._commit(connection, load, DriverChunks(arrow, load.encoding))

    def _write_near(self, load: Load) -> int | None:
        if not can_stream(load.rows.sparkSession):
            return self._write_staged(load)
        try:
            return self._write_streamed(load)
        except StreamBroken:
            log.info("a task was lost on its way: the batch is staged instead", job=self.batch.job)
            return self._write_staged(load)

    def _write_streamed(self, load: Load) -> int | None:
        with open_stream(load.rows, load.encoding) as stream:
            stream.await_first()
            with self.server.connect() as connection:
                # A COPY lasts as long as the tasks do, which says nothing about the health of the server.
                return self._commit(connection, load, stream, "SET LOCAL statement_timeout = 0")

    def _write_staged(self, load: Load) -> int | None:
        """No connection is kept while the tasks run: there may be a long way to them, and nothing to say."""
        with self.server.connect() as connection:
            self.staging.create(connection)
        receiver = StagingReceiver(self.staging, replace(self.server, keeps=False))
        winners = copy_rows(load.rows, load.encoding, receiver)
        with self.server.connect() as connection:
            return self._commit(connection, load, StagedChunks(self.server, self.staging, winners))

    def _commit(self, connection: Connection, load: Load, chunks: CopyChunks, *settings: str) -> int | None:
        """The one transaction. The ledger is held last: a writer that stands still in the middle is in nobody's way.

        Whoever is first to record the number has written, or has closed the batch: the other's rows are taken back.
        """
        import psycopg

        try:
            with connection.transaction():
                for setting in settings:
                    connection.execute(setting.encode())
                written = self.write_rows(connection, load, chunks, self.batch.kind)
                batch, entry = self.batch, self.ledger.lock(connection)
                require_confirmed(entry.recorded if entry else None, batch, self.sink, self.server.describe())
                if self._is_recorded(entry):
                    raise AlreadyRecorded
                self.ledger.record(connection, LedgerEntry(batch.number, batch.digest, written, batch.marks))
                self.in_transaction(connection, written)
                return written
        except (AlreadyRecorded, psycopg.Error):
            # What the other wrote may be what stood in our way: its table, or its keys.
            if connection.broken or not self._is_recorded(self.ledger.entry(connection)):
                raise
            return self._repeat(connection)

    def _is_recorded(self, entry: LedgerEntry | None) -> bool:
        return entry is not None and entry.number >= self.batch.number

    def _repeat(self, connection: Connection) -> int | None:
        """The rows of then. Raises Overtaken or SinkDisagrees where the number does not stand for this very batch."""
        with connection.transaction():
            entry = self.ledger.lock(connection)
            if entry is None or not self._is_recorded(entry):
                raise BatchRefused(f"its ledger had number {self.batch.number} a moment ago, and has it no more")
            require_own_number(entry.recorded, self.batch, self.sink)
            self.in_transaction(connection, entry.rows or 0)
            return entry.rows

    def _clean(self) -> None:
        """What cannot be dropped now is dropped by the next batch: it must not hide what the write has to say."""
        import psycopg

        try:
            with self.server.connect() as connection:
                drop_upto(connection, self.ledger, self.staging)
        except (psycopg.Error, SinkUnreachable) as error:
            log.info("staging tables stay for now", job=self.batch.job, reason=self.server.reason(error))


class AlreadyRecorded(Exception):
    """This number, or a higher one, was recorded by somebody else meanwhile."""


class StreamBroken(Exception):
    """What arrived is not what Spark took: a task was lost after it had sent rows, and another did its work."""


def can_stream(spark: SparkSession) -> bool:
    """Whether the tasks run on this machine, as children of this driver's own JVM, and can reach a socket here."""
    import tempfile

    from floodmark.spark.gateway import is_connect
    from floodmark.spark.session import is_local

    has_room = hasattr(socket, "AF_UNIX") and len(tempfile.gettempdir()) <= LONGEST_FOLDER
    return has_room and not is_connect(spark) and is_local(spark.conf.get("spark.master", "") or "")


@contextmanager
def open_stream(rows: DataFrame, encoding: Encoding) -> Iterator[TaskStream]:
    """Start the tasks, which go on meanwhile; on leaving they have ended, one way or the other."""
    import tempfile

    from pyspark import InheritableThread

    with ExitStack() as stack:
        path = str(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fm-"))) / "s")
        listener = stack.enter_context(closing(socket.socket(socket.AF_UNIX)))
        listener.bind(path)
        listener.listen(BACKLOG)
        wakeup, waker = socket.socketpair()
        stream = TaskStream(listener, stack.enter_context(closing(wakeup)))

        def run() -> None:
            with waker:
                try:
                    stream.tasks.set_result(copy_rows(rows, encoding, SocketReceiver(path)))
                except BaseException as error:  # noqa: BLE001 (who takes the chunks raises it)
                    stream.tasks.set_exception(error)

        tasks = InheritableThread(target=run, session=rows.sparkSession)
        tasks.start()
        stack.callback(tasks.join)
        stack.callback(stream.close)
        yield stream


@dataclass(frozen=True)
class SocketReceiver:
    """The driver's socket. What a task has sent counts if Spark takes its report, and only then."""

    path: str

    def receive(self, attempt: int, chunks: Iterator[Chunk]) -> int:
        rows = 0
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(self.path)
            stream.sendall(ATTEMPT.pack(attempt))
            for chunk in chunks:
                stream.sendall(HEAD.pack(chunk.rows, len(chunk.content)))
                stream.sendall(chunk.content)
                rows += chunk.rows
        return rows


@dataclass
class TaskStream:
    """The running tasks of a batch and what they have sent; `wakeup` can be read once they have ended."""

    listener: socket.socket
    wakeup: socket.socket
    tasks: Future[tuple[TaskReport, ...]] = field(default_factory=Future)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _rows_by_attempt: dict[int, int] = field(default_factory=dict)
    _first_chunks: list[Chunk] = field(default_factory=list)

    def __post_init__(self) -> None:
        for each in (self.listener, self.wakeup):
            self._selector.register(each, selectors.EVENT_READ)

    @property
    def reported_rows(self) -> int:
        return sum(each.rows for each in self.tasks.result())

    def await_first(self) -> None:
        """Until there is something to write: no transaction need be open before. Raises what the tasks raised."""
        first = next(self._arrivals(), None)
        if first is None:
            self.tasks.result()
        else:
            self._first_chunks.append(first)

    def read(self) -> Generator[Chunk, None, None]:
        """As they come, from whichever task. Raises StreamBroken, or what the tasks raised."""
        yield from self._first_chunks
        self._first_chunks.clear()
        yield from self._arrivals()
        winners = {each.attempt: each.rows for each in self.tasks.result() if each.rows}
        if winners != self._rows_by_attempt:
            raise StreamBroken

    def close(self) -> None:
        """A task that is still at work finds nobody there, and fails."""
        for key in list((self._selector.get_map() or {}).values()):  # None once it is closed
            self._end(key.fileobj)
        self._selector.close()

    def _arrivals(self) -> Iterator[Chunk]:
        """A task closes its stream before it reports: once all have, whatever is not read yet can be read at once."""
        while True:
            ended = self.tasks.done()
            ready = self._selector.select(0 if ended else None)
            if ended and not ready:
                return
            for key, _ in ready:
                if key.fileobj is self.listener:
                    self._accept()
                elif (chunk := self._next(key)) is None:
                    self._end(key.fileobj)
                else:
                    self._rows_by_attempt[key.data] = self._rows_by_attempt.get(key.data, 0) + chunk.rows
                    yield chunk

    def _accept(self) -> None:
        stream, _ = self.listener.accept()
        head = receive(stream, ATTEMPT.size)
        if head is None:
            stream.close()
        else:
            self._selector.register(stream, selectors.EVENT_READ, data=ATTEMPT.unpack(head)[0])

    def _next(self, key: selectors.SelectorKey) -> Chunk | None:
        """None where the stream ends, be it in the middle of a chunk; the wakeup never says more than that."""
        stream = key.fileobj
        head = receive(stream, HEAD.size) if isinstance(stream, socket.socket) else None
        if head is None or not isinstance(stream, socket.socket):
            return None
        rows, length = HEAD.unpack(head)
        content = receive(stream, length)
        return None if content is None else Chunk(rows, content)

    def _end(self, stream: object) -> None:
        if isinstance(stream, socket.socket):
            self._selector.unregister(stream)
            stream.close()


def receive(stream: socket.socket, size: int) -> memoryview | None:
    """So many bytes, or None if the other side ended before."""
    content, place = memoryview(bytearray(size)), 0
    while place < size:
        try:
            count = stream.recv_into(content[place:])
        except ConnectionResetError:
            return None
        if not count:
            return None
        place += count
    return content

"""One batch on its way into PostgreSQL: straight from the tasks where they are near, else through a staging table."""

from __future__ import annotations

import selectors
import socket
import struct
import tempfile
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.errors import SinkUnreachable
from floodmark.logs import get_logger
from floodmark.sinks.contract import Batch
from floodmark.sinks.postgres.encoding import Encoding
from floodmark.sinks.postgres.server import Entry, PostgresLedger, PostgresServer
from floodmark.sinks.postgres.statements import Load
from floodmark.sinks.postgres.transport import (
    Copied,
    Piece,
    Pieces,
    StagedPieces,
    Staging,
    StagingOutlet,
    copy_rows,
    drop_upto,
)
from floodmark.spark.session import is_connect, is_local

if TYPE_CHECKING:
    from psycopg import Connection
    from pyspark.sql import DataFrame, SparkSession


log = get_logger(__name__)
# A batch that streams from the tasks into the transaction while they run: for tasks on the driver's own machine.
ATTEMPT, HEAD = struct.Struct(">q"), struct.Struct(">qq")
"""What a stream begins with; and each piece of it: its rows, and the length of the bytes that follow."""
LONGEST_FOLDER = 70
"""Systems take about a hundred bytes for the whole path of a socket."""
WAITING = 128


class Torn(Exception):
    """What arrived is not what Spark took: a task was lost after it had sent rows, and another did its work."""


@dataclass(frozen=True)
class SocketOutlet:
    """The driver's socket. What a task has sent counts if Spark takes its report, and only then."""

    path: str

    def put(self, attempt: int, pieces: Iterator[Piece]) -> int:
        rows = 0
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(self.path)
            stream.sendall(ATTEMPT.pack(attempt))
            for piece in pieces:
                stream.sendall(HEAD.pack(piece.rows, len(piece.content)))
                stream.sendall(piece.content)
                rows += piece.rows
        return rows


@dataclass
class Stream:
    """The running tasks of a batch and what they have sent; `bell` can be read once they have ended."""

    listener: socket.socket
    bell: socket.socket
    tasks: Future[tuple[Copied, ...]] = field(default_factory=Future)
    _open: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _arrived: dict[int, int] = field(default_factory=dict)
    _first: list[Piece] = field(default_factory=list)

    def __post_init__(self) -> None:
        for each in (self.listener, self.bell):
            self._open.register(each, selectors.EVENT_READ)

    @property
    def reported(self) -> int:
        return sum(each.rows for each in self.tasks.result())

    def await_first(self) -> None:
        """Until there is something to write: no transaction need be open before. Raises what the tasks raised."""
        first = next(self._arriving(), None)
        if first is None:
            self.tasks.result()
        else:
            self._first.append(first)

    def taken(self) -> Generator[Piece, None, None]:
        """As they come, from whichever task. Raises Torn, or what the tasks raised."""
        yield from self._first
        self._first.clear()
        yield from self._arriving()
        winners = {each.attempt: each.rows for each in self.tasks.result() if each.rows}
        if winners != self._arrived:
            raise Torn

    def close(self) -> None:
        """A task that is still at work finds nobody there, and fails."""
        for key in list((self._open.get_map() or {}).values()):  # None once it is closed
            self._end(key.fileobj)
        self._open.close()

    def _arriving(self) -> Iterator[Piece]:
        """A task closes its stream before it reports: once all have, whatever is not read yet can be read at once."""
        while True:
            ended = self.tasks.done()
            ready = self._open.select(0 if ended else None)
            if ended and not ready:
                return
            for key, _ in ready:
                if key.fileobj is self.listener:
                    self._accept()
                elif (piece := self._next(key)) is None:
                    self._end(key.fileobj)
                else:
                    self._arrived[key.data] = self._arrived.get(key.data, 0) + piece.rows
                    yield piece

    def _accept(self) -> None:
        stream, _ = self.listener.accept()
        head = received(stream, ATTEMPT.size)
        if head is None:
            stream.close()
        else:
            self._open.register(stream, selectors.EVENT_READ, data=ATTEMPT.unpack(head)[0])

    def _next(self, key: selectors.SelectorKey) -> Piece | None:
        """None where the stream ends, be it in the middle of a piece; the bell never says more than that."""
        stream = key.fileobj
        head = received(stream, HEAD.size) if isinstance(stream, socket.socket) else None
        if head is None or not isinstance(stream, socket.socket):
            return None
        rows, length = HEAD.unpack(head)
        content = received(stream, length)
        return None if content is None else Piece(rows, content)

    def _end(self, stream: object) -> None:
        if isinstance(stream, socket.socket):
            self._open.unregister(stream)
            stream.close()


def received(stream: socket.socket, size: int) -> memoryview | None:
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


def can_stream(spark: SparkSession) -> bool:
    """Whether the tasks run on this machine, as children of this driver's own JVM, and can reach a socket here."""
    has_room = hasattr(socket, "AF_UNIX") and len(tempfile.gettempdir()) <= LONGEST_FOLDER
    return has_room and not is_connect(spark) and is_local(spark.conf.get("spark.master", "") or "")


@contextmanager
def streaming(rows: DataFrame, encoding: Encoding) -> Iterator[Stream]:
    """Start the tasks, which go on meanwhile; on leaving they have ended, one way or the other."""
    from pyspark import InheritableThread

    with ExitStack() as stack:
        path = str(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fm-"))) / "s")
        listener = stack.enter_context(closing(socket.socket(socket.AF_UNIX)))
        listener.bind(path)
        listener.listen(WAITING)
        bell, rope = socket.socketpair()
        stream = Stream(listener, stack.enter_context(closing(bell)))

        def run() -> None:
            with rope:
                try:
                    stream.tasks.set_result(copy_rows(rows, encoding, SocketOutlet(path)))
                except BaseException as error:  # noqa: BLE001 (who takes the pieces raises it)
                    stream.tasks.set_exception(error)

        tasks = InheritableThread(target=run, session=rows.sparkSession)
        tasks.start()
        stack.callback(tasks.join)
        stack.callback(stream.close)
        yield stream


if TYPE_CHECKING:
    Putting = Callable[[Connection, Load, Pieces, str], int]
    """Brings the pieces into the target; returns the rows that were written."""
    Joining = Callable[[Connection, int], None]
    """Called with the open transaction and the rows written, just before the commit."""


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

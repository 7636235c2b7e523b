"""How the bytes of a batch travel: tasks encode their rows and hand on chunks, the driver copies these into a table.

The driver passes bytes on and never looks at a row. Chunks that cannot go straight to the driver wait in the staging
table of one attempt; only what a winning task reported ever leaves it.
"""

from __future__ import annotations

import hashlib
import selectors
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from floodmark.errors import SinkUnreachable
from floodmark.logs import get_logger
from floodmark.sinks.postgres.encoding import Encoding
from floodmark.sinks.postgres.server import PostgresLedger, PostgresServer
from floodmark.sinks.postgres.target import TargetColumn
from floodmark.spark.faults import fault_text

if TYPE_CHECKING:
    import pyarrow as pa
    from psycopg import BaseConnection, Connection, Copy
    from psycopg.sql import Composed
    from pyspark.sql import DataFrame

log = get_logger(__name__)
REPORT = "task int, attempt long, rows long"
UNREACHABLE = "unreachable: "
"""Begins the reason of a task that lost its server, so that the driver can tell it from one that was refused."""
MOST_BYTES = 16 * 1024 * 1024
"""About so many in a chunk: the driver holds a few of them, however large a batch is. A wider row goes alone."""
COLUMNS = "attempt bigint, place integer, rows bigint, bytes bytea"
"""Which try of which task it was (Spark gives no number twice in an application), and its stream in chunks."""
LEFT_BEHIND = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relkind = 'r' AND starts_with(c.relname, %s) AND c.relname COLLATE "C" <= %s
ORDER BY 1
"""


@dataclass(frozen=True)
class Chunk:
    """Some whole rows of a task's stream: those of other tasks may come before and behind them."""

    rows: int
    content: bytes | memoryview


@dataclass(frozen=True)
class TaskReport:
    """What one task reported: which try of which partition, and how many rows it put there."""

    task: int
    attempt: int
    rows: int


def copy_rows(rows: DataFrame, encoding: Encoding, receiver: ChunkReceiver) -> tuple[TaskReport, ...]:
    """Run the tasks; for each partition the one try that Spark took, however many there were."""
    reports = rows.mapInArrow(copier(encoding, receiver), REPORT).collect()
    return tuple(TaskReport(row.task, row.attempt, row.rows) for row in reports)


def copier(
    encoding: Encoding, receiver: ChunkReceiver
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does. An attempt's id is unique in the application; its number is not, when a stage is redone."""

    def copy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        task, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
        count = receiver.receive(attempt, chunks_of(batches, encoding))
        report = {"task": [task], "attempt": [attempt], "rows": [count]}
        schema = pa.schema([("task", pa.int32()), ("attempt", pa.int64()), ("rows", pa.int64())])
        yield pa.RecordBatch.from_pydict(report, schema=schema)

    return copy


def chunks_of(batches: Iterator[pa.RecordBatch], encoding: Encoding) -> Iterator[Chunk]:
    """The task's stream. Chunks of several tasks are passed on alternately, so each of them ends where a row does."""
    for batch in batches:
        for part in row_parts(batch):
            yield Chunk(part.num_rows, encoding.encode(part))


def row_parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch, cut in two between rows until every part is small enough, or one row; none of a batch without rows.

    Widths differ from row to row, so each part is asked how large it is: an average would let the wide ones together.
    """
    if batch.num_rows > 1 and batch.nbytes > MOST_BYTES:
        half = batch.num_rows // 2
        yield from row_parts(batch.slice(0, half))
        yield from row_parts(batch.slice(half))
    elif batch.num_rows:
        yield batch


class ChunkReceiver(Protocol):
    """Where the chunks of a task go: picklable, as the tasks may run elsewhere."""

    def receive(self, attempt: int, chunks: Iterator[Chunk]) -> int:
        """All chunks of one try of a task, or an error; returns how many rows they hold. Called in the task."""


class CopyChunks(Protocol):
    """A batch in chunks of the stream that COPY takes."""

    @property
    def reported_rows(self) -> int:
        """Rows, as the tasks counted them; known once every chunk was taken."""

    def read(self) -> Generator[Chunk, None, None]:
        """One chunk after the other; an error unless they were all that the tasks have."""


@dataclass(frozen=True)
class CopyIn:
    """A batch on its way into a table by COPY; its rows have these columns, in this order."""

    encoding: Encoding
    columns: tuple[TargetColumn, ...]
    chunks: CopyChunks

    @property
    def reported_rows(self) -> int:
        """Rows, as the tasks counted them; known once the batch was copied."""
        return self.chunks.reported_rows

    def into(self, connection: Connection, table: Composed) -> int:
        """Rows that the table took. Raises BatchRefused unless they are all that the tasks reported."""
        from psycopg.sql import SQL, Identifier

        names = SQL(", ").join(Identifier(column.name) for column in self.columns)
        statement = SQL("COPY {} ({}) FROM STDIN ({})").format(table, names, SQL(self.encoding.options))
        connection.execute("SET LOCAL client_encoding = 'UTF8'")
        with connection.cursor() as cursor:
            with cursor.copy(statement) as copy:
                copy.write(self.encoding.opening)
                self._pass_on(copy)
                copy.write(self.encoding.closing)
            return cursor.rowcount

    def _pass_on(self, copy: Copy) -> None:
        with closing(self.chunks.read()) as chunks:
            for chunk in chunks:
                copy.write(chunk.content)
                await_sent(copy.connection)


def await_sent(connection: BaseConnection[Any]) -> None:
    """Until the server has taken what was written: the driver's library would keep all of a large batch for it."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection.fileno(), selectors.EVENT_READ | selectors.EVENT_WRITE)
        while connection.pgconn.flush():
            for _, events in selector.select():
                if events & selectors.EVENT_READ:
                    connection.pgconn.consume_input()


class BatchRefused(Exception):
    """The batch cannot be moved; the text is the reason."""


def require_all(staged: int, reported: int) -> int:
    """A staging table without a log is empty after a crash of the server: then nothing is moved."""
    if staged != reported:
        raise BatchRefused(f"the tasks copied {reported} rows, but {staged} are staged: the server lost some")
    return staged


@dataclass(frozen=True)
class StagingReceiver:
    """A staging table of the server, which every task can reach."""

    staging: Staging
    server: PostgresServer

    def receive(self, attempt: int, chunks: Iterator[Chunk]) -> int:
        """In one transaction. Without rows there is no connection."""
        import psycopg

        first = next(chunks, None)
        if first is None:
            return 0
        try:
            with self.server.connect() as connection:
                return self.staging.insert(connection, attempt, chain([first], chunks))
        except SinkUnreachable as error:
            raise RuntimeError(fault_text("sink", f"{UNREACHABLE}{error.reason}")) from None
        except psycopg.Error as error:
            raise RuntimeError(fault_text("sink", self.server.reason(error))) from None


@dataclass(frozen=True)
class DriverChunks:
    """A small batch, whose rows have come to the driver: no task writes, and nothing waits on the server."""

    arrow: pa.Table
    encoding: Encoding

    @property
    def reported_rows(self) -> int:
        return int(self.arrow.num_rows)

    def read(self) -> Generator[Chunk, None, None]:
        yield from chunks_of(iter(self.arrow.to_batches()), self.encoding)


@dataclass(frozen=True)
class StagedChunks:
    """What the winning tasks staged."""

    server: PostgresServer
    staging: Staging
    winners: Sequence[TaskReport]

    @property
    def reported_rows(self) -> int:
        return sum(each.rows for each in self.winners)

    def read(self) -> Generator[Chunk, None, None]:
        """Through a connection of its own, as the other one is in the middle of its COPY."""
        staged = 0
        with self.server.connect() as reader, closing(self.staging.chunks(reader, self.winners)) as chunks:
            for chunk in chunks:
                yield chunk
                staged += chunk.rows
        require_all(staged, self.reported_rows)


@dataclass(frozen=True)
class Staging:
    """A table beside the target. Names of one ledger sort by the time they were made, by the server's clock."""

    schema: str
    name: str

    @classmethod
    def new(cls, connection: Connection, ledger: PostgresLedger, attempt: str) -> Staging:
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

    def insert(self, connection: Connection, attempt: int, chunks: Iterator[Chunk]) -> int:
        """A task's chunks, all of them or none; returns how many rows they hold."""
        from psycopg.sql import SQL

        insert, rows = SQL("INSERT INTO {} VALUES (%s, %s, %s, %b)").format(self.sql), 0
        with connection.transaction(), connection.cursor() as cursor:
            # What is staged need not be durable before it is moved, and the move's own commit waits for all before it.
            cursor.execute("SET LOCAL synchronous_commit = off")
            for place, chunk in enumerate(chunks):
                cursor.execute(insert, [attempt, place, chunk.rows, chunk.content])
                rows += chunk.rows
        return rows

    def chunks(self, connection: Connection, winners: Sequence[TaskReport]) -> Generator[Chunk, None, None]:
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
                yield Chunk(rows, content)


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
    return f"_fm_stage_{hashlib.sha256(ledger.key.encode()).hexdigest()[:10]}_"

"""What the tasks do: bring their rows into the form that COPY takes, and hand the bytes to an outlet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from floodmark.errors import SinkUnreachable
from floodmark.sinks.postgres_encoding import Encoding
from floodmark.sinks.postgres_server import PostgresServer
from floodmark.sinks.postgres_staging import Copied, Piece, Staging
from floodmark.sinks.refusals import BEGIN, END

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

REPORT = "task int, attempt long, rows long"
UNREACHABLE = "unreachable: "
"""Begins the reason of a task that lost its server, so that the driver can tell it from one that was refused."""
MOST_BYTES = 16 * 1024 * 1024
"""Of a piece: the driver holds a few of them, however large a batch is."""


class Outlet(Protocol):
    """Where the pieces of a task go: picklable, as the tasks may run elsewhere."""

    def put(self, attempt: int, pieces: Iterator[Piece]) -> int:
        """All pieces of one try of a task, or an error; returns how many rows they hold. Called in the task."""


@dataclass(frozen=True)
class StagingOutlet:
    """A staging table of the server, which every task can reach."""

    staging: Staging
    server: PostgresServer

    def put(self, attempt: int, pieces: Iterator[Piece]) -> int:
        """In one transaction. Without rows there is no connection."""
        import psycopg

        first = next(pieces, None)
        if first is None:
            return 0
        try:
            with self.server.connect() as connection:
                return self.staging.put(connection, attempt, chain([first], pieces))
        except SinkUnreachable as error:
            raise RuntimeError(f"{BEGIN} {UNREACHABLE}{error.reason} {END}") from None
        except psycopg.Error as error:
            raise RuntimeError(f"{BEGIN} {self.server.reason(error)} {END}") from None


def copy_rows(rows: DataFrame, encoding: Encoding, outlet: Outlet) -> tuple[Copied, ...]:
    """Run the tasks; for each partition the one try that Spark took, however many there were."""
    reports = rows.mapInArrow(copier(encoding, outlet), REPORT).collect()
    return tuple(Copied(row.task, row.attempt, row.rows) for row in reports)


def copier(encoding: Encoding, outlet: Outlet) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does. An attempt's id is unique in the application; its number is not, when a stage is redone."""

    def copy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        task, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
        count = outlet.put(attempt, pieces_of(batches, encoding))
        report = {"task": [task], "attempt": [attempt], "rows": [count]}
        schema = pa.schema([("task", pa.int32()), ("attempt", pa.int64()), ("rows", pa.int64())])
        yield pa.RecordBatch.from_pydict(report, schema=schema)

    return copy


def pieces_of(batches: Iterator[pa.RecordBatch], encoding: Encoding) -> Iterator[Piece]:
    """The task's stream; rows are counted where the bytes of their batch begin."""
    for batch in batches:
        stream = encoding.encoded(batch)
        for begin in range(0, len(stream), MOST_BYTES):
            yield Piece(0 if begin else batch.num_rows, stream[begin : begin + MOST_BYTES])

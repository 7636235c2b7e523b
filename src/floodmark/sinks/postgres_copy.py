"""Copying rows from the tasks into a staging table: Arrow writes the text, PostgreSQL's COPY reads it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from floodmark.errors import SinkUnreachable
from floodmark.sinks.postgres_server import PostgresServer
from floodmark.sinks.postgres_staging import ATTEMPT, Copied, Staging
from floodmark.sinks.refusals import BEGIN, END

if TYPE_CHECKING:
    import pyarrow as pa
    from psycopg import Cursor
    from psycopg.sql import Composed
    from pyspark.sql import DataFrame

REPORT = "task int, attempt long, rows long"
UNREACHABLE = "unreachable: "
"""Begins the reason of a task that lost its server, so that the driver can tell it from rows that do not fit."""


def copy_rows(rows: DataFrame, staging: Staging, server: PostgresServer) -> tuple[Copied, ...]:
    """Run the tasks; for each partition the one try that Spark took, however many there were."""
    reports = rows.mapInArrow(copier(staging, server), REPORT).collect()
    return tuple(Copied(row.task, row.attempt, row.rows) for row in reports)


def copier(staging: Staging, server: PostgresServer) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does. An attempt's id is unique in the application; its number is not, when a stage is redone."""

    def copy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        task, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
        filled = (batch for batch in batches if batch.num_rows)
        count = copy_task(filled, Copied(task, attempt, 0), staging, server)
        report = {"task": [task], "attempt": [attempt], "rows": [count]}
        schema = pa.schema([("task", pa.int32()), ("attempt", pa.int64()), ("rows", pa.int64())])
        yield pa.RecordBatch.from_pydict(report, schema=schema)

    return copy


def copy_task(batches: Iterator[pa.RecordBatch], own: Copied, staging: Staging, server: PostgresServer) -> int:
    """Copy one task's rows in one statement: all of them are there, or none. Without rows there is no connection."""
    import psycopg

    first = next(batches, None)
    if first is None:
        return 0
    try:
        with server.connect() as connection, connection.transaction(), connection.cursor() as cursor:
            # What is staged need not be durable before it is moved, and the move's own commit waits for all before it.
            cursor.execute("SET LOCAL synchronous_commit = off; SET LOCAL TimeZone = 'UTC'")
            _write(cursor, staging.copy_statement(), first, batches, own)
            return cursor.rowcount
    except SinkUnreachable as error:
        raise RuntimeError(f"{BEGIN} {UNREACHABLE}{error.reason} {END}") from None
    except psycopg.Error as error:
        raise RuntimeError(f"{BEGIN} {explained(error, staging, server)} {END}") from None


def _write(
    cursor: Cursor, statement: Composed, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch], own: Copied
) -> None:
    with cursor.copy(statement) as copy:
        copy.write(as_csv(first, own))
        for batch in rest:
            copy.write(as_csv(batch, own))


def as_csv(batch: pa.RecordBatch, own: Copied) -> memoryview:
    """The rows with their attempt; every text is quoted, so that an empty one is not taken for NULL."""
    import pyarrow as pa
    from pyarrow import csv

    names = [f"c{place}" for place in range(batch.num_columns)]
    attempts = pa.repeat(pa.scalar(own.attempt), batch.num_rows)
    whole = pa.RecordBatch.from_arrays([*map(_in_utc, batch.columns), attempts], [*names, ATTEMPT])
    text = io.BytesIO()
    csv.write_csv(whole, text, csv.WriteOptions(include_header=False, quoting_style="needed", batch_size=10_000))
    return text.getbuffer()


def _in_utc(column: pa.Array) -> pa.Array:
    """Instants as UTC without saying so, which the session knows: Arrow writes a zone at ten times the cost."""
    import pyarrow as pa

    has_zone = pa.types.is_timestamp(column.type) and column.type.tz
    return column.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us")) if has_zone else column


def explained(error: Exception, staging: Staging, server: PostgresServer) -> str:
    """What PostgreSQL refused, in the sink's words where it was a rule of the sink."""
    column = getattr(getattr(error, "diag", None), "column_name", None)
    if getattr(error, "sqlstate", None) == "23502" and column in staging.key:
        return f"key column {column} is NULL in a row: a merge needs every key"
    return server.reason(error)

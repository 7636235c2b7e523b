"""Eight sessions write while a loop reads: at the end the reader has what the table has, whatever came late."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import psycopg
import pytest

from floodmark import Job, sinks, stores
from floodmark.sources import Postgres
from floodmark.sources.table_cursor import Cursor
from tests.crash.readers import Reader
from tests.crash.writers import TABLE, Crowd

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from floodmark.stores.contract import MarkStore

Rows = dict[int, tuple[int, str]]


def rows_of(database: str) -> Rows:
    with psycopg.connect(database) as connection:
        return {number: (v, at) for number, v, at in connection.execute("select id, v, updated_at::text from o")}


def read_while_they_write(database: str, readers: Sequence[Reader], seconds: float, seed: int) -> Crowd:
    with psycopg.connect(database) as connection:
        connection.execute(TABLE.encode())
    crowd = Crowd(database, seed=seed)
    with ExitStack() as stack:
        for reader in readers:
            stack.enter_context(reader.reading())
        stack.enter_context(crowd.writing())  # ends first, so that the readers meet everything
        time.sleep(seconds)
    return crowd


def by(database: str, cursor: str, safety: str | None = None) -> Reader:
    return Reader(Postgres(database, "o", cursor=Cursor(cursor, safety=safety), key=["id"], name=f"by-{cursor}"))


def prove_that_nothing_is_lost(database: str, seconds: float, seed: int = 1) -> None:
    sequence, updated, transaction, unsafe = (
        by(database, "id"),
        by(database, "updated_at"),
        by(database, "xmin"),
        by(database, "id", safety="none"),
    )
    crowd = read_while_they_write(database, [sequence, updated, transaction, unsafe], seconds, seed)
    source = rows_of(database)
    assert crowd.transactions > 4 * seconds
    assert (set(source) - set(sequence.newest), set(sequence.delivered.values())) == (set(), {1})
    assert updated.newest == source
    assert transaction.newest == source
    assert sequence.held_at_most > 0
    assert set(source) - set(unsafe.newest), "without safety rows are lost, or this test could not see it"


def test_no_row_is_lost_while_eight_sessions_write_for_some_seconds(database: str) -> None:
    """By a sequence, by updated_at and by xmin; the same without safety loses rows."""
    prove_that_nothing_is_lost(database, seconds=6)


@pytest.mark.crash
@pytest.mark.parametrize("seed", [2, 3])
def test_no_row_is_lost_while_eight_sessions_write_for_a_minute(database: str, seed: int) -> None:
    """By a sequence, by updated_at and by xmin; the same without safety loses rows."""
    prove_that_nothing_is_lost(database, seconds=60, seed=seed)


@pytest.mark.crash
def test_a_job_into_delta_loses_nothing_and_repeats_nothing_while_they_write(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    """The whole way, every 200 ms: look, lease, read through Spark, append, raise the mark."""
    with psycopg.connect(database) as connection:
        connection.execute(TABLE.encode())
    source = Postgres(database, "o", cursor="id")
    job = Job(name="o", source=source, sinks=[sinks.Delta(f"{tmp_path}/lake")])
    store, crowd = stores.open(f"sqlite:///{tmp_path}/marks.db"), Crowd(database, seed=4)
    with crowd.writing():
        batches = runs_for(job, spark, store, seconds=40)
    job.run(spark, store)
    delivered = [row["id"] for row in spark.read.format("delta").load(f"{tmp_path}/lake").select("id").collect()]
    assert sorted(delivered) == sorted(rows_of(database))
    assert batches > 10


def runs_for(job: Job, spark: SparkSession, store: MarkStore, seconds: float) -> int:
    """How many batches a loop does in so many seconds."""
    deadline, batches = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        receipt = job.run(spark, store, waits_for_settling=False)
        batches += receipt.batches
        time.sleep(0.2)
    return batches

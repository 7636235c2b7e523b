"""Eight sessions write while a loop reads: at the end the reader has what the table has, whatever came late."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
import pytest

from floodmark import Job, sinks, stores
from floodmark.sources import Postgres
from floodmark.sources.tables.cursor import Cursor
from tests.crash.readers import Reader
from tests.crash.writers import TABLE, Crowd

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from floodmark.stores.contract import MarkStore

Rows = dict[int, tuple[int, str]]
PATIENCE_SECONDS = 200


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


@dataclass(frozen=True)
class Found:
    """How four readers did: what each lacks or has otherwise, in the words of a test."""

    by_sequence: Rows
    by_time: Rows
    by_transaction: Rows
    without_safety: Rows
    times_delivered: set[int]
    """How often a row came, by the sequence: an append must get each once."""
    waited: bool


def read_four_ways(database: str, seconds: float, seed: int) -> Found:
    sequence, updated, transaction = by(database, "id"), by(database, "updated_at"), by(database, "xmin")
    unsafe = by(database, "id", safety="none")
    crowd = read_while_they_write(database, [sequence, updated, transaction, unsafe], seconds, seed)
    source = rows_of(database)
    assert crowd.transactions > 4 * seconds
    return Found(
        by_sequence={number: row for number, row in source.items() if number not in sequence.newest},
        by_time=dict(set(source.items()) ^ set(updated.newest.items())),
        by_transaction=dict(set(source.items()) ^ set(transaction.newest.items())),
        without_safety={number: row for number, row in source.items() if number not in unsafe.newest},
        times_delivered=set(sequence.delivered.values()),
        waited=sequence.held_at_most > 0,
    )


def test_no_row_is_lost_while_eight_sessions_write_for_some_seconds(database: str) -> None:
    """By a sequence, by updated_at and by xmin; the same without safety loses rows, so this test can see it."""
    found = read_four_ways(database, seconds=6, seed=1)
    assert (found.by_sequence, found.by_time, found.by_transaction) == ({}, {}, {})
    assert (found.times_delivered, found.waited, found.without_safety != {}) == ({1}, True, True)


@pytest.mark.crash
@pytest.mark.parametrize("seed", [2, 3])
def test_no_row_is_lost_while_eight_sessions_write_for_a_minute(database: str, seed: int) -> None:
    """The same for long enough to meet what is rare."""
    found = read_four_ways(database, seconds=60, seed=seed)
    assert (found.by_sequence, found.by_time, found.by_transaction) == ({}, {}, {})
    assert (found.times_delivered, found.waited, found.without_safety != {}) == ({1}, True, True)


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
        batches = runs_for(job, spark, store, seconds=40, at_least=11)
    job.run(spark, store)
    delivered = [row["id"] for row in spark.read.format("delta").load(f"{tmp_path}/lake").select("id").collect()]
    assert sorted(delivered) == sorted(rows_of(database))
    assert batches > 10


def runs_for(job: Job, spark: SparkSession, store: MarkStore, seconds: float, at_least: int) -> int:
    """How many batches a loop does in so many seconds, or in longer where a busy machine needs it for so many."""
    begun, batches = time.monotonic(), 0
    while (passed := time.monotonic() - begun) < seconds or (batches < at_least and passed < PATIENCE_SECONDS):
        receipt = job.run(spark, store, waits_for_settling=False)
        batches += receipt.batches
        time.sleep(0.2)
    return batches

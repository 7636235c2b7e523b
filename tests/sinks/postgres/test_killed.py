"""The PostgreSQL sink when processes and tasks die in the middle of a write: run as a program, this is who dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import floodmark as fm
from floodmark.failpoints import half_way
from floodmark.hwm import HWM, ColumnIntHWM, Span
from floodmark.sinks import Postgres
from floodmark.sinks.postgres.encoding import BinaryRows
from floodmark.sources.contract import Immutable, Reading, Request, Session, Sight
from floodmark.spark.session import spark_session
from tests.sinks.batches import batch
from tests.sinks.postgres.test_postgres import LEDGER, ask, staging_tables, wait_until_held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    Child = subprocess.Popen[bytes]

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[3]
IDS = [(number,) for number in range(1000)]


def thousand(spark: SparkSession) -> DataFrame:
    return spark.range(0, 1000, 1, 2)


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dies_after_copying(url: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Leaves, on the first try of a task, what a task leaves that copied its rows and was lost before it said so."""

    def passed_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        ((table,),) = staging_tables(url)
        for rows in batches:
            if context.attemptNumber() == 0:
                staged = f"({context.taskAttemptId()}, 0, {len(rows)}, '\\x{BinaryRows(('int8',)).encode(rows).hex()}')"
                ask(url, f"insert into {table} values {staged}")
                raise RuntimeError("the executor is lost")
            yield rows

    return passed_on


def dies_after_sending(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On the first try of the second task, when some of its rows are on their way."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    for rows in batches:
        yield rows.slice(0, 100)
        if (context.partitionId(), context.attemptNumber()) == (1, 0):
            raise RuntimeError("the task is lost")
        yield rows.slice(100)


def waits_on_its_way(folder: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Every task stands still when some of its rows are with the server, until it may go on."""

    def passed_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            yield rows.slice(0, 100)
            (folder / "waits").touch()
            while not (folder / "goes on").exists():
                time.sleep(0.05)
            yield rows.slice(100)

    return passed_on


class LosingTask(Immutable):
    """A source whose second task is lost once, when some of its rows are on their way."""

    name = "numbers"

    def fingerprint(self, session: Session) -> str:
        return "numbers"

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        return Sight(Span(None, ColumnIntHWM(self.name, 1000)))

    def read(self, spark: SparkSession, span: Span) -> Reading:
        rows = thousand(spark)
        return Reading(rows.mapInArrow(dies_after_sending, rows.schema))


def main(url: str, fate: str, folder: str = "") -> None:
    spark = spark_session({"spark.master": "local[2,4]", "spark.driver.memory": "512m"}, app_name="dies")
    rows, sink = thousand(spark), Postgres(url, "orders", staged=fate in ("retry", "move"))
    if fate == "before commit":
        sink.write_joined(rows, batch(1), lambda _connection, _rows: killed())
    elif fate == "retry":
        sink.write(rows.mapInArrow(dies_after_copying(url), rows.schema), batch(1))
        spark.stop()
    elif fate == "paused":
        sink.write(rows.mapInArrow(waits_on_its_way(Path(folder)), rows.schema), batch(1))
    elif fate == "torn":
        sink.write(rows.mapInArrow(dies_after_sending, rows.schema), batch(1))
        spark.stop()
    elif fate == "torn job":
        receipt = fm.Job("orders", LosingTask(), [sink]).run(spark, fm.stores.open("memory"))
        print(receipt.rows_read, receipt.rows_written["postgres"], flush=True)
        spark.stop()
    else:
        sink.write(half_way(rows, "during_sink:1"), batch(1))
        killed()


def start(url: str, fate: str, *folder: str, stderr: int = subprocess.DEVNULL, **environment: str) -> Child:
    command = [sys.executable, "-m", "tests.sinks.postgres.test_killed", url, fate, *folder]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}, stderr=stderr, start_new_session=True)


@pytest.mark.crash
def test_a_kill_during_the_copy_leaves_no_row(spark: SparkSession, database: str) -> None:
    """What was staged is nobody's; the next attempt brings every row, once."""
    assert start(database, "copy", FLOODMARK_CRASH_AT="during_sink:1").wait(120) == -signal.SIGKILL
    assert Postgres(database, "orders").schema(lambda: spark) is None
    assert Postgres(database, "orders").write(thousand(spark), batch(1, attempt="a2")) == 1000
    assert ask(database, "select id from orders order by id") == IDS


@pytest.mark.crash
def test_a_kill_before_the_move_leaves_only_a_staging_table_and_the_next_attempt_drops_it(
    spark: SparkSession, database: str
) -> None:
    """Held at the ledger's row by somebody else, with everything copied: that is where it dies."""
    Postgres(database, "orders").fence("floodmark.prod.orders.postgres", 0, lambda: spark)
    with psycopg.connect(database) as holder:
        holder.execute("select * from floodmark_ledger for update")
        process = start(database, "move")
        wait_until_held(database, sessions=1)
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
        assert len(staging_tables(database)) == 1
    assert Postgres(database, "orders").write(thousand(spark), batch(1, attempt="a2")) == 1000
    assert ask(database, "select id from orders order by id") == IDS
    assert staging_tables(database) == []


@pytest.mark.crash
def test_a_kill_just_before_the_commit_leaves_no_row(spark: SparkSession, database: str) -> None:
    """Moved and recorded is not committed."""
    assert start(database, "before commit").wait(120) == -signal.SIGKILL
    sink = Postgres(database, "orders")
    assert sink.write(thousand(spark), batch(1, attempt="a2")) == 1000
    assert ask(database, "select id from orders order by id") == IDS


@pytest.mark.crash
def test_a_kill_after_the_commit_costs_nothing(spark: SparkSession, database: str) -> None:
    """The next attempt finds the number and tells the rows of then."""
    assert start(database, "after").wait(120) == -signal.SIGKILL
    assert Postgres(database, "orders").write(thousand(spark).where("id < 0"), batch(1, attempt="a2")) == 1000
    assert ask(database, "select id from orders order by id") == IDS


@pytest.mark.crash
@pytest.mark.parametrize("made", ["select 1", "create table orders (id bigint)"], ids=["new table", "user's table"])
def test_a_task_that_copied_and_was_lost_does_not_count(database: str, made: str) -> None:
    """Its rows stay behind in the staging table, and go with it; the try that Spark took is what arrives."""
    ask(database, made)
    assert start(database, "retry").wait(120) == 0
    assert ask(database, "select id from orders order by id") == IDS
    assert ask(database, "select rows from floodmark_ledger") == [(1000,)]
    assert staging_tables(database) == []


@pytest.mark.crash
def test_a_task_that_was_lost_while_its_rows_streamed_does_not_count(database: str) -> None:
    """What it sent was in the transaction already, which is given up: the batch is staged, and comes once."""
    assert start(database, "torn").wait(120) == 0
    assert ask(database, "select id from orders order by id") == IDS
    assert ask(database, "select rows from floodmark_ledger") == [(1000,)]
    assert staging_tables(database) == []


@pytest.mark.crash
def test_the_receipt_of_a_batch_whose_stream_was_torn_counts_every_row_once(database: str) -> None:
    """The rows were read twice: for the stream that was given up, and for the staging table."""
    command = [sys.executable, "-m", "tests.sinks.postgres.test_killed", database, "torn job"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout == "1000 1000\n"


@pytest.mark.crash
def test_a_run_that_is_paused_with_rows_on_the_server_writes_none_of_them_once_its_number_is_taken(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    """Python, its JVM and its workers are stopped in the middle of the COPY, and go on when the rows came otherwise."""
    ask(database, "create table orders (id bigint)")
    paused = start(database, "paused", str(tmp_path), stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while not (tmp_path / "waits").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    found = subprocess.run(["ps", "-o", "pid=", "-s", str(paused.pid)], capture_output=True, text=True, check=True)
    stopped = [int(pid) for pid in found.stdout.split()]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    sink = Postgres(database, "orders")
    sink.fence(LEDGER, 1, lambda: spark)
    assert sink.write(thousand(spark), batch(2, attempt="a2")) == 1000
    (tmp_path / "goes on").touch()
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    _, message = paused.communicate(timeout=120)
    assert (paused.returncode, b"Overtaken" in message) == (1, True), message
    assert ask(database, "select id from orders order by id") == IDS


if __name__ == "__main__":
    main(*sys.argv[1:])

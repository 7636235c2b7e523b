"""A container dies, or is paused, while its batch goes out to Kafka piece by piece, and another run goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash import pieces
from tests.crash.killing import stop_between_beats
from tests.crash.shop import deliver, open_store
from tests.sinks.kafka.messages import values
from tests.sources.kafka.topics import add_partitions

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from floodmark.testing.servers import Broker

ROWS = 4000
PATIENCE_SECONDS = 120.0
SOON_SECONDS = 60.0
"""The broker itself ends a transaction that was left open after 150 seconds."""
MINUTES_SECONDS = 170.0
"""By then it has: it looks every ten seconds."""


def start_until_some_are_out(home: Path, kafka: Broker, topic: str) -> subprocess.Popen[str]:
    """A run in a process group of its own, of which some chunks are out."""
    command = [sys.executable, "-m", "tests.crash.pieces", str(home), kafka.bootstrap, topic]
    folder = Path(pieces.__file__).parents[2]
    run = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(values(kafka.bootstrap, topic)) < 300:
        assert run.poll() is None, "it ended before all of it was out"
        assert time.monotonic() < deadline, "no chunk came out"
        time.sleep(0.05)
    return run


def end(run: subprocess.Popen[str]) -> None:
    """Kill Python, JVM and workers together."""
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate()


@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize("pause_seconds", [0.0, 2.0, MINUTES_SECONDS], ids=["at once", "soon", "after minutes"])
def test_killed_inside_a_transaction(
    spark: SparkSession, kafka: Broker, topic: Callable[..., str], tmp_path: Path, pause_seconds: float
) -> None:
    """Python, JVM and workers die together; meanwhile the topic gets a partition, which this batch must not use.

    The next run takes the transactions over, or finds that the broker has ended them by itself.
    """
    name = topic(partitions=2)
    deliver(tmp_path, "monday", range(ROWS))
    end(start_until_some_are_out(tmp_path, kafka, name))
    add_partitions(kafka, name, 3)
    time.sleep(pause_seconds)
    since = time.monotonic()
    receipt = pieces.job(tmp_path, kafka.bootstrap, name).run(spark, open_store(tmp_path))
    assert time.monotonic() - since < SOON_SECONDS
    assert (receipt.recovered, receipt.rows_written) == (True, {"kafka": ROWS})
    assert sorted(int(value) for value in values(kafka.bootstrap, name)) == list(range(ROWS))


@pytest.mark.crash
def test_a_run_paused_inside_a_transaction_writes_nothing_once_another_has_its_batch(
    spark: SparkSession,
    kafka: Broker,
    topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """It is stopped with all its workers between two chunks, or within one, and goes on when the batch is done."""
    monkeypatch.setenv("FLOODMARK_LEASE_SECONDS", "3")
    name, store = topic(partitions=2), open_store(tmp_path)
    deliver(tmp_path, "monday", range(ROWS))
    paused = start_until_some_are_out(tmp_path, kafka, name)
    request.addfinalizer(lambda: end(paused) if paused.poll() is None else None)
    stopped = stop_between_beats(paused.pid, tmp_path / "marks.db")
    receipt = pieces.job(tmp_path, kafka.bootstrap, name).run(spark, store)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    _, message = paused.communicate(timeout=PATIENCE_SECONDS)
    assert paused.returncode == 1, message
    assert receipt.rows_written == {"kafka": ROWS}
    assert sorted(int(value) for value in values(kafka.bootstrap, name)) == list(range(ROWS))
    assert pieces.job(tmp_path, kafka.bootstrap, name).run(spark, store).status == "nothing_new"

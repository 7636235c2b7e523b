"""A whole container dies while its batch goes out to Kafka piece by piece, and the next one starts at once."""

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


def run_until_some_are_out(home: Path, kafka: Broker, topic: str) -> None:
    """A run in a process group of its own; all of it is killed once some chunks are out."""
    command = [sys.executable, "-m", "tests.crash.pieces", str(home), kafka.bootstrap, topic]
    run = subprocess.Popen(command, cwd=Path(pieces.__file__).parents[2], start_new_session=True)
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while len(values(kafka.bootstrap, topic)) < 300:
            assert run.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline, "no chunk came out"
            time.sleep(0.05)
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()


@pytest.mark.crash
@pytest.mark.parametrize("trial", range(3))
def test_killed_inside_a_transaction(
    spark: SparkSession, kafka: Broker, topic: Callable[..., str], tmp_path: Path, trial: int
) -> None:
    """Python, JVM and workers die together; meanwhile the topic gets a partition, which this batch must not use."""
    name = topic(partitions=2)
    deliver(tmp_path, "monday", range(ROWS))
    run_until_some_are_out(tmp_path, kafka, name)
    add_partitions(kafka, name, 3)
    since = time.monotonic()
    receipt = pieces.job(tmp_path, kafka.bootstrap, name).run(spark, open_store(tmp_path))
    assert time.monotonic() - since < SOON_SECONDS
    assert (receipt.recovered, receipt.rows_written) == (True, {"kafka": ROWS})
    assert sorted(int(value) for value in values(kafka.bootstrap, name)) == list(range(ROWS))

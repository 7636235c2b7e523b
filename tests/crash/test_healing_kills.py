"""kill -9 of a stream, its JVM and its workers at random moments, while records and partitions keep coming."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash import patients
from tests.sources.reading_kafka import add_partitions, put

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from floodmark.testing.servers import Broker

KILLS, RECORDS = 10, 120


@pytest.mark.crash
@pytest.mark.timeout(1800)
def test_random_kills_lose_no_record_and_repeat_only_what_was_under_way(
    spark: SparkSession, kafka: Broker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """A settled record never runs again; a kill costs at most the records that its two workers had in their hands."""
    draw = random.Random(int(os.environ.get("FLOODMARK_SEED", "20261115")))
    name = topic(2)
    for kill in range(KILLS):
        put(kafka, name, *map(str, range(RECORDS)), partition=kill % 2)
        kill_after(draw.uniform(6.0, 16.0), tmp_path, kafka.bootstrap, name)
    add_partitions(kafka, name, 4)
    put(kafka, name, *map(str, range(RECORDS)), partition=3)
    last = patients.stream(tmp_path, kafka.bootstrap, name, "patients", seconds=0)
    last.run_once()
    record = last.store.read("patients")
    assert record is not None
    ends = {0: RECORDS * KILLS // 2, 1: RECORDS * KILLS // 2, 3: RECORDS}
    assert dict(record.marks[name].value) == ends
    calls = Counter((tmp_path / "calls").read_text().splitlines())
    assert calls.keys() == {f"{p} {o} {a}" for p, end in ends.items() for o in range(end) for a in attempts(o)}
    assert sum(calls.values()) - len(calls) <= 2 * KILLS


def attempts(offset: int) -> tuple[int, ...]:
    """Every tenth record fails once."""
    return (1, 2) if offset % 10 == 3 else (1,)


def kill_after(seconds: float, home: Path, bootstrap: str, topic: str) -> None:
    """Start the stream in a process group of its own and end all of it."""
    command = [sys.executable, patients.__file__, str(home), bootstrap, topic, "patients"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    time.sleep(seconds)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)

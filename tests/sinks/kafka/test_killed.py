"""The Kafka sink when processes end in the middle of a batch: a run, or one of its tasks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from floodmark.sinks.kafka import Kafka
from floodmark.sinks.kafka.ledger import Layout
from floodmark.testing.servers import Broker
from tests.sinks.kafka.messages import committed

pytestmark = [pytest.mark.spark, pytest.mark.crash]
ROWS = 40_000
PATIENCE_SECONDS = 90


@pytest.fixture
def attempt(kafka: Broker, topic: Callable[..., str], tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a process that writes the same 40,000 rows as batch 1, in chunks of 500."""
    pq.write_table(pa.table({"id": pa.array(range(ROWS))}), tmp_path / "part-0.parquet")
    frozen = json.dumps(Layout(3, 2, (0, 0, 0), "intent").to_json())
    name, begun = topic(partitions=3), []

    def start(master: str = "local[2]") -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.sinks.kafka.run", master, kafka.bootstrap, name, str(tmp_path), frozen]
        begun.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return begun[-1]

    start.sink = Kafka(kafka.bootstrap, name)  # type: ignore[attr-defined]
    yield start
    for process in begun:
        process.kill()
        process.communicate()


def await_rows(sink: Kafka, rows: int) -> None:
    """Wait until the first chunks are out."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while sum(sink._topic.ends()) < rows:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def kill_workers(process: subprocess.Popen[str]) -> None:
    """All Python workers of its Spark, which are the daemon's children; each task that runs fails."""
    daemons = [pid for pid in descendants(process.pid) if "pyspark.daemon" in command_of(pid)]
    workers = [pid for pid in daemons if parent_of(pid) in daemons]
    assert workers
    for pid in workers:
        os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    return [pid, *(below for child in children(pid) for below in descendants(child))]


def children(pid: int) -> list[int]:
    return [each for each in map(int, numbered()) if parent_of(each) == pid]


def numbered() -> list[str]:
    return [path.name for path in Path("/proc").iterdir() if path.name.isdigit()]


def parent_of(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return None


def command_of(pid: int | None) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def how_often(sink: Kafka) -> Counter[int]:
    """How many rows were seen so many times."""
    seen = Counter(each.value for each in committed(str(sink.bootstrap), sink.topic))
    return Counter(seen.values())


def test_a_run_that_is_killed_and_repeated_gives_every_row_once(attempt: Callable[..., subprocess.Popen[str]]) -> None:
    """Its JVM and workers may live on for a while: the second run fences them."""
    first = attempt()
    await_rows(attempt.sink, 5_000)  # type: ignore[attr-defined]
    first.kill()
    output, _ = attempt().communicate(timeout=PATIENCE_SECONDS)
    assert "written 40000" in output
    assert how_often(attempt.sink) == {1: ROWS}  # type: ignore[attr-defined]


def test_a_task_that_is_tried_again_gives_every_row_once(attempt: Callable[..., subprocess.Popen[str]]) -> None:
    """The workers die in the middle; Spark starts their tasks again, which go on where the ledger is."""
    run = attempt("local[2,4]")
    await_rows(attempt.sink, 5_000)  # type: ignore[attr-defined]
    kill_workers(run)
    output, _ = run.communicate(timeout=PATIENCE_SECONDS)
    assert "written 40000" in output
    assert how_often(attempt.sink) == {1: ROWS}  # type: ignore[attr-defined]

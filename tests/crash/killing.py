"""Starting the crash job in a process of its own, having it killed or stopped, and reading back what sinks hold."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.machine import is_stopped
from tests.crash import shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = Path(shop.__file__)


def start(home: Path, sinks: Sequence[str] = shop.SINKS, **environment: str) -> subprocess.Popen[bytes]:
    """One run of the job in a process group of its own, so that a kill can take its JVM along, or not."""
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(home), ",".join(sinks)],
        env={**os.environ, **environment},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def run_until_killed(home: Path, point: str, sinks: Sequence[str] = shop.SINKS) -> int:
    """The return code of a run that was to die at the point; its JVM may live on for a moment."""
    return start(home, sinks, FLOODMARK_CRASH_AT=point).wait(120)


def ids_in_table(spark: SparkSession, table: Path) -> list[int]:
    return sorted(row.id for row in spark.read.format("delta").load(str(table)).select("id").collect())


def ids_in_files(folder: Path) -> list[int]:
    parts = folder.glob("batch=*/part-*")
    return sorted(json.loads(line)["id"] for part in parts for line in part.read_text().splitlines())


def held(spark: SparkSession, home: Path, sinks: Sequence[str] = shop.SINKS) -> dict[str, list[int]]:
    """The ids that each sink holds, read back from the sink itself."""
    return {name: ids_in_files(home / name) if name == "out" else ids_in_table(spark, home / name) for name in sinks}


def processes_of_session(leader: int) -> list[int]:
    """Python, its JVM and its workers."""
    found = subprocess.run(["ps", "-o", "pid=", "-s", str(leader)], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


def stop_between_beats(leader: int, database: Path) -> list[int]:
    """Stop Python, its JVM and its workers; not in the middle of a heartbeat, whose lock nobody could end."""
    while True:
        stopped = processes_of_session(leader)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        wait_until_is_stopped(leader)
        try:
            with closing(sqlite3.connect(database, timeout=0.5, isolation_level=None)) as connection:
                connection.execute("begin immediate")
                return stopped
        except sqlite3.OperationalError:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            time.sleep(0.3)


def wait_until_is_stopped(pid: int) -> None:
    deadline = time.monotonic() + 10
    while not is_stopped(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert is_stopped(pid)


def wait_until(holds: Callable[[], bool]) -> None:
    """Two minutes at most: whatever is waited for has failed by then."""
    deadline = time.monotonic() + 120
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert holds()

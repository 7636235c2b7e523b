"""The workflow of the platform example in a process that is killed whenever it has made some more commits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from observability.arrivals import Arrivals, deliver
from observability.inventory import Rows
from observability.lake import Lake

ROOT = Path(__file__).resolve().parents[2]
POLL_SECONDS = 0.02
LONGEST_SECONDS = 300.0
LAYERS = ("bronze", "silver", "gold", "views")


def run_killed(home: Path, every: int, rows: Rows) -> int:
    """Rows arrive; run until it comes to its end by itself. Gives how often it was killed, each time with its JVM."""
    deliver(Lake.at(home), rows)
    kills = 0
    while not _ended(home, every):
        kills += 1
    return kills


def _ended(home: Path, every: int) -> bool:
    """One attempt: whether it ended well before it had made so many commits."""
    begun, limit = time.monotonic(), commits(home) + every
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.platform_days", str(home)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
    )
    while process.poll() is None:
        if commits(home) >= limit or time.monotonic() - begun > LONGEST_SECONDS:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        time.sleep(POLL_SECONDS)
    if process.returncode not in (0, -signal.SIGKILL):
        raise AssertionError(f"the run ended with {process.returncode}")
    return process.returncode == 0


def commits(home: Path) -> int:
    """How many commits all Delta tables of a lake have."""
    return sum(1 for layer in LAYERS for _ in home.glob(f"{layer}/*/_delta_log/*.json"))


def main(home: Path) -> int:
    """The workflow once, on a session of its own."""
    import floodmark as fm
    from tests.examples.story import Story

    os.environ["PLATFORM_HOME"] = str(home)
    lake = Lake.at(home)
    story = Story(lake, fm.spark_session({"spark.master": "local[2]"}), lake.store(), Arrivals())
    states = story.run()
    return 0 if set(states.values()) <= {"SUCCESS"} else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

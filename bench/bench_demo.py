"""The platform's demo, 34 tables on two cores, from the command to its last line, in seconds."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from run import Result
from timing import seconds

DEMO = Path(__file__).resolve().parents[1] / "examples" / "demo.py"
ROUNDS = 3


def run(rounds: int = ROUNDS) -> list[Result]:
    times = tuple(seconds(once) for _ in range(rounds))
    detail = f"seconds from the command to its end, median of {rounds}; the demo compares its own sums"
    return [Result("make demo after set-up, s", statistics.median(times), 40.0, detail, ours=times)]


def once() -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, str(DEMO)], cwd=folder, check=True, capture_output=True)

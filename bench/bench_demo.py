"""Both demos on two cores, from the command to the last line, in seconds: a small shop, and a platform of 34 tables."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from run import Result
from timing import seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

PLATFORM = Path(__file__).resolve().parents[1] / "examples" / "platform_observability" / "demo.py"
ROUNDS = 3


def run(rounds: int = ROUNDS) -> list[Result]:
    return [
        demo("floodmark demo, s", ["-m", "floodmark", "demo", "shop"], 30.0, rounds),
        demo("make demo-platform after set-up, s", [str(PLATFORM)], 40.0, rounds),
    ]


def demo(name: str, command: Sequence[str], at_most: float, rounds: int) -> Result:
    times = tuple(seconds(lambda: once(command)) for _ in range(rounds))
    detail = f"seconds from the command to its end, median of {rounds}; the demo compares its own sums"
    return Result(name, statistics.median(times), at_most, detail, ours=times)


def once(command: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, *command], cwd=folder, check=True, capture_output=True)

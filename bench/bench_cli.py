"""The command line: seconds of CPU until it has answered, against a Python that only loads what every answer needs."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from run import Result

ROUNDS = 5
PROJECT = "jobs:\n  - {name: orders, source: {type: files, path: in}, sinks: [{type: files, path: out}]}\n"
NEEDED = ["-c", "import typer, yaml; from pydantic import BaseModel, TypeAdapter"]
ANSWERS = (["--help"], ["marks", "show"], ["runs"])


def cpu_seconds(arguments: Sequence[str], folder: Path) -> float:
    """The best of some rounds: the first still writes byte code."""
    return min(_once(arguments, folder) for _ in range(ROUNDS))


def _once(arguments: Sequence[str], folder: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run() -> list[Result]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        (folder / "floodmark.yaml").write_text(PROJECT)
        plain = cpu_seconds(NEEDED, folder)
        took = {" ".join(each): cpu_seconds(["-m", "floodmark.cli", *each], folder) for each in ANSWERS}
    return [
        Result(f"floodmark {answer}", own / plain, 2.0, f"{own:.2f} s of CPU, what it needs takes {plain:.2f} s")
        for answer, own in took.items()
    ]

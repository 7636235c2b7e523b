"""Run tests in forks of one process that has already imported what the code stands on: `scripts/mutants.py` asks it.

Starting Python and importing Spark's client, Arrow and pytest takes longer than most mutants need to be noticed. The
code itself and its tests are imported by each fork anew. A request is one line of JSON, and so is the answer.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

SHARED = (
    "pytest", "hypothesis", "hypothesis.stateful", "pydantic", "pyarrow.parquet", "deltalake", "pyspark.sql.functions",
    "pyspark.sql.session", "py4j.java_gateway", "sqlglot", "psycopg", "yaml", "confluent_kafka", "sqlite3",
)  # fmt: skip
"""What no mutant changes; none of them starts a thread when it is imported, so a fork has all of it."""
NEXT_LOOK_SECONDS = 0.005


@dataclass(frozen=True)
class Ended:
    """The exit code of pytest, or none if it took too long, and the seconds of CPU that it and its processes used."""

    code: int | None
    cpu_seconds: float


class ForkingTests:
    """A process that runs tests, each request in a fork, in the folder and with the environment that it is given."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([sys.executable, __file__], env=environment, cwd=folder, text=True, **pipes)

    def run(self, options: list[str], settings: Mapping[str, str], seconds: int, patience: int) -> Ended:
        """How pytest ended; it may take these seconds of CPU, and `patience` times as long by the clock."""
        request = {"options": options, "settings": dict(settings), "seconds": seconds, "patience": patience}
        print(json.dumps(request), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("the process that runs the tests has ended")
        return Ended(**json.loads(answer))

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def serve() -> None:
    """Answer every line of standard input."""
    for name in SHARED:
        importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    quiet = os.open(os.devnull, os.O_RDWR)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    for line in sys.stdin:
        print(json.dumps(asdict(run_in_fork(**json.loads(line)))), file=answers, flush=True)


def run_in_fork(options: list[str], settings: Mapping[str, str], seconds: int, patience: int) -> Ended:
    """Fork, wait, and end all processes that the tests have left."""
    child = os.fork()
    if not child:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        os.environ.update(settings)
        run_tests(options)
    deadline, done = time.monotonic() + patience * seconds, 0
    while not done:
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
        time.sleep(NEXT_LOOK_SECONDS)
        done, status, used = os.wait4(child, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status)
    return Ended(None if -code in (signal.SIGXCPU, signal.SIGKILL) else code, used.ru_utime + used.ru_stime)


def run_tests(options: list[str]) -> None:
    """Pytest, and the end of this process, whatever threads a test has left."""
    code = 70
    try:
        import pytest

        code = int(pytest.main(options))
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve()

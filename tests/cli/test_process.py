"""The command line as a process of its own: how quick it is, what it loads, and what signals do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

FLOODMARK = [sys.executable, "-m", "floodmark.cli"]
HEAVY = {"pyspark", "pandas", "pyarrow", "numpy", "confluent_kafka", "psycopg", "deltalake", "sqlalchemy", "httpx"}
IDLE = "jobs:\n  - {name: orders, source: {type: files, path: in}, sinks: [{type: files, path: out}], every: 50ms}\n"
OWN = """\
jobs:
  - {name: a, source: {type: python, object: 'own:Own', options: {seconds: %s}}, sinks: [{type: console}]}
"""
OWN_SOURCE = """\
import pathlib, time
from floodmark.sources.contract import Sight

class Own:
    name = "own"
    def __init__(self, seconds):
        self.seconds = seconds
    def fingerprint(self, session):
        return "own"
    def look(self, mark, request, session):
        pathlib.Path("looking").touch()
        time.sleep(self.seconds)
        return Sight(None)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with nothing to read, so that no command starts Spark."""
    (tmp_path / "in").mkdir()
    (tmp_path / "floodmark.yaml").write_text(IDLE)
    return tmp_path


@pytest.mark.parametrize(
    "arguments", [["--help"], ["marks", "show"], ["marks", "show", "--json"], ["runs"], ["run", "--json"], ["lint"]]
)
def test_it_answers_without_what_is_heavy(project: Path, arguments: list[str]) -> None:
    """No JVM, and no library that takes longer to load than the answer: a run that finds nothing new included."""
    program = f"import sys; from floodmark.cli.app import run; code = run({arguments!r}); "
    program += f"print({HEAVY!r} & sys.modules.keys(), file=sys.stderr); sys.exit(code)"
    ran = subprocess.run([sys.executable, "-c", program], cwd=project, capture_output=True, text=True, check=True)
    assert ran.stderr.splitlines()[-1] == "set()"


def begun(folder: Path, *arguments: str, look_seconds: float) -> subprocess.Popen[str]:
    """The command, once its source is being looked at."""
    (folder / "own.py").write_text(OWN_SOURCE)
    (folder / "floodmark.yaml").write_text(OWN % look_seconds)
    command = [*FLOODMARK, *arguments]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 20
    while not (folder / "looking").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


CHATTY = """\
import os, subprocess
from floodmark.sources.contract import Sight

print("on import")

class Own:
    name = "own"
    def fingerprint(self, session):
        return "own"
    def look(self, mark, request, session):
        print("by print")
        os.write(1, b"by its descriptor\\n")
        subprocess.run(["echo", "by a program"], check=True)
        return Sight(None)
"""


def test_the_document_is_alone_on_stdout_whatever_a_users_code_prints(project: Path) -> None:
    """By print, by its descriptor or by a program that it starts: all of that is on stderr."""
    (project / "own.py").write_text(CHATTY)
    (project / "floodmark.yaml").write_text(
        "jobs:\n  - {name: a, source: {type: python, object: 'own:Own'}, sinks: [{type: console}]}\n"
    )
    ran = subprocess.run([*FLOODMARK, "run", "--json"], cwd=project, capture_output=True, text=True, check=True)
    assert [run["status"] for run in json.loads(ran.stdout)["runs"]] == ["nothing_new"]
    assert ran.stderr.splitlines() == ["on import", "by print", "by its descriptor", "by a program"]
    plain = subprocess.run([*FLOODMARK, "run"], cwd=project, capture_output=True, text=True, check=True)
    assert plain.stdout.splitlines()[0] == "on import"


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_a_loop_ends_politely_on_a_signal(project: Path, asked: signal.Signals) -> None:
    """What is under way is finished, then exit 0; one document, no traceback, and nobody waits for the next tick."""
    looping = begun(project, "run", "--every", "1h", "--json", look_seconds=0.3)
    looping.send_signal(asked)
    out, err = looping.communicate(timeout=20)
    assert (looping.returncode, '"nothing_new"' in out) == (0, True)
    assert [line.partition("info")[2].split("store=")[0].strip() for line in err.splitlines()[:-1]] == [
        "using the mark job=a mark=None number=0"
    ]
    assert err.splitlines()[-1].startswith("Stopping: what is under way is finished first")


def test_ctrl_c_during_a_run_is_exit_130_without_a_traceback(project: Path) -> None:
    """One line says what is open: a look leaves nothing."""
    running = begun(project, "run", look_seconds=60)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=20)
    assert (running.returncode, out, err) == (130, "", "Stopped: no batch is open.\n")


def test_a_log_level_can_come_from_the_environment(project: Path) -> None:
    """FLOODMARK_LOG=debug,json, and the option goes over it."""
    env = {**os.environ, "FLOODMARK_LOG": "debug,json"}
    heard = subprocess.run([*FLOODMARK, "run"], cwd=project, env=env, capture_output=True, text=True, check=True)
    quiet = [*FLOODMARK, "run", "--log-level", "error"]
    silent = subprocess.run(quiet, cwd=project, env=env, capture_output=True, text=True, check=True)
    assert (heard.stderr[:1], silent.stderr) == ("{", "")

"""Ctrl-C and SIGTERM, sent to a real process: what is under way, what it says, and its exit code."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from floodmark.stores.sqlite import SqliteMarkStore

pytestmark = pytest.mark.slow

FLOODMARK = [sys.executable, "-m", "floodmark.cli"]
PROJECT = """\
jobs:
  - name: orders
    source: {type: python, object: 'own:slow_files'}
    transform: {python: 'own:slowly'}
    sinks: [{type: delta, path: lake}]
"""
CODE = """\
import pathlib, time
from floodmark.sources import Files

class Own(Files):
    def look(self, mark, request, session):
        sight = super().look(mark, request, session)
        pathlib.Path("looking").touch()
        time.sleep(SECONDS)
        return sight

def slow_files():
    return Own("in", schema="id long", settle="0s", name="own")

def slowly(rows):
    def wait(batches):
        pathlib.Path("writing").touch()
        time.sleep(8)
        yield from batches
    return rows.mapInArrow(wait, rows.schema)
"""


class Child:
    """A command that runs, with what it says."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [*FLOODMARK, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def reaches(self, sign: str, seconds: float = 90) -> Child:
        """Wait until the sign is there."""
        deadline = time.monotonic() + seconds
        while not list(self.folder.glob(sign)):
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline, sign
            time.sleep(0.02)
        return self

    def gets(self, *signals: signal.Signals) -> tuple[int, str, str]:
        """Send the signals one after the other; how it ends."""
        for number in signals:
            self.process.send_signal(number)
            time.sleep(0.3)
        out, err = self.process.communicate(timeout=90)
        return self.process.returncode, out, err


def project(folder: Path, look_seconds: float) -> Path:
    """One job whose look takes so long, with one row to read; its write takes eight seconds."""
    (folder / "in").mkdir()
    (folder / "in" / "a.jsonl").write_text('{"id": 1}\n')
    (folder / "floodmark.yaml").write_text(PROJECT)
    (folder / "own.py").write_text(CODE.replace("SECONDS", str(look_seconds)))
    return folder


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_any_command_is_stopped_at_once_with_the_code_of_the_signal(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """A plan begins nothing, so there is nothing to finish; one line says so."""
    ended = Child(project(tmp_path, 60), "plan").reaches("looking").gets(number)
    assert ended == (code, "", "Stopped: no batch is open.\n")


EARLY = """\
import os, sys, signal
from floodmark.cli import main

class Moment:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), NUMBER)

sys.meta_path.insert(0, Moment())
sys.argv = ["floodmark", "run"]
main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("floodmark.cli.app", "Stopped: nothing was begun."),
        ("typer", "Stopped: nothing was begun."),
        ("floodmark.cli.invocation", "Stopped: nothing was begun."),
        ("floodmark.cli.run", "Stopped: no batch is open."),
        ("floodmark.project.models", "Stopped: no batch is open."),
        ("pydantic", "Stopped: no batch is open."),
    ],
)
def test_a_signal_while_python_loads_modules_is_answered_too(
    tmp_path: Path, module: str, line: str, number: signal.Signals, code: int
) -> None:
    """The first second of a process is like any other: one line, and the code of the signal."""
    program = EARLY.replace("MODULE", repr(module)).replace("NUMBER", str(int(number)))
    child = [sys.executable, "-c", program]
    ended = subprocess.run(child, cwd=project(tmp_path, 0), capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", f"{line}\n")


def test_the_second_sigterm_stops_a_run_at_once(tmp_path: Path) -> None:
    """The first lets what is under way finish, and says so."""
    code, out, err = Child(project(tmp_path, 60), "run").reaches("looking").gets(signal.SIGTERM, signal.SIGTERM)
    assert (code, out) == (143, "")
    assert [line.split(":")[0] for line in err.splitlines()] == ["Stopping", "Stopped"]


def test_the_second_ctrl_c_stops_a_loop_at_once(tmp_path: Path) -> None:
    """The first lets the batch finish."""
    looping = Child(project(tmp_path, 60), "run", "--loop", "--log-level", "error").reaches("looking")
    code, out, err = looping.gets(signal.SIGINT, signal.SIGINT)
    assert (code, out) == (130, "")
    assert [line.split(":")[0] for line in err.splitlines()] == ["Stopping", "Stopped"]


def test_both_codes_stand_in_the_table_and_in_the_help() -> None:
    """Scripts and supervisors look there."""
    page = (Path(__file__).parents[2] / "docs" / "reference.md").read_text()
    shown = subprocess.run([*FLOODMARK, "--help"], capture_output=True, text=True, check=True).stdout
    assert ("| 130 |" in page, "| 143 |" in page) == (True, True)
    assert ("130" in shown, "143" in shown) == (True, True)


def open_batch(folder: Path) -> int | None:
    """The number of the batch that the store has open."""
    [store] = folder.glob("state/*.db")
    record = SqliteMarkStore(store).read("orders")
    return record.intent.number if record and record.intent else None


OPEN = "Stopped: batch 1 of job 'orders' is open, and the next run finishes it.\n"


@pytest.mark.crash
def test_ctrl_c_in_a_write_names_the_batch_and_the_next_run_finishes_it(tmp_path: Path) -> None:
    """One line, no traceback, and every row once in the end."""
    ended = Child(project(tmp_path, 0), "run", "--log-level", "error").reaches("writing").gets(signal.SIGINT)
    assert (ended, open_batch(tmp_path)) == ((130, "", OPEN), 1)
    assert Child(tmp_path, "run").gets()[0] == 0
    assert open_batch(tmp_path) is None


@pytest.mark.crash
def test_the_second_sigterm_in_a_write_stops_at_once_with_its_own_code(tmp_path: Path) -> None:
    """What the write lets go of on the way out may fail, as nobody may be there to ask: that is no failed sink."""
    writing = Child(project(tmp_path, 0), "run", "--log-level", "error").reaches("writing")
    code, out, err = writing.gets(signal.SIGTERM, signal.SIGTERM)
    assert (code, out, open_batch(tmp_path)) == (143, "", 1)
    assert [line.split(":")[0] for line in err.splitlines()] == ["Stopping", "Stopped"]


@pytest.mark.crash
def test_ctrl_c_while_spark_starts_names_the_batch_that_was_begun(tmp_path: Path) -> None:
    """The intent is durable by then: two seconds after the look, a JVM is on its way."""
    starting = Child(project(tmp_path, 0), "run", "--log-level", "error").reaches("looking")
    time.sleep(2)
    assert (starting.gets(signal.SIGINT), open_batch(tmp_path)) == ((130, "", OPEN), 1)


@pytest.mark.crash
def test_sigterm_in_a_write_finishes_the_batch_and_ends_with_0(tmp_path: Path) -> None:
    """A supervisor that stops a service politely leaves nothing open."""
    code, out, err = Child(project(tmp_path, 0), "run", "--log-level", "error").reaches("writing").gets(signal.SIGTERM)
    assert (code, open_batch(tmp_path), out.splitlines()[-1][:13]) == (0, None, "1 job: 1 done")
    assert err.splitlines()[0].startswith("Stopping: ")

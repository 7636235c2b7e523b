"""A run on another host is stopped past its lease and goes on later: it saves nothing, and says why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from floodmark import stores
from tests.faults import slow_owner
from tests.proofs import Prove

pytestmark = pytest.mark.faults

HOST = ("unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Processes of its own, as a container has: nobody can ask whether they live."""


def start(store: str, folder: Path, value: int) -> subprocess.Popen[str]:
    """A run on a host of its own, with a lease of two seconds; its group is stopped and let go on as a whole."""
    return subprocess.Popen(
        [*HOST, sys.executable, slow_owner.__file__, store, str(folder), str(value)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "FLOODMARK_LEASE_SECONDS": "2"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def word_of(run: subprocess.Popen[str]) -> str:
    assert run.stdout is not None
    return run.stdout.readline().strip()


def let_save(run: subprocess.Popen[str]) -> str:
    assert run.stdin is not None
    run.stdin.write("go\n")
    run.stdin.flush()
    return word_of(run)


@pytest.mark.parametrize("store", ["file:marks", "sqlite:///marks.db"])
def test_a_run_that_was_stopped_past_its_lease_saves_nothing(store: str, tmp_path: Path, prove: Prove) -> None:
    """The one that took over has saved, and the late one finds its lease gone."""
    with start(store, tmp_path, 100) as first:
        is_held = word_of(first)
        os.killpg(first.pid, signal.SIGSTOP)
        with start(store, tmp_path, 200) as second:
            took_over, saved = word_of(second), let_save(second)
        os.killpg(first.pid, signal.SIGCONT)
        late = let_save(first)
    record = stores.open(store, folder=tmp_path).read("orders")
    assert record is not None
    assert (is_held, took_over, saved, late) == ("held", "held", "saved", "LeaseLost")
    assert (record.number, record.marks["orders"].value) == (1, 200)
    prove("a run is stopped (SIGSTOP) past its lease, and goes on later", late, "what the run that took over has saved")

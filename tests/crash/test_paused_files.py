"""A writer of files that was paused in the middle of its write, and goes on while its successor writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark.machine import process
from tests.crash import pausing, shop
from tests.crash.killing import ids_in_files, processes_of_session, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession


@pytest.fixture
def start_paused() -> Iterator[Callable[[Path, str], subprocess.Popen[str]]]:
    """Starts the writer in a session of its own; what is left of it ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(home: Path, kind: str) -> subprocess.Popen[str]:
        program = [sys.executable, pausing.__file__, str(home), kind]
        started.append(subprocess.Popen(program, stderr=subprocess.PIPE, text=True, start_new_session=True))
        return started[-1]

    yield start
    for each in started:
        for pid in processes_of_session(each.pid):
            with suppress(ProcessLookupError):  # it may just have ended by itself
                os.kill(pid, signal.SIGKILL)
        with each:  # waits, and closes its pipe: else its end is another test's warning
            pass


@pytest.mark.crash
@pytest.mark.parametrize("kind", ["batch", "refresh"])
def test_a_paused_run_that_goes_on_takes_no_row_from_its_successors(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    start_paused: Callable[[Path, str], subprocess.Popen[str]],
    kind: str,
) -> None:
    """Another run finishes its batch, a third is writing the next one when it goes on: every row is there once."""
    monkeypatch.setenv("FLOODMARK_LEASE_SECONDS", "3")
    store, out = shop.open_store(tmp_path), tmp_path / "out"
    shop.deliver(tmp_path, "zero", range(4))
    shop.shop(tmp_path, ["out"]).run(spark, store)
    for name, first_id in (("first", 10), ("second", 20), ("third", 30)):
        shop.deliver(tmp_path, name, range(first_id, first_id + 4))
    (tmp_path / "pause").write_text("first")
    paused = start_paused(tmp_path, kind)
    wait_until((tmp_path / "first-writes").exists)
    stopped = processes_of_session(paused.pid)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)

    (tmp_path / "pause").unlink()
    pausing.pausing_job(tmp_path).run(spark, store)
    (tmp_path / "pause").write_text("last")
    shop.deliver(tmp_path, "fourth", range(40, 44))
    shop.deliver(tmp_path, "fifth second", range(50, 54))
    receipts = []

    def run_last() -> None:
        receipts.append(pausing.pausing_job(tmp_path).run(spark, shop.open_store(tmp_path)))

    last = threading.Thread(target=run_last)
    last.start()
    wait_until((tmp_path / "last-writes").exists)
    (tmp_path / "first-goes-on").touch()
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: process(paused.pid) is None)
    _, message = paused.communicate()
    (tmp_path / "last-goes-on").touch()
    last.join(120)

    assert paused.returncode == 1, message
    assert [receipt.rows_written["out"] for receipt in receipts] == [8]
    everything = [first_id + place for first_id in (0, 10, 20, 30, 40, 50) for place in range(4)]
    assert ids_in_files(out) == everything

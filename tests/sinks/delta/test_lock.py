"""The lock that keeps two JVMs from committing to one local Delta table at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from floodmark.machine import start_of_process
from floodmark.sinks.delta.lock import LOCK_FILE, TableBusy, table_lock

ME = os.getpid()


def test_a_second_thread_waits_until_the_first_is_done(tmp_path: Path) -> None:
    """Threads of one process share its number, so the lock tells takings apart and not only processes."""
    order: list[str] = []
    inside = threading.Event()

    def first() -> None:
        with table_lock(tmp_path, ME, patience_seconds=5):
            inside.set()
            time.sleep(0.3)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait()
    with table_lock(tmp_path, ME, patience_seconds=5):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]


def test_a_holder_that_lives_is_waited_for_and_then_named(tmp_path: Path) -> None:
    """Patience ends in an error that says who and where, never in two committing."""
    with (
        table_lock(tmp_path, ME, patience_seconds=1),
        pytest.raises(TableBusy) as caught,
        table_lock(tmp_path, ME, patience_seconds=0.1),
    ):
        pass
    assert (caught.value.holder.pid, caught.value.file) == (ME, tmp_path / LOCK_FILE)


def test_the_lock_of_a_process_that_is_gone_is_taken_at_once(tmp_path: Path) -> None:
    """What counts is the JVM, and a dead one cannot commit any more."""
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    never_released = table_lock(tmp_path, sleeper.pid, patience_seconds=1)
    never_released.__enter__()
    sleeper.kill()
    sleeper.wait()
    with table_lock(tmp_path, ME, patience_seconds=0):
        assert f'"pid": {ME}' in (tmp_path / LOCK_FILE).read_text()


def test_a_lock_is_free_after_a_failed_commit(tmp_path: Path) -> None:
    """An error inside lets go of it."""
    with pytest.raises(ValueError, match="no"), table_lock(tmp_path, ME, patience_seconds=1):
        raise ValueError("no")
    with table_lock(tmp_path, ME, patience_seconds=0):
        pass
    assert (tmp_path / LOCK_FILE).read_text() == ""


def test_the_start_of_a_process_tells_two_with_one_number_apart() -> None:
    """A process that does not exist has no start."""
    assert start_of_process(ME) is not None
    assert start_of_process(2**22 + 1) is None

"""The lock that keeps two processes from committing to one local Delta table at once."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark.machine import start_of_process, this_machine
from floodmark.sinks.delta.lock import LOCK_FILE, LockRefused, TableBusy, table_lock
from floodmark.spark.session import jvm_lock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ME = os.getpid()
NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
"""A container's own process numbers, under this host's name."""
HOLD = """
import sys, time
from pathlib import Path
from floodmark.sinks.delta.lock import table_lock
with table_lock(Path(sys.argv[1]), None, patience_seconds=5):
    print("locked", flush=True)
    time.sleep(60)
"""


@contextmanager
def holding(folder: Path, *within: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the lock of the table in this folder."""
    command = [*within, sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "locked\n"
            yield process
        finally:
            process.kill()


def is_free(folder: Path) -> bool:
    """Whether this process gets the lock at once."""
    try:
        with table_lock(folder, None, patience_seconds=0):
            return True
    except TableBusy:
        return False


def written_by(pid: int, *, host: str | None = None) -> str:
    """A lock file of a version that went by what it says."""
    facts = {"host": host or socket.gethostname(), "boot": this_machine().boot, "pid": pid, "token": "t"}
    return json.dumps({**facts, "started": start_of_process(pid) or "1", "format": 1})


def test_a_second_thread_waits_until_the_first_is_done(tmp_path: Path) -> None:
    """The kernel does not tell the threads of one JVM apart, so we do."""
    order: list[str] = []
    inside = threading.Event()

    def first() -> None:
        with table_lock(tmp_path, None, patience_seconds=5):
            inside.set()
            time.sleep(0.3)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait()
    with table_lock(tmp_path, None, patience_seconds=5):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]


def test_a_holder_that_lives_is_waited_for_and_then_named(tmp_path: Path) -> None:
    """Patience ends in an error that says who and where, never in two committing."""
    with (
        table_lock(tmp_path, None, patience_seconds=1),
        pytest.raises(TableBusy) as caught,
        table_lock(tmp_path, None, patience_seconds=0.1),
    ):
        pass
    assert caught.value.holder is not None
    assert (caught.value.holder.pid, caught.value.file) == (ME, tmp_path / LOCK_FILE)


def test_another_process_has_it_until_it_ends_however_it_ends(tmp_path: Path) -> None:
    """Stopped by a signal it still has it; killed, it has not, and what it wrote into the file means nothing."""
    with holding(tmp_path) as other:
        assert not is_free(tmp_path)
        os.kill(other.pid, signal.SIGSTOP)
        assert not is_free(tmp_path)
        other.kill()
        other.wait()
        assert (tmp_path / LOCK_FILE).read_text() != ""
        assert is_free(tmp_path)


def test_containers(tmp_path: Path) -> None:
    """Two with one host name never both have it: a process number says nothing in another namespace.

    The kernel's lock does, and it ends with the container.
    """
    if shutil.which("unshare") is None or subprocess.run([*NAMESPACE, "true"], check=False).returncode != 0:
        pytest.skip("this machine lets nobody make a PID namespace")
    with holding(tmp_path, *NAMESPACE) as container:
        assert not is_free(tmp_path)
        contender = subprocess.run(
            [*NAMESPACE, sys.executable, "-c", HOLD.replace("=5", "=0"), str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "TableBusy" in contender.stderr
        container.kill()
        container.wait()
        with table_lock(tmp_path, None, patience_seconds=5):
            pass


def test_a_lock_file_of_a_host_that_is_gone_blocks_nobody(tmp_path: Path) -> None:
    """Earlier versions wrote who they were and went by that: it would be waited for, for ever."""
    (tmp_path / LOCK_FILE).write_text(written_by(ME, host="a-host-that-is-gone"))
    assert is_free(tmp_path)


def test_an_earlier_version_that_commits_on_this_machine_is_waited_for(tmp_path: Path) -> None:
    """It has no lock of the kernel; while its process lives, what it wrote counts."""
    (tmp_path / LOCK_FILE).write_text(written_by(ME))
    assert not is_free(tmp_path)
    (tmp_path / LOCK_FILE).write_text(written_by(2**22 + 1))
    assert is_free(tmp_path)


def test_a_lock_file_that_is_damaged_blocks_nobody(tmp_path: Path) -> None:
    """Nothing hangs on what it says."""
    (tmp_path / LOCK_FILE).write_text('{"host": "ha')
    assert is_free(tmp_path)


def test_a_lock_is_free_after_a_failed_commit(tmp_path: Path) -> None:
    """An error inside lets go of it."""
    with pytest.raises(ValueError, match="no"), table_lock(tmp_path, None, patience_seconds=1):
        raise ValueError("no")
    with table_lock(tmp_path, None, patience_seconds=0):
        pass
    assert (tmp_path / LOCK_FILE).read_text() == ""


def test_a_disk_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Going on would be to hope that nobody else commits."""

    def no_locks(_descriptor: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("floodmark.sinks.delta.lock.try_record_lock", no_locks)
    with pytest.raises(LockRefused, match="No locks available"), table_lock(tmp_path, None, patience_seconds=1):
        pass
    monkeypatch.undo()
    assert is_free(tmp_path)


@pytest.mark.spark
def test_the_jvm_holds_the_lock_against_other_processes(spark: SparkSession, tmp_path: Path) -> None:
    """It is the JVM that commits, and it may outlive Python."""
    with table_lock(tmp_path, spark, patience_seconds=1):
        other = subprocess.run(
            [sys.executable, "-c", HOLD.replace("=5", "=0"), str(tmp_path)], capture_output=True, text=True, check=False
        )
        assert "TableBusy" in other.stderr
        assert not is_free(tmp_path)
    with holding(tmp_path):
        assert jvm_lock(spark, tmp_path / LOCK_FILE) is None
    with table_lock(tmp_path, spark, patience_seconds=5):
        pass


@pytest.mark.spark
def test_another_python_of_the_same_jvm_waits_and_costs_nobody_the_lock(spark: SparkSession, tmp_path: Path) -> None:
    """A JVM that closes a file gives up every lock that it has of it: who asks in vain must not have opened it."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    with table_lock(tmp_path, spark, patience_seconds=1):
        assert [jvm_lock(spark, tmp_path / LOCK_FILE) for _ in range(3)] == [None, None, None]
        gc.collect()
        jvm.java.lang.System.gc()  # what was opened and let go of is closed by this
        time.sleep(0.5)
        assert not is_free(tmp_path)
    assert is_free(tmp_path)


def test_the_start_of_a_process_tells_two_with_one_number_apart() -> None:
    """A process that does not exist has no start."""
    assert start_of_process(ME) is not None
    assert start_of_process(2**22 + 1) is None

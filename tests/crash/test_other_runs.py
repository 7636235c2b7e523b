"""Runs that meet: one works at a time, and one that was thought dead cannot do harm when it comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from floodmark.errors import LeaseHeld
from tests.crash import shop, waiting
from tests.crash.killing import ids_in_table, start


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 90
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert path.exists()


@pytest.fixture
def waiting_run(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run in another process that holds the lease, has read, and waits before it writes."""
    shop.deliver(tmp_path, "day1", range(100))
    process = subprocess.Popen(
        [sys.executable, waiting.__file__, str(tmp_path)], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_for(tmp_path / "waiting")
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_of_two_runs_at_once_one_works_and_the_other_says_who(
    spark: SparkSession, tmp_path: Path, waiting_run: subprocess.Popen[str]
) -> None:
    """Exit 4, with the holder's process and since when; the first one finishes undisturbed."""
    with pytest.raises(LeaseHeld) as stop:
        shop.shop(tmp_path, ["lake"]).run(spark, shop.open_store(tmp_path))
    assert (stop.value.exit_code, f"pid {waiting_run.pid} " in stop.value.holder, bool(stop.value.since)) == (4, True, True)
    (tmp_path / "go").touch()
    assert waiting_run.wait(90) == 0
    assert ids_in_table(spark, tmp_path / "lake") == list(range(100))


def test_a_run_that_was_paused_beyond_its_lease_can_neither_write_nor_commit(
    spark: SparkSession, tmp_path: Path, waiting_run: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped (SIGSTOP), another run takes over and finishes; woken up, it stops before it writes."""
    monkeypatch.setenv("FLOODMARK_LEASE_SECONDS", "3")
    os.kill(waiting_run.pid, signal.SIGSTOP)
    shop.shop(tmp_path, ["lake"]).run(spark, shop.open_store(tmp_path))
    number = shop.open_store(tmp_path).read("shop").number
    (tmp_path / "go").touch()
    os.kill(waiting_run.pid, signal.SIGCONT)
    _, said = waiting_run.communicate(timeout=90)
    assert (waiting_run.returncode, "LeaseLost" in said) == (1, True)
    assert ids_in_table(spark, tmp_path / "lake") == list(range(100))
    assert shop.open_store(tmp_path).read("shop").number == number


def test_a_jvm_that_outlives_its_python_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    """kill -9 of Python alone, with its JVM in the middle of a write: nothing is doubled."""
    shop.deliver(tmp_path, "day1", range(100))
    process = start(tmp_path, ["lake"], FLOODMARK_CRASH_AT="after_read")
    process.communicate(timeout=120)
    lease = shop.open_store(tmp_path).lease("shop")
    assert lease is not None
    assert lease.owner.jvm_pid is not None
    rerun = threading.Thread(target=lambda: shop.shop(tmp_path, ["lake"]).run(spark, shop.open_store(tmp_path)))
    rerun.start()
    rerun.join(120)
    assert ids_in_table(spark, tmp_path / "lake") == list(range(100))

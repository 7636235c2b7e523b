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
from typing import TYPE_CHECKING

import pytest

import floodmark as fm
from floodmark.errors import CodeChanged, FloodmarkError, LeaseHeld
from tests.crash import shop, waiting
from tests.crash.killing import ids_in_table, stop_between_beats, wait_until_is_stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


@pytest.mark.crash
def test_of_two_runs_at_once_one_works_and_the_other_says_who(
    spark: SparkSession, tmp_path: Path, waiting_run: subprocess.Popen[str]
) -> None:
    """Exit 4, with the holder's process and since when; the first one finishes undisturbed."""
    with pytest.raises(LeaseHeld) as stop:
        shop.shop(tmp_path, ["lake"]).run(spark, shop.open_store(tmp_path))
    assert (stop.value.exit_code, stop.value.holder.split(" on ")[0]) == (4, f"pid {waiting_run.pid}")
    assert stop.value.since in str(stop.value)
    (tmp_path / "go").touch()
    assert waiting_run.wait(90) == 0
    assert ids_in_table(spark, tmp_path / "lake") == list(range(100))


@pytest.mark.crash
def test_a_run_that_was_paused_beyond_its_lease_can_neither_write_nor_commit(
    spark: SparkSession, tmp_path: Path, waiting_run: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped (SIGSTOP), another run takes over and finishes; woken up, it stops before it writes."""
    monkeypatch.setenv("FLOODMARK_LEASE_SECONDS", "3")
    os.kill(waiting_run.pid, signal.SIGSTOP)
    wait_until_is_stopped(waiting_run.pid)
    shop.shop(tmp_path, ["lake"]).run(spark, shop.open_store(tmp_path))
    number = shop.open_store(tmp_path).read("shop").number
    (tmp_path / "go").touch()
    os.kill(waiting_run.pid, signal.SIGCONT)
    _, said = waiting_run.communicate(timeout=90)
    assert (waiting_run.returncode, "LeaseLost" in said) == (1, True)
    assert ids_in_table(spark, tmp_path / "lake") == list(range(100))
    assert shop.open_store(tmp_path).read("shop").number == number


@pytest.mark.crash
@pytest.mark.parametrize("batches_before", [0, 1])
def test_a_run_paused_inside_its_write_and_other_code_since_leave_every_row_once(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    batches_before: int,
) -> None:
    """Python and JVM are stopped, the next run has other code and waits in its fence when they go on.

    Also for the first batch, where there is no table yet. Either the paused run's rows are seen, or it is shut out.
    """
    monkeypatch.setenv("FLOODMARK_LEASE_SECONDS", "3")
    store, job = shop.open_store(tmp_path), shop.shop(tmp_path, ["lake"])
    if batches_before:
        shop.deliver(tmp_path, "day0", range(100, 200))
        job.run(spark, store)
    shop.deliver(tmp_path, "day1", range(100))
    paused = subprocess.Popen(
        [sys.executable, waiting.__file__, str(tmp_path), "inside"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    request.addfinalizer(lambda: end_session(paused))
    wait_for(tmp_path / "waiting")
    stopped = stop_between_beats(paused.pid, tmp_path / "marks.db")
    outcomes: list[object] = []
    rerun = threading.Thread(target=lambda: outcomes.append(outcome_of(job, spark, store)))
    rerun.start()
    wait_until_held_by(store, os.getpid())
    time.sleep(3)  # the rerun has decided, or waits for the table that the paused run holds
    (tmp_path / "go").touch()
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    _, message = paused.communicate(timeout=120)
    rerun.join(120)

    assert paused.returncode == 1, message
    assert "Overtaken" in message or "after it had written to lake" in message
    [outcome] = outcomes
    if isinstance(outcome, CodeChanged):
        job.run(spark, store, finish=True)
    else:
        assert isinstance(outcome, fm.Receipt)
    assert ids_in_table(spark, tmp_path / "lake") == list(range(100 + 100 * batches_before))


def end_session(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def outcome_of(job: fm.Job, spark: SparkSession, store: fm.stores.MarkStore) -> object:
    try:
        return job.run(spark, store)
    except FloodmarkError as error:
        return error


def wait_until_held_by(store: fm.stores.MarkStore, pid: int) -> None:
    deadline = time.monotonic() + 60
    while (lease := store.lease("shop")) is None or lease.owner.pid != pid:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.crash
def test_a_jvm_that_outlives_its_python_is_waited_for(
    spark: SparkSession, tmp_path: Path, waiting_run: subprocess.Popen[str]
) -> None:
    """kill -9 of Python alone: as long as its JVM is there it may still write, so the rerun does nothing before."""
    jvm = shop.open_store(tmp_path).lease("shop").owner.jvm_pid
    os.kill(jvm, signal.SIGSTOP)
    wait_until_is_stopped(jvm)
    os.kill(waiting_run.pid, signal.SIGKILL)
    waiting_run.wait(10)
    rerun = threading.Thread(target=lambda: shop.shop(tmp_path, ["lake"]).run(spark, shop.open_store(tmp_path)))
    rerun.start()
    rerun.join(3)
    assert (rerun.is_alive(), shop.open_store(tmp_path).read("shop").number) == (True, 0)
    os.kill(jvm, signal.SIGCONT)
    rerun.join(60)
    assert ids_in_table(spark, tmp_path / "lake") == list(range(100))

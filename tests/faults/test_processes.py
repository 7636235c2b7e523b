"""Processes of a run that are killed, or have no memory left: the next run finishes the same batch."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from floodmark.testing.servers.child import children_of
from tests.faults.orders import DELTA, FILES, Orders, await_that, chosen
from tests.proofs import Prove

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

ROWS = list(range(500))


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    """Into two sinks, by way of the spool."""
    project = Orders(tmp_path, [DELTA, FILES])
    project.deliver(range(500))
    return project


def jvm_of(pid: int) -> int:
    """The JVM that a run has started."""
    below = [pid]
    for process in below:
        below += children_of(process)
    return next(each for each in below if b"java" in Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")[0])


def test_a_driver_that_is_killed_within_a_task(orders: Orders, prove: Prove) -> None:
    """Python and its JVM at once, as when a machine loses power."""
    orders.tell("hold")
    process = orders.start()
    orders.await_task(process)
    os.killpg(process.pid, signal.SIGKILL)
    killed = orders.end_of(process)
    orders.let("hold")
    finished = orders.run()
    assert (killed.exit_code, finished.exit_code) == (-signal.SIGKILL, 0), finished.output
    assert (orders.ids_in_lake(), orders.ids_in_files()) == (ROWS, ROWS)
    prove("the driver is killed within a task (Python and JVM)", finished.message, "every row once in both sinks")


def test_a_jvm_that_is_killed_within_a_task(orders: Orders, prove: Prove) -> None:
    """As the kernel does when the machine has no memory left: Python lives, and says what it lost."""
    orders.tell("hold")
    process = orders.start()
    orders.await_task(process)
    os.kill(jvm_of(process.pid), signal.SIGKILL)
    orders.let("hold")
    failed = orders.end_of(process)
    finished = orders.run()
    assert (failed.exit_code, finished.exit_code) == (1, 0), failed.output + finished.output
    assert "JVM" in failed.message or "Spark" in failed.message, failed.output
    assert (orders.ids_in_lake(), orders.ids_in_files()) == (ROWS, ROWS)
    prove("the JVM is killed within a task, as by the kernel", failed.message, "every row once in both sinks")


def test_a_loop_whose_jvm_is_killed_begins_another(orders: Orders, prove: Prove) -> None:
    """Between two batches: the loop is the process that somebody watches, and it lives."""
    process, log = orders.start("--loop"), orders.home / "run.log"
    await_that(lambda: len(orders.ids_in_files()) == len(ROWS), process, log)
    os.kill(jvm_of(process.pid), signal.SIGKILL)
    orders.deliver(range(500, 600))
    await_that(lambda: len(orders.ids_in_files()) == len(ROWS) + 100, process, log)
    process.send_signal(signal.SIGTERM)
    ended = orders.end_of(process)
    assert ended.exit_code == 0, ended.output
    assert orders.ids_in_lake() == orders.ids_in_files() == list(range(600))
    prove(
        "the JVM of a loop is killed between two batches",
        ended.message,
        "every row once in both sinks, by the same loop",
    )


def test_a_jvm_without_memory(orders: Orders, prove: Prove) -> None:
    """Its heap is full: the run names it and what to set; nothing was published."""
    orders.tell("greedy")
    failed = orders.run()
    orders.let("greedy")
    finished = orders.run()
    assert (failed.exit_code, finished.exit_code) == (1, 0), failed.output + finished.output
    assert "memory" in failed.message, failed.output
    assert (orders.ids_in_lake(), orders.ids_in_files()) == (ROWS, ROWS)
    prove("the JVM has no memory left", failed.message, "every row once in both sinks, by the next run")


@pytest.mark.parametrize("fate", chosen("killed", "hungry"))
def test_a_python_worker_without_memory(orders: Orders, fate: str, prove: Prove) -> None:
    """The kernel kills it, or Python says MemoryError."""
    orders.tell(fate)
    failed = orders.run()
    orders.let(fate)
    finished = orders.run()
    assert (failed.exit_code, finished.exit_code) == (1, 0), failed.output + finished.output
    assert "MemoryError" in failed.message or "worker" in failed.message, failed.output
    assert (orders.ids_in_lake(), orders.ids_in_files()) == (ROWS, ROWS)
    prove("a Python worker has no memory left", failed.message, "every row once in both sinks, by the next run")

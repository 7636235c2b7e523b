"""Clocks that are set forward and back, between runs and between machines: no order of anything hangs on them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from floodmark import stores
from tests.faults import slow_owner
from tests.faults.orders import DELTA, FILES, Orders
from tests.faults.test_stopped_run import HOST, let_save, word_of
from tests.proofs import Prove

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

HOUR = 3600


@pytest.fixture(scope="session")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that gives a process and its JVM another time of day."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here to make another clock with")
    made = tmp_path_factory.mktemp("clock") / "clock.so"
    source = Path(__file__).with_name("clock.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
    return made


def at(clock: Path, seconds: int) -> dict[str, str]:
    """The environment of a process whose clock is so far ahead, or behind."""
    return {"LD_PRELOAD": str(clock), "CLOCK_SHIFT": str(seconds)}


def test_runs_whose_clock_goes_an_hour_forward_and_two_back(tmp_path: Path, clock: Path, prove: Prove) -> None:
    """The first, an hour ahead, is killed between its sinks; the second, an hour behind, finishes it.

    Files that are younger than the clock of a run wait for a later one.
    """
    orders = Orders(tmp_path, [DELTA, FILES])
    orders.deliver(range(300))
    killed = orders.run(FLOODMARK_CRASH_AT="after_sink:1", **at(clock, HOUR))
    finished = orders.run(**at(clock, -HOUR))
    orders.deliver(range(300, 500))
    early = orders.run(**at(clock, -2 * HOUR))
    held_back = orders.ids_in_files()
    later = orders.run()
    receipts = stores.open("sqlite:///marks.db", folder=tmp_path).runs("orders")
    half_an_hour_ago = datetime.now(timezone.utc) - timedelta(seconds=HOUR / 2)
    assert (killed.exit_code, finished.exit_code, later.exit_code) == (-9, 0, 0), finished.output + later.output
    assert receipts[-1].started < half_an_hour_ago, "the clock was not another one"
    assert held_back == list(range(300))  # a file from the future waits until its time has come
    assert orders.ids_in_lake() == orders.ids_in_files() == list(range(500))
    prove("the clock goes an hour ahead, then two back, between runs", early.message, "every row once in both sinks")


@pytest.mark.parametrize("shift", [-600, 600])
@pytest.mark.parametrize("store", ["file:marks", "sqlite:///marks.db", "postgres"])
def test_a_lease_of_a_machine_whose_clock_is_another(
    store: str, shift: int, tmp_path: Path, clock: Path, database: str, prove: Prove
) -> None:
    """Ten minutes ahead or behind: while its owner lives it is held, and nobody takes it for old."""
    place = database if store == "postgres" else store
    with start(place, tmp_path, 100, **at(clock, shift)) as owner:
        is_held = word_of(owner)
        time.sleep(5)  # twice as long as a lease lasts here, and the owner's heart beats
        with start(place, tmp_path, 200) as other:
            answer = word_of(other)
            other.kill()
        saved = let_save(owner)
    record = stores.open(place, folder=tmp_path).read("orders")
    assert record is not None
    assert (is_held, answer, saved) == ("held", "LeaseHeld", "saved")
    assert record.marks["orders"].value == 100
    prove(
        "clocks of two machines differ by ten minutes",
        f"{answer} (exit 4)",
        "one run at a time, with marks in files, SQLite and PostgreSQL",
    )


def start(store: str, folder: Path, value: int, **environment: str) -> subprocess.Popen[str]:
    """A run on a host of its own, with a lease of two seconds."""
    own = {"PYTHONPATH": os.pathsep.join(sys.path), "FLOODMARK_LEASE_SECONDS": "2", **environment}
    return subprocess.Popen(
        [*HOST, sys.executable, slow_owner.__file__, store, str(folder), str(value)],
        env={**os.environ, **own},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )

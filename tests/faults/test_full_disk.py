"""A disk that becomes full: the old mark stays, the error has a name, and once there is room all goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import full_store
from tests.faults.orders import DELTA, FILES, Orders, Run, chosen
from tests.proofs import Prove

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

ROWS = list(range(60_000))


@pytest.mark.parametrize("store", ["file:marks", "sqlite:///marks.db"])
def test_a_store_on_a_full_disk_keeps_the_last_mark_that_it_saved(store: str, tmp_path: Path, prove: Prove) -> None:
    """Neither half a record nor a mark without its receipt; a run that could not save says so."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f'mount -t tmpfs -o size=400k none {disk} && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, full_store.__file__, store, str(disk)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"error": "StoreUnreachable", "whole": True, "receipts": True, "last": 1000}
    prove("the disk of the marks is full", "StoreUnreachable", "the last mark that was saved, with its receipt")


SMALL, LARGE = "100k", "100m"


@pytest.mark.parametrize("place", chosen("out", "lake", "spool"))
def test_a_disk_that_is_full_in_a_sink_or_in_the_spool(place: str, tmp_path: Path, prove: Prove) -> None:
    """Nothing of the batch is published there; once there is room, the same batch is finished."""
    orders = Orders(tmp_path, [DELTA, FILES])
    orders.deliver(range(60_000))
    failed, finished = on_small_disk(orders, place)
    assert (failed.exit_code, finished.exit_code) == (1, 0), failed.output + finished.output
    assert "No space left on device" in failed.message, failed.output
    assert (orders.ids_in_lake(), orders.ids_in_files()) == (ROWS, ROWS)
    prove("the disk of a sink or of the spool is full", failed.message, "every row once in both sinks, by the next run")


def on_small_disk(orders: Orders, place: str) -> tuple[Run, Run]:
    """Two runs where a folder of the project is a small disk for the first, and a larger one for the second.

    What the second left on that disk is copied out before the disk goes with its namespace.
    """
    folder, program = orders.home / place, orders.home / "runs.sh"
    folder.mkdir()
    program.write_text(
        f"mount -t tmpfs -o size={SMALL} none {folder} || exit 9\n"
        f"{sys.executable} -m floodmark run > first.log 2>&1; echo $? > first.code\n"
        f"mount -o remount,size={LARGE} {folder} || exit 9\n"
        f"{sys.executable} -m floodmark run > second.log 2>&1; echo $? > second.code\n"
        f"cp -a {folder} copied && umount {folder} && cp -a copied/. {folder}\n"
    )
    subprocess.run(["unshare", "--mount", "sh", program], cwd=orders.home, check=True, timeout=240)
    return tuple(  # type: ignore[return-value]
        Run(int((orders.home / f"{name}.code").read_text()), (orders.home / f"{name}.log").read_text())
        for name in ("first", "second")
    )

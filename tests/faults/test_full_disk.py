"""A disk that becomes full: the old mark stays, the error has a name, and once there is room all goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import full_store

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("store", ["file:marks", "sqlite:///marks.db"])
def test_a_store_on_a_full_disk_keeps_the_last_mark_that_it_saved(store: str, tmp_path: Path) -> None:
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

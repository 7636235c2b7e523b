"""Locks between processes, and telling whether a process is the one it was."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from floodmark import machine
from floodmark.machine import Mount, file_lock, mount_of, process, this_machine


def test_a_lock_that_another_keeps_is_waited_for_and_then_given_up(tmp_path: Path) -> None:
    """A process that was stopped while it held the lock must not hold up all others for ever."""
    with (
        file_lock(tmp_path / "lock"),
        pytest.raises(TimeoutError, match="was locked for"),
        file_lock(tmp_path / "lock", patience_seconds=0.1),
    ):
        pass


def test_a_lock_is_free_once_its_process_is_dead(tmp_path: Path) -> None:
    """The system lets go; no file has to be removed by hand."""
    script = "import sys, time; from pathlib import Path; from floodmark.machine import file_lock\n"
    script += "with file_lock(Path(sys.argv[1])): print(flush=True); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "lock")], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    holder.kill()
    holder.communicate()
    with file_lock(tmp_path / "lock", patience_seconds=5.0):
        pass


def test_readers_share_a_lock(tmp_path: Path) -> None:
    """Looks do not wait for each other."""
    (tmp_path / "lock").touch()
    begun = time.monotonic()
    with (
        file_lock(tmp_path / "lock", exclusive=False, patience_seconds=5.0),
        file_lock(tmp_path / "lock", exclusive=False, patience_seconds=5.0),
    ):
        assert time.monotonic() - begun < 4.0


def test_the_machine_is_the_same_for_every_call() -> None:
    """One start of the machine, one container."""
    assert this_machine() == this_machine()
    assert this_machine().boot


def test_a_zombie_is_gone() -> None:
    """It has ended, and only its parent has not asked yet."""
    ended = subprocess.Popen([sys.executable, "-c", "print()"], stdout=subprocess.PIPE)
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    found = process(ended.pid)
    ended.communicate()
    assert found is None


def test_a_program_with_parentheses_in_its_name_is_read_right() -> None:
    """The name stands in the middle of what the system says."""
    rename = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'a) Z (b', 0, 0, 0); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", rename], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as odd:
        assert odd.stdout is not None
        odd.stdout.readline()
        found = process(odd.pid)
        odd.kill()
    assert found is not None
    assert (found.started.isdigit(), found.state in {"S", "R", "D"}) == (True, True)


MOUNTS = r"""rootfs / rootfs rw 0 0
/dev/vda / ext4 rw,relatime 0 0
filer:/home /fm/home nfs4 rw,vers=4.2 0 0
/dev/vdb /fm/home/me/local xfs rw 0 0
//win/data /fm/our\040data cifs rw 0 0
me@far:/ /fm/far fuse.sshfs rw 0 0
tmpfs /fm/far/tmp tmpfs rw 0 0
filer:/tmp /fm/far/tmp nfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "mount", "is_network_disk"),
    [
        ("/srv/marks.db", Mount("/", "ext4"), False),
        ("/fm/home/me/marks.db", Mount("/fm/home", "nfs4"), True),
        ("/fm/homely/marks.db", Mount("/", "ext4"), False),
        ("/fm/home/me/local/a/marks.db", Mount("/fm/home/me/local", "xfs"), False),
        ("/fm/our data/marks.db", Mount("/fm/our data", "cifs"), True),
        ("/fm/far/marks.db", Mount("/fm/far", "fuse.sshfs"), True),
        ("/fm/far/tmp/marks.db", Mount("/fm/far/tmp", "nfs"), True),
    ],
)
def test_a_path_lies_on_the_nearest_mount(
    path: str, mount: Mount, is_network_disk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one, where several were put on one folder."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mounts").write_text(MOUNTS)
    monkeypatch.setattr(machine, "PROC", tmp_path)
    assert mount_of(Path(path)) == mount
    assert mount.is_network_disk == is_network_disk


def test_where_no_list_of_mounts_is_kept_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another system than Linux."""
    monkeypatch.setattr(machine, "PROC", tmp_path)
    assert mount_of(Path("/home/me")) is None

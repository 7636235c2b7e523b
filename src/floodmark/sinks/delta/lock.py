"""Keeping two JVMs on one machine from committing to the same Delta table at once, which `file:` paths allow."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

LOCK_FILE = "_floodmark.lock"
"""Begins with an underscore: neither readers nor VACUUM look at such a name."""
PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Holder:
    """Who commits now: the process that does it (Spark's JVM, which may outlive Python), and one taking of the lock."""

    host: str
    boot: str
    pid: int
    started: str
    token: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def is_gone(self) -> bool:
        """True only if it is known: on another machine, or before a look is possible, it counts as alive."""
        if (self.host, self.boot) != (socket.gethostname(), boot_id()):
            return self.host == socket.gethostname() and self.boot != boot_id()
        return started_at(self.pid) != self.started


class TableBusy(Exception):
    """The lock was not to be had in time."""

    def __init__(self, file: Path, holder: Holder, seconds: float) -> None:
        super().__init__(f"{holder} has been committing to it for more than {seconds:g} s (lock file {file})")
        self.file, self.holder = file, holder


@contextmanager
def table_lock(folder: Path, pid: int, *, patience_seconds: float) -> Iterator[None]:
    """Hold the table's lock for the process `pid`; raises TableBusy if another holder keeps it for too long."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / LOCK_FILE
    own = Holder(socket.gethostname(), boot_id(), pid, started_at(pid) or "", uuid.uuid4().hex)
    deadline = time.monotonic() + patience_seconds
    while (other := _taken_by(file, own)) is not None:
        if time.monotonic() > deadline:
            raise TableBusy(file, other, patience_seconds)
        time.sleep(PAUSE_SECONDS)
    try:
        yield
    finally:
        _release(file, own)


def _taken_by(file: Path, own: Holder) -> Holder | None:
    """Take the lock, or say who has it."""
    with _alone(file) as handle:
        other = _written(handle)
        if other is not None and not other.is_gone():
            return other
        _write(handle, json.dumps(asdict(own)))
        return None


def _release(file: Path, own: Holder) -> None:
    with _alone(file) as handle:
        if _written(handle) == own:
            _write(handle, "")


@contextmanager
def _alone(file: Path) -> Iterator[int]:
    """The file, for a moment, with every other process and thread kept out; it is never deleted, so never mistaken."""
    import fcntl

    handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def _written(handle: int) -> Holder | None:
    text = os.pread(handle, 4096, 0)
    return Holder(**json.loads(text)) if text else None


def _write(handle: int, text: str) -> None:
    # Emptied first: a process killed in between leaves a free lock, which is true, since it had not got it yet.
    os.ftruncate(handle, 0)
    os.pwrite(handle, text.encode(), 0)


def started_at(pid: int) -> str | None:
    """When a process began, in the system's own words; None if there is none. A number used again has another start."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _started_by_ps(pid)
    return None if fields[0] == "Z" else fields[19]


def _started_by_ps(pid: int) -> str | None:
    told = subprocess.run(["/bin/ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return told.stdout.strip() or None


def boot_id() -> str:
    """Changes with every start of the machine; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""

"""Keeping two JVMs on one machine from committing to the same Delta table at once, which `file:` paths allow."""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from floodmark.formats import with_format, without_format
from floodmark.machine import file_lock, start_of_process, this_machine
from floodmark.patience import patiently

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
        if (self.host, self.boot) != (socket.gethostname(), this_machine().boot):
            return self.host == socket.gethostname() and self.boot != this_machine().boot
        return start_of_process(self.pid) != self.started


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
    own = Holder(socket.gethostname(), this_machine().boot, pid, start_of_process(pid) or "", uuid.uuid4().hex)
    patiently(
        lambda: _take(file, own, patience_seconds),
        seconds=patience_seconds,
        passing=lambda error: isinstance(error, TableBusy),
        pause_seconds=PAUSE_SECONDS,
    )
    try:
        yield
    finally:
        _release(file, own)


def _take(file: Path, own: Holder, patience_seconds: float) -> None:
    """Take the lock. Raises TableBusy, with who has it."""
    with file_lock(file) as handle:
        other = _holder_in(handle)
        if other is not None and not other.is_gone():
            raise TableBusy(file, other, patience_seconds)
        _write(handle, json.dumps(with_format(asdict(own))))


def _release(file: Path, own: Holder) -> None:
    with file_lock(file) as handle:
        if _holder_in(handle) == own:
            _write(handle, "")


def _holder_in(handle: int) -> Holder | None:
    text = os.pread(handle, 4096, 0)
    return Holder(**without_format(json.loads(text), "the lock", where=LOCK_FILE)) if text else None


def _write(handle: int, text: str) -> None:
    # Emptied first: a process killed in between leaves a free lock, which is true, since it had not got it yet.
    os.ftruncate(handle, 0)
    os.pwrite(handle, text.encode(), 0)

"""The guard of a Delta table on a local disk: one process commits at a time, which Delta itself does not see to there.

It is a lock of the kernel on a file in the table's folder, held by the process that commits: Spark's JVM, which may
outlive Python. So it ends with that process, whatever becomes of its host, and containers that share the disk share
it. What the file says is for people, and for versions of Floodmark that went by it.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.formats import with_format, without_format
from floodmark.machine import start_of_process, this_machine, try_record_lock
from floodmark.patience import patiently
from floodmark.spark.session import jvm_lock, jvm_pid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCK_FILE = "_floodmark.lock"
"""Begins with an underscore: neither readers nor VACUUM look at such a name."""
PAUSE_SECONDS = 0.05
KERNEL = "kernel-"
"""How the token of a holder begins that has the kernel's lock: without the lock, what it wrote means nothing."""

_taken: set[str] = set()
"""Files that a thread of this process has locked: the kernel's lock of a JVM does not tell its threads apart."""
_taking = threading.Lock()


@dataclass(frozen=True)
class Holder:
    """Who commits now: the process that does it, and one taking of the lock."""

    host: str
    boot: str
    pid: int
    started: str
    token: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def goes_by_the_file(self) -> bool:
        """Whether it is of a version that had no lock of the kernel, and lives: on another host nobody can tell, and
        waiting for it might be for ever."""
        here = (socket.gethostname(), this_machine().boot)
        is_earlier = not self.token.startswith(KERNEL)
        return is_earlier and (self.host, self.boot) == here and start_of_process(self.pid) == self.started


class TableBusy(Exception):
    """The lock was not to be had in time."""

    def __init__(self, file: Path, holder: Holder | None, seconds: float) -> None:
        who = holder or "another process"
        super().__init__(f"{who} has been committing to it for more than {seconds:g} s (lock file {file})")
        self.file, self.holder = file, holder


class LockRefused(Exception):
    """The disk knows no locks, so nothing would keep two processes from committing at once."""


@contextmanager
def table_lock(folder: Path, spark: SparkSession | None, *, patience_seconds: float) -> Iterator[None]:
    """Hold the table's lock, in the JVM of the session or, without one, in this process.

    Raises TableBusy if another holder keeps it for too long, LockRefused where the disk knows no locks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / LOCK_FILE
    own = new_holder(spark)
    with ExitStack() as held:
        patiently(
            lambda: held.enter_context(_locked(file, own, spark, patience_seconds)),
            seconds=patience_seconds,
            passing=lambda error: isinstance(error, TableBusy),
            pause_seconds=PAUSE_SECONDS,
        )
        yield


def new_holder(spark: SparkSession | None) -> Holder:
    """The process that holds the lock for the session."""
    pid = (jvm_pid(spark) if spark is not None else None) or os.getpid()
    token = f"{KERNEL}{uuid.uuid4().hex}"
    return Holder(socket.gethostname(), this_machine().boot, pid, start_of_process(pid) or "", token)


@contextmanager
def _locked(file: Path, own: Holder, spark: SparkSession | None, patience_seconds: float) -> Iterator[None]:
    """The lock, if it is free now. Raises TableBusy, with who has it."""
    with ExitStack() as held:
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        held.callback(os.close, handle)
        if not held.enter_context(_only_thread(file)) or not held.enter_context(_kernel_lock(file, handle, spark)):
            raise TableBusy(file, _holder_in(handle), patience_seconds)
        other = _holder_in(handle)
        if other is not None and other.goes_by_the_file():
            raise TableBusy(file, other, patience_seconds)
        _write(handle, json.dumps(with_format(asdict(own))))
        held.callback(_write, handle, "")
        yield


@contextmanager
def _only_thread(file: Path) -> Iterator[bool]:
    """Whether no other thread of this process has the file."""
    key = str(file.resolve())
    with _taking:
        is_free = key not in _taken
        _taken.add(key)
    try:
        yield is_free
    finally:
        if is_free:
            _taken.discard(key)


@contextmanager
def _kernel_lock(file: Path, handle: int, spark: SparkSession | None) -> Iterator[bool]:
    """Whether the file is locked now, by whoever is to hold it; one that was removed meanwhile guards nothing."""
    try:
        has_jvm = spark is not None and jvm_pid(spark) is not None
        release = jvm_lock(spark, file) if has_jvm and spark is not None else try_record_lock(handle)
    except OSError as error:
        raise LockRefused(f"its lock file {file} cannot be locked: {error}") from error
    try:
        yield release is not None and _is_same_file(file, handle)
    finally:
        if release is not None:
            release()


def _is_same_file(file: Path, handle: int) -> bool:
    try:
        return os.path.samestat(file.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _holder_in(handle: int) -> Holder | None:
    """Who has it, as far as the file tells: it may be read while it is written, and nothing hangs on it."""
    text = os.pread(handle, 4096, 0)
    with suppress(ValueError, TypeError):
        return Holder(**without_format(json.loads(text), "the lock", where=LOCK_FILE))
    return None


def _write(handle: int, text: str) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, text.encode(), 0)

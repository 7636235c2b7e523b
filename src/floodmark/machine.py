"""This machine: files that survive a crash, file locks between processes, and which processes still live."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.patience import patiently

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROC = Path("/proc")
LOCK_PAUSE_SECONDS = 0.005
NETWORK_DISKS = frozenset({
    "9p", "afs", "beegfs", "blobfuse", "blobfuse2", "ceph", "ceph-fuse", "cifs", "davfs", "davfs2", "gcsfuse",
    "gfs2", "glusterfs", "goofys", "gpfs", "juicefs", "lustre", "mount-s3", "ncpfs", "nfs", "nfs4", "ocfs2",
    "orangefs", "pvfs2", "rclone", "s3fs", "smb2", "smb3", "smbfs", "sshfs",
})  # fmt: skip
"""File systems of other machines, by the names that Linux has for them, without the `fuse.` before some of them."""
PLAIN_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
LONGEST_NAME = 120
OWN_RECORD_LOCK = 37
"""Linux calls it F_OFD_SETLK."""
RECORD_LOCK = "@hhqqi4x"
"""How Linux lays out `struct flock`."""


def replace_file(path: Path, text: str) -> None:
    """Put the text in the place of the file: durable on return, and a crash leaves the old one or the new one.

    >>> from pathlib import Path
    >>> replace_file(Path(folder) / "marks.json", "{}")
    >>> (Path(folder) / "marks.json").read_text()
    '{}'
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def append_after(path: Path, length: int, text: str) -> int:
    """Cut the file to its committed length, append and make it durable; return the new length."""
    with path.open("ab") as file:
        file.truncate(length)  # what a crashed save left behind
        file.seek(length)
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


def ensure_folder(folder: Path) -> None:
    """Make the folder and those above it, if they are missing, and make their names durable."""
    if folder.is_dir():
        return
    ensure_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make renames and new names in a folder durable; Windows opens no folder, and does it by itself."""
    if sys.platform != "win32":
        sync_file(folder)


def sync_file(path: Path) -> None:
    """Bring what another process wrote into a file to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_name(name: str) -> str:
    """A file name for any name, so that two that differ never share a file, on any disk.

    It is lower case ASCII; upper case is escaped too, since some disks do not tell `A` from `a`.
    """
    raw = name.encode("utf-8", "surrogatepass")
    text = "".join(chr(byte) if byte in PLAIN_BYTES else f"%{byte:02x}" for byte in raw) or "%"
    if len(text) <= LONGEST_NAME:
        return text
    # `~` is never in an escaped name, so a shortened one cannot be another's whole name
    return f"{text[:60]}~{hashlib.sha256(raw).hexdigest()}"


@contextmanager
def file_lock(path: Path, *, exclusive: bool = True, patience_seconds: float | None = None) -> Iterator[int]:
    """Hold the lock file against other threads and processes, and give its descriptor; a process that dies lets go.

    With a patience, TimeoutError (an OSError) is raised if another one keeps it longer: a blocking lock would wait for
    ever for a process that was stopped while it held it. The file is never deleted, so never mistaken for another.
    """
    import fcntl

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT if exclusive else os.O_RDONLY, 0o666)
    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    try:
        if patience_seconds is None:
            fcntl.flock(descriptor, kind)
        else:
            _lock_within(patience_seconds, descriptor, kind, path)
        yield descriptor
    finally:
        os.close(descriptor)


def _lock_within(seconds: float, descriptor: int, kind: int, path: Path) -> None:
    import fcntl

    try:
        patiently(
            lambda: fcntl.flock(descriptor, kind | fcntl.LOCK_NB),
            seconds=seconds,
            passing=lambda error: isinstance(error, BlockingIOError),
            pause_seconds=LOCK_PAUSE_SECONDS,
        )
    except BlockingIOError as error:
        raise TimeoutError(f"{path} was locked for {seconds:g} s") from error


def try_record_lock(descriptor: int) -> Callable[[], None] | None:
    """Lock the open file, as POSIX has it, and give what lets go of it; None if another process or thread has it.

    It stands against a JVM's lock of the same file, which `file_lock` does not, and ends with this process.
    """
    import fcntl

    def lock(kind: int) -> None:
        # That of the description, where the system has it: one of the process ends with any other close of the file.
        if sys.platform == "linux":
            fcntl.fcntl(descriptor, OWN_RECORD_LOCK, struct.pack(RECORD_LOCK, kind, os.SEEK_SET, 0, 0, 0))
        else:
            fcntl.lockf(descriptor, fcntl.LOCK_UN if kind == fcntl.F_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB)

    try:
        lock(fcntl.F_WRLCK)
    except (BlockingIOError, PermissionError):
        return None
    return lambda: lock(fcntl.F_UNLCK)


@dataclass(frozen=True)
class Mount:
    """Where a disk was put into the tree of folders, and what kind of file system it has."""

    folder: str
    kind: str

    @property
    def is_network_disk(self) -> bool:
        """Whether its files may be open on another host too, where locks and caches are others."""
        return self.kind.removeprefix("fuse.") in NETWORK_DISKS


def mount_of(path: Path) -> Mount | None:
    """The mount that the path lies on, or would lie on; None where the system keeps no list of them."""
    try:
        lines = (PROC / "self" / "mounts").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    place = path.resolve()
    mounts = [Mount(_without_escapes(folder), kind) for _, folder, kind, *_ in (line.split(" ") for line in lines)]
    above = [mount for mount in mounts if place.is_relative_to(mount.folder)]
    # Of two at one folder the later one hides the earlier.
    return max(reversed(above), key=lambda mount: len(Path(mount.folder).parts), default=None)


def _without_escapes(folder: str) -> str:
    """Blanks, tabs, line ends and backslashes stand in the list as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), folder)


@dataclass(frozen=True)
class Process:
    """What the system says about a process; a zombie has no more than its number left and is not reported."""

    started: str
    state: str


@dataclass(frozen=True)
class Machine:
    """Where a process number means something: one start of the machine, one container (PID namespace)."""

    boot: str
    namespace: str


def start_of_process(pid: int) -> str | None:
    """When the process began, as the system writes it; None if it is gone or hidden.

    A number used again has another start.
    """
    found = process(pid)
    return found.started if found else None


def is_stopped(pid: int) -> bool:
    """Whether the process was stopped by a signal: it is there, but may stay silent for ever."""
    found = process(pid)
    return found is not None and found.state.upper().startswith("T")


def is_hidden(pid: int) -> bool:
    """Whether there is a process of that number of which the system shows nothing: `/proc` is mounted with `hidepid`.

    A signal of no kind is answered all the same: refused, where another user's process is there. Whether it is the one
    that had the number before, nobody can tell.
    """
    if not (PROC / "self" / "stat").exists():
        return False
    try:
        (PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return _takes_signals(pid)
    return False


def _takes_signals(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def process(pid: int) -> Process | None:
    """The process of that number; None if there is none, only its zombie, or if it is hidden (see `is_hidden`)."""
    found = _from_proc(pid) if (PROC / "self" / "stat").exists() else _from_ps(pid)
    return None if found is None or found.state.startswith(("Z", "X", "x")) else found


def _from_proc(pid: int) -> Process | None:
    try:
        stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # the program's name stands in parentheses and may hold spaces and parentheses of its own
    fields = stat.rpartition(")")[2].split()
    return Process(started=fields[19], state=fields[0])


def _from_ps(pid: int) -> Process | None:
    shown = _output("ps", "-o", "stat=,lstart=", "-p", str(pid)).split(maxsplit=1)
    return Process(started=shown[1].strip(), state=shown[0]) if len(shown) == 2 else None


@lru_cache(maxsize=1)
def this_machine() -> Machine:
    """The machine, as it was started last, and the container that this process runs in."""
    boot = PROC / "sys" / "kernel" / "random" / "boot_id"
    if boot.exists():
        namespace = os.readlink(PROC / "self" / "ns" / "pid")  # noqa: PTH115 - it is no path
        return Machine(boot.read_text(encoding="ascii").strip(), namespace)
    return Machine(_output("sysctl", "-n", "kern.bootsessionuuid").strip(), "")


def _output(*command: str) -> str:
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
    ).stdout

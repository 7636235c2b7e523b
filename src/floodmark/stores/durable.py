"""Files that survive a crash: whole or not at all, under names that no two jobs share; locks are `machine.locked`."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def replace_file(path: Path, text: str) -> None:
    """Put the text in the place of the file: durable on return, and a crash leaves the old one or the new one."""
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
    """Make renames and new names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# File names for jobs: two names that differ never share a file, on any disk.
SAFE = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
LONGEST = 120


def file_name(name: str) -> str:
    """Lower case ASCII for every name; upper case is escaped too, since some disks do not tell `A` from `a`."""
    raw = name.encode("utf-8", "surrogatepass")
    text = "".join(chr(byte) if byte in SAFE else f"%{byte:02x}" for byte in raw) or "%"
    if len(text) <= LONGEST:
        return text
    # `~` is never in an escaped name, so a shortened one cannot be another's whole name
    return f"{text[:60]}~{hashlib.sha256(raw).hexdigest()}"

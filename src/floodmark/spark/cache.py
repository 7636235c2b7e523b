"""The user's cache folder: what was fetched once and may be deleted at any time."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def cache_folder() -> Path:
    """FLOODMARK_CACHE, else the `floodmark` folder where this user's caches are kept."""
    named = os.environ.get("FLOODMARK_CACHE")
    if named:
        return Path(named).expanduser().absolute()
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache").absolute() / "floodmark"


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Hold the lock file: other processes that want it wait; a killed holder lets go by itself."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as file:
        if sys.platform != "win32":  # elsewhere two processes may fetch at once: wasteful, and the last rename wins
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield

"""What a run is doing now: said by whoever does it, shown by whoever listens. Without a listener it costs nothing."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Phase:
    """A part of the work of a job, in words; no words: it has ended. Spark is started for no job in particular."""

    words: str
    job: str = ""


_listeners: list[Callable[[Phase], None]] = []
_current = threading.local()


@contextmanager
def phase(words: str, job: str = "") -> Iterator[None]:
    """Say what the block does; when it ends, what was done around it goes on."""
    before: Phase | None = getattr(_current, "phase", None)
    _enter(Phase(words, job or (before.job if before else "")))
    try:
        yield
    finally:
        _enter(before or Phase("", job))
        _current.phase = before


@contextmanager
def heard_by(listener: Callable[[Phase], None]) -> Iterator[None]:
    """Let the listener hear every phase of this process that is entered within the block; it must not fail."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def _enter(entered: Phase) -> None:
    _current.phase = entered
    for listener in _listeners:
        listener(entered)

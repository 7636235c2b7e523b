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
    amount: Callable[[], str] | None = None
    """How much of it is done by now, where whoever does it knows better than Spark; it may be asked at any time."""


_listeners: list[Callable[[Phase], None]] = []
_current = threading.local()


@contextmanager
def phase(words: str, job: str = "", amount: Callable[[], str] | None = None) -> Iterator[None]:
    """Say what the block does; when it ends, what was done around it goes on."""
    before: Phase | None = getattr(_current, "phase", None)
    _enter(Phase(words, job or (before.job if before else ""), amount))
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

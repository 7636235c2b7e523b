"""A polite request to stop: signals are noted, waits end at once, and whatever is being written is finished first."""

from __future__ import annotations

import os
import select
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


_LISTENING: list[Stopping] = []
"""Those that signals ask now: a signal is for the whole process, so a long piece of work may ask here too."""


def asked_to_stop() -> bool:
    """Whether a signal has asked this process to stop."""
    return any(stopping.requested for stopping in _LISTENING)


class Stopping:
    """Whether somebody asked to stop.

    A pipe and not an Event: an Event that a signal handler sets while the same thread waits for it can lock up.
    """

    def __init__(self) -> None:
        self.requested = False
        self._reader, self._writer = os.pipe()

    def request(self) -> None:
        """Ask to stop; safe in a signal handler. Asked again, it is no longer polite."""
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        os.write(self._writer, b".")

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until somebody asks; says whether somebody did."""
        if not self.requested and seconds > 0:
            select.select([self._reader], [], [], seconds)
        return self.requested

    def close(self) -> None:
        """Give the pipe back."""
        os.close(self._reader)
        os.close(self._writer)


@contextmanager
def stopping_on(*signals: signal.Signals) -> Iterator[Stopping]:
    """A Stopping that these signals ask, until the block ends."""
    stopping = Stopping()

    def ask(_number: int, _frame: FrameType | None) -> None:
        stopping.request()

    before = {number: signal.signal(number, ask) for number in signals}
    _LISTENING.append(stopping)
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _LISTENING.remove(stopping)
        stopping.close()

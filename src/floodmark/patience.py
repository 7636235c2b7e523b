"""Waiting: for what passes by itself, longer after each failure in a row, and no longer once somebody asks to stop."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

Answer = TypeVar("Answer")
SILENT_SECONDS = 2.0
"""So long may one wait without a word."""
SIGNALLED = 128
"""A process that a signal ended has this and the signal's number for its exit code: 130, 143."""
STDERR = 2


def patiently(
    act: Callable[[], Answer], *, seconds: float, passing: Callable[[Exception], bool], pause_seconds: float
) -> Answer:
    """The answer of the act, which is done again after a pause while its error is a passing one and time is left.

    Raises the last error as it came; one that does not pass is raised at once.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return act()
        except Exception as error:
            if time.monotonic() > deadline or not passing(error):
                raise
        time.sleep(pause_seconds)


def doubling_pause(first_seconds: float, failures: int, longest_seconds: float) -> float:
    """How long to wait after so many failures in a row (one or more): twice as long each time, up to the longest."""
    return min(longest_seconds, first_seconds * 2.0 ** min(failures - 1, 32))


@contextmanager
def saying_after(seconds: float, say: Callable[[], None]) -> Iterator[None]:
    """Say something if the block takes so long: who waits without a word is taken for dead."""
    reminder = REMINDERS.add(seconds, say)
    try:
        yield
    finally:
        REMINDERS.remove(reminder)


class Reminders:
    """Says what is due, from one thread for all who wait: one for each would cost more than most of their waits.

    A process that is forked begins anew: it has the thread no more, and nobody of its own waits yet.
    """

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def add(self, seconds: float, say: Callable[[], None]) -> object:
        """Have it said in so many seconds, to a quarter of one, unless it is removed before."""
        reminder = object()
        self._due[reminder] = (time.monotonic() + seconds, say)
        if not self._somebody_waits.is_set():
            self._somebody_waits.set()
            self._start()
        return reminder

    def remove(self, reminder: object) -> None:
        """It need not be said any more."""
        self._due.pop(reminder, None)

    def _forget(self) -> None:
        self._due: dict[object, tuple[float, Callable[[], None]]] = {}
        self._somebody_waits, self._lock = threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="floodmark-reminders", daemon=True)
                self._thread.start()

    def _watch(self) -> None:
        while self._somebody_waits.wait():
            now = time.monotonic()
            due = [reminder for reminder, (at, _) in list(self._due.items()) if at <= now]
            for _, say in filter(None, (self._due.pop(reminder, None) for reminder in due)):
                say()
            if self._due:
                time.sleep(REMINDER_STEP)
                continue
            self._somebody_waits.clear()
            if self._due:  # somebody came in between, and saw the event still set
                self._somebody_waits.set()


REMINDER_STEP = 0.25
"""Seconds between two looks of the thread at what is due."""
REMINDERS = Reminders()


class Interrupted(KeyboardInterrupt):
    """A signal that ends this process now; the exit code is the one that shells have for it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = SIGNALLED + number


def interruption(number: int) -> Interrupted:
    """What a signal raises, once everybody who has to know of it was called."""
    for hook in INTERRUPTION_HOOKS:
        hook()
    return Interrupted(number)


INTERRUPTION_HOOKS: list[Callable[[], None]] = []
"""Called by a signal handler before it raises: what waits for another process lets that process know, and comes back
at once. A hook must not wait, and must not talk through what the interrupted code may be in the middle of using."""


class StopRequest:
    """A polite request to stop: it is noted, waits end at once, and whatever is being written is finished first.

    A pipe and not an Event: an Event that a signal handler sets while the same thread waits for it can lock up.
    """

    def __init__(self) -> None:
        self.is_requested = False
        self._reader, self._writer = os.pipe()

    def request(self, number: int = signal.SIGINT) -> None:
        """Ask to stop; safe in a signal handler. Asked again, it is no longer polite."""
        if self.is_requested:
            raise interruption(number)
        self.is_requested = True
        os.write(self._writer, b".")

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until somebody asks; says whether somebody did."""
        if not self.is_requested and seconds > 0:
            select.select([self._reader], [], [], seconds)
        return self.is_requested

    def close(self) -> None:
        """Give the pipe back."""
        os.close(self._reader)
        os.close(self._writer)


@contextmanager
def stop_on(*signals: signal.Signals, message: str = "") -> Iterator[StopRequest]:
    """A request that these signals make, until the block ends; the message is on stderr as soon as it is made."""
    request = StopRequest()

    def ask(number: int, _frame: FrameType | None) -> None:
        request.request(number)
        if message:
            os.write(STDERR, f"{message}\n".encode())  # a stream may be in the middle of a line of its own

    before = {number: signal.signal(number, ask) for number in signals}
    _LISTENING.append(request)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _LISTENING.remove(request)
        request.close()


@contextmanager
def interrupted_by(*signals: signal.Signals) -> Iterator[None]:
    """These signals raise Interrupted within the block; only the main thread may ask for it, and is asked."""

    def interrupt(number: int, _frame: FrameType | None) -> None:
        raise interruption(number)

    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, interrupt) for number in signals} if is_main else {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_LISTENING: list[StopRequest] = []
"""Those that signals make now: a signal is for the whole process, so a long piece of work may look here too."""


def stop_requested() -> bool:
    """Whether a signal has asked this process to stop."""
    return any(request.is_requested for request in _LISTENING)

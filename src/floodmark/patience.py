"""Waiting: for what passes by itself, longer after each failure in a row, and no longer once somebody asks to stop."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

Answer = TypeVar("Answer")
Key = TypeVar("Key", bound=Hashable)
SILENT_SECONDS = 2.0
"""So long may one wait without a word."""
SIGNALLED = 128
"""A process that a signal ended has this and the signal's number for its exit code: 130, 143."""
STDERR = 2
AGAIN_SECONDS = 0.02


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


def answers_in_time(
    questions: Mapping[Key, Callable[[], Answer]], patience_seconds: float | None, *, at_once: int
) -> dict[Key, Answer]:
    """By key the answers to questions that raise nothing, so many asked at once; absent is who was silent for too long.

    Patience is with silence: it begins again with every answer, so that many who answer are all heard. None: no end.
    """
    waiting, asked, found = deque(questions), set[Key](), dict[Key, Answer]()
    answers: SimpleQueue[tuple[Key, Answer]] = SimpleQueue()
    while waiting or asked:
        while waiting and len(asked) < at_once:
            key = waiting.popleft()
            asked.add(key)
            # a daemon: a process that has all it waited for ends, whoever is silent still
            threading.Thread(target=lambda key=key: answers.put((key, questions[key]())), daemon=True).start()
        try:
            key, answer = answers.get(timeout=patience_seconds)
        except Empty:
            asked.clear()
            continue
        found[key] = answer
        asked.discard(key)
    return found


def doubling_pause(first_seconds: float, failures: int, longest_seconds: float) -> float:
    """How long to wait after so many failures in a row (one or more): twice as long each time, up to the longest."""
    return min(longest_seconds, first_seconds * 2.0 ** min(failures - 1, 32))


class Watcher:
    """Says what blocks have to say that take too long, for all of them from one thread.

    A thread for each would be most of what an idle look costs. It ends once nobody has needed it for a while.
    """

    LONGEST_SLEEP_SECONDS = 1.0
    IDLE_SECONDS = 30.0

    def __init__(self) -> None:
        self.reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        """Begin anew: a child has neither the thread of its parent nor whoever held its lock."""
        self._changed = threading.Condition()
        self._deadlines: dict[object, tuple[float, Callable[[], None]]] = {}
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0

    def enter(self, seconds: float, say: Callable[[], None]) -> object:
        """Begin to watch; what is returned is for `leave`."""
        key, deadline = object(), time.monotonic() + seconds
        with self._changed:
            self._deadlines[key] = (deadline, say)
            if self._thread is None or not self._thread.is_alive():
                self._wakes_at = deadline
                self._thread = threading.Thread(target=self._watch, name="floodmark-watcher", daemon=True)
                self._thread.start()
            elif deadline < self._wakes_at:
                self._changed.notify()
        return key

    def leave(self, key: object) -> None:
        with self._changed:
            self._deadlines.pop(key, None)

    def _watch(self) -> None:
        last_needed = time.monotonic()
        while True:
            with self._changed:
                now = time.monotonic()
                due = [key for key, (deadline, _) in self._deadlines.items() if deadline <= now]
                words = [self._deadlines.pop(key)[1] for key in due]
                last_needed = now if self._deadlines or words else last_needed
                if now - last_needed > self.IDLE_SECONDS:
                    self._thread = None
                    return
                if not words:
                    deadlines = [deadline for deadline, _ in self._deadlines.values()]
                    self._wakes_at = min([now + self.LONGEST_SLEEP_SECONDS, *deadlines])
                    self._changed.wait(self._wakes_at - now)
            for say in words:
                say()


_watcher = Watcher()


@contextmanager
def saying_after(seconds: float, say: Callable[[], None]) -> Iterator[None]:
    """Say something if the block takes so long: who waits without a word is taken for dead."""
    key = _watcher.enter(seconds, say)
    try:
        yield
    finally:
        _watcher.leave(key)


class Interrupted(KeyboardInterrupt):
    """A signal that ends this process now; the exit code is the one that shells have for it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = SIGNALLED + number


def raise_interruption_behind(error: BaseException) -> None:
    """Raise the interruption that an error came of, if one did: what lets go of things on the way out may fail too."""
    behind, seen = [error], set[int]()
    while behind:
        each = behind.pop()
        if isinstance(each, KeyboardInterrupt):
            raise each
        seen.add(id(each))
        behind += [near for near in (each.__cause__, each.__context__) if near is not None and id(near) not in seen]


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
    """These signals raise Interrupted within the block; only the main thread may ask for it, and is asked.

    A library may catch it, and Python drops what is raised in a finalizer: then it is raised at the block's end.
    """
    raised: list[Interrupted] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        raised.append(interruption(number))
        raise raised[-1]

    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, interrupt) for number in signals} if is_main else {}
    try:
        with _signalled_again_after_finalizers():
            yield
    except Interrupted:
        raise
    except BaseException:
        if raised:
            raise raised[-1] from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if raised:
        raise raised[-1]


@contextmanager
def _signalled_again_after_finalizers() -> Iterator[None]:
    """Python prints and forgets what is raised in a finalizer: a signal comes once more, when that has ended."""
    before = sys.unraisablehook

    def send_again(unraisable: sys.UnraisableHookArgs) -> None:
        error = unraisable.exc_value
        if not isinstance(error, Interrupted):
            before(unraisable)
            return
        main = threading.main_thread().ident  # which may be waiting, and wakes up only for a signal of its own
        again = threading.Timer(AGAIN_SECONDS, signal.pthread_kill, [main, error.exit_code - SIGNALLED])
        again.daemon = True
        again.start()

    sys.unraisablehook = send_again
    try:
        yield
    finally:
        sys.unraisablehook = before


_LISTENING: list[StopRequest] = []
"""Those that signals make now: a signal is for the whole process, so a long piece of work may look here too."""


def stop_requested() -> bool:
    """Whether a signal has asked this process to stop."""
    return any(request.is_requested for request in _LISTENING)

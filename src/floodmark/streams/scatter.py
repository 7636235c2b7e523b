"""`scatter`: the steps up to `gather` run for several elements at the same time, in a bounded pool of threads.

The tasks of Spark that share the records of one partition each have such a pool; `task` says how they share them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from floodmark.streams.elements import USER_ERRORS, Element, RecordTracker
from floodmark.streams.workers import ImmediateWorker

if TYPE_CHECKING:
    from floodmark.streams.workers import Worker


class StageLike(Protocol):
    """What a pool needs to know of a step at work."""

    name: str
    worker: Worker
    followers: tuple[StageLike, ...]


@dataclass
class Traced:
    """What became of an element in a thread: where its children have to go next, and what its steps reported."""

    arrivals: list[tuple[Any, Element]] = field(default_factory=list)
    tracker: RecordTracker = field(default_factory=RecordTracker)


class ScatterWorker(ImmediateWorker):
    """At most `at_once` elements are under way; their children go on as they are ready, or in the elements' order."""

    def __init__(self, at_once: int, *, in_order: bool) -> None:
        self.at_once, self.in_order = at_once, in_order
        self.followers: tuple[Any, ...] = ()
        """The stages behind it; whoever wires the stages sets them."""
        self._calls: deque[tuple[Element, Future[Traced]]] = deque()
        self._threads: ThreadPoolExecutor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_threads": None}

    def take(self, element: Element, tracker: RecordTracker) -> Sequence[Element]:
        """Begin with the element, as soon as there is room for it."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.at_once, thread_name_prefix="scatter")
        self.wait(self.at_once - 1)
        tracker.hold(element)
        self._calls.append((element, self._threads.submit(trace_whole, self.followers, element)))
        return ()

    @property
    def is_busy(self) -> bool:
        return bool(self._calls)

    def wait(self, most: int) -> None:
        """Until no more than so many are under way."""
        running = {call for _, call in self._calls if not call.done()}
        while len(running) > most:
            running = wait(running, return_when=FIRST_COMPLETED).not_done

    def wait_for_one(self) -> None:
        """Until the next element is ready to go on, if any is under way."""
        calls = [call for _, call in self._calls]
        if calls:
            wait(calls[:1] if self.in_order else calls, return_when=FIRST_COMPLETED)

    def ready(self, tracker: RecordTracker) -> list[tuple[Any, Element]]:
        """Where elements have to go that are through; what their steps reported is reported now, in this thread."""
        arrivals: list[tuple[Any, Element]] = []
        for element, call in self._take_finished():
            traced = call.result()
            tracker.let_go((element,))
            tracker.errors += traced.tracker.errors
            for record, failure in traced.tracker.failures.items():
                tracker.failures.setdefault(record, failure)
            arrivals += traced.arrivals
        return arrivals

    def close(self) -> None:
        """End the threads; nothing may be under way."""
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None

    def _take_finished(self) -> list[tuple[Element, Future[Traced]]]:
        finished = []
        if self.in_order:
            while self._calls and self._calls[0][1].done():
                finished.append(self._calls.popleft())
            return finished
        waiting: deque[tuple[Element, Future[Traced]]] = deque()
        for entry in self._calls:
            (finished if entry[1].done() else waiting).append(entry)
        self._calls = waiting
        return finished


def trace_whole(followers: Sequence[StageLike], element: Element) -> Traced:
    """Run an element through the steps that need nothing but it, up to those that are the main thread's business."""
    traced = Traced()
    _trace(followers, element, traced)
    return traced


def _trace(followers: Sequence[StageLike], element: Element, traced: Traced) -> None:
    for follower in followers:
        if not follower.worker.runs_anywhere:
            traced.arrivals.append((follower, element))
            continue
        try:
            children = follower.worker.take(element, traced.tracker)
        except USER_ERRORS as error:
            traced.tracker.fail(element.lineage, follower.name, error)
            continue
        for child in children:
            _trace(follower.followers, child, traced)

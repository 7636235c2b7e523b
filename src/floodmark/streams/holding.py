"""Steps that keep elements for later: batches, windows, and what joins several inputs.

What is held is reported to the tracker, and its records are not settled before it is let go. Where a step goes on
holding when the stream stops, those records stay unhealed, and the next run reads them again.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from floodmark.errors import ConfigError
from floodmark.streams import operators, spanning
from floodmark.streams.elements import Element, RecordId, RecordTracker, joined_lineage
from floodmark.streams.workers import Clock, ImmediateWorker, Worker


def holding_worker(operator: spanning.HoldingOperator, step: str, clock: Clock) -> Worker:
    """The step at work, with nothing held."""
    match operator:
        case spanning.Partition(size):
            return PartitionWorker(step, size)
        case spanning.PartitionTime(seconds):
            return PartitionTimeWorker(step, seconds, clock)
        case spanning.TimedWindow(seconds):
            return TimedWindowWorker(step, seconds, clock)
        case spanning.Delay(seconds):
            return DelayWorker(step, seconds, clock)
        case spanning.RateLimit(seconds):
            return RateLimitWorker(step, seconds, clock)
        case spanning.Collect():
            return HoldingWorker(step)
        case spanning.SlidingWindow(size, return_partial):
            return SlidingWindowWorker(step, size, return_partial=return_partial)
        case spanning.Zip():
            return ZipWorker(step, operator)
        case spanning.ZipLatest():
            return ZipLatestWorker(step, operator)
        case spanning.CombineLatest():
            return CombineLatestWorker(step, operator)
        case spanning.Unique():
            return UniqueWorker(operator)
        case spanning.Accumulate():
            return AccumulateWorker(step, operator)
    raise ConfigError(f"no step '{operator}' in a stream.", hint="use the steps that Stream offers")


class HoldingWorker(ImmediateWorker):
    """A step that keeps elements and gives them on as one tuple; `collect` does nothing else."""

    def __init__(self, step: str) -> None:
        self.step = step
        self.elements: deque[Element] = deque()

    def take(self, element: Element, tracker: RecordTracker) -> Sequence[Element]:
        self.hold(element, tracker)
        return ()

    def hold(self, element: Element, tracker: RecordTracker) -> None:
        tracker.hold(element)
        self.elements.append(element)

    def joined_element(self) -> Element:
        """All that is held as one tuple."""
        return joined(self.step, self.elements)

    def flush(self, tracker: RecordTracker) -> Sequence[Element]:
        if not self.elements:
            return ()
        whole = self.joined_element()
        tracker.let_go(self.elements)
        self.elements.clear()
        return (tracker.begin(whole),)


def joined(step: str, elements: Iterable[Element], value: Callable[[Iterable[object]], object] = tuple) -> Element:
    """Several elements as one."""
    parts = tuple(elements)
    return Element(value(part.value for part in parts), joined_lineage(parts), step, parts)


class PartitionWorker(HoldingWorker):
    """Tuples of a fixed size."""

    def __init__(self, step: str, size: int) -> None:
        super().__init__(step)
        self.size = size

    def take(self, element: Element, tracker: RecordTracker) -> Sequence[Element]:
        self.hold(element, tracker)
        return self.flush(tracker) if len(self.elements) == self.size else ()


class TimedWorker(HoldingWorker):
    """A step that lets go by the clock."""

    def __init__(self, step: str, seconds: float, clock: Clock) -> None:
        super().__init__(step)
        self.seconds, self.clock = seconds, clock

    @abstractmethod
    def due_at(self) -> float:
        """When the first that is held has to go."""

    def due(self, tracker: RecordTracker) -> Sequence[Element]:
        return self.flush(tracker) if self.elements and self.clock() >= self.due_at() else ()

    def due_in_seconds(self) -> float | None:
        """How long until `due` gives something; None when nothing is held."""
        return max(0.0, self.due_at() - self.clock()) if self.elements else None


class PartitionTimeWorker(TimedWorker):
    """Tuples that close when an element or a poll comes late enough after their first element."""

    began_at = 0.0

    def due_at(self) -> float:
        return self.began_at + self.seconds

    def take(self, element: Element, tracker: RecordTracker) -> Sequence[Element]:
        now = self.clock()
        closed = self.flush(tracker) if self.elements and now >= self.due_at() else ()
        if not self.elements:
            self.began_at = now
        self.hold(element, tracker)
        return closed


class TimedWindowWorker(PartitionTimeWorker):
    """Lists of what came in the same interval, counted by the clock; one in which nothing came gives nothing."""

    def due_at(self) -> float:
        return (self.began_at // self.seconds + 1) * self.seconds

    def joined_element(self) -> Element:
        return joined(self.step, self.elements, list)


class DelayWorker(TimedWorker):
    """Each element goes on when its time has come; whoever flushes waits for that."""

    def __init__(self, step: str, seconds: float, clock: Clock) -> None:
        super().__init__(step, seconds, clock)
        self.arrivals: deque[float] = deque()

    def due_at(self) -> float:
        return self.arrivals[0] + self.seconds

    def take(self, element: Element, tracker: RecordTracker) -> Sequence[Element]:
        self.hold(element, tracker)
        self.arrivals.append(self.clock())
        return self.due(tracker)

    def due(self, tracker: RecordTracker) -> Sequence[Element]:
        ready: list[Element] = []
        while self.elements and self.clock() >= self.due_at():
            ready.append(self._next(tracker))
        return ready

    def flush(self, tracker: RecordTracker) -> Sequence[Element]:
        ready: list[Element] = []
        while (wait := self.due_in_seconds()) is not None:
            time.sleep(wait)
            ready.append(self._next(tracker))
        return ready

    def _next(self, tracker: RecordTracker) -> Element:
        element = self.elements.popleft()
        self.arrivals.popleft()
        tracker.let_go((element,))
        return tracker.begin(element.child(element.value, self.step))


class RateLimitWorker(ImmediateWorker):
    """Waits until the interval after the last element is over."""

    def __init__(self, step: str, seconds: float, clock: Clock) -> None:
        self.step, self.seconds, self.clock = step, seconds, clock
        self.free_at = 0.0

    def begin_late(self) -> None:
        """Nothing is known of the elements before: the first one waits as well."""
        self.free_at = self.clock() + self.seconds

    def take(self, element: Element, tracker: RecordTracker) -> Sequence[Element]:
        now = self.clock()
        if now < self.free_at:
            time.sleep(self.free_at - now)
        self.free_at = max(now, self.free_at) + self.seconds
        return (element.child(element.value, self.step),)


class SlidingWindowWorker(HoldingWorker):
    """Windows over the last elements: an element is let go when no later window can hold it."""

    def __init__(self, step: str, size: int, *, return_partial: bool) -> None:
        super().__init__(step)
        self.size, self.return_partial = size, return_partial

    def take(self, element: Element, tracker: RecordTracker) -> Sequence[Element]:
        self.hold(element, tracker)
        is_full = len(self.elements) == self.size
        window = (tracker.begin(self.joined_element()),) if is_full or self.return_partial else ()
        if is_full:
            tracker.let_go((self.elements.popleft(),))
        return window

    def flush(self, tracker: RecordTracker) -> Sequence[Element]:
        """The next element makes a window with what is held, in whichever run it comes."""
        return ()


class JoiningWorker(ImmediateWorker):
    """A step with several inputs; their elements come as `PortValue`."""

    def __init__(self, step: str, operator: spanning.JoiningOperator) -> None:
        self.step, self.constants = step, operator.constants
        self.ports = [number for number in range(operator.inputs) if number not in operator.constants]
        self.inputs = operator.inputs

    def port_of(self, element: Element) -> tuple[int, Element]:
        """The input that an element came through, and the element as it was before."""
        value: operators.PortValue = element.value  # type: ignore[assignment]  # only ports come before it
        return value.number, element._replace(value=value.value)

    def joined_element(self, parts: Sequence[Element]) -> Element:
        """The elements of the inputs, with the constants in their places, as one tuple."""
        whole = joined(self.step, parts)
        if not self.constants:
            return whole
        own = iter(parts)
        values = (self.constants[at] if at in self.constants else next(own).value for at in range(self.inputs))
        return whole._replace(value=tuple(values))


class ZipWorker(JoiningWorker):
    """Holds the elements of each input until every other has one for it."""

    def __init__(self, step: str, operator: spanning.JoiningOperator) -> None:
        super().__init__(step, operator)
        self.queues: dict[int, deque[Element]] = {number: deque() for number in self.ports}

    def take(self, element: Element, tracker: RecordTracker) -> Sequence[Element]:
        number, own = self.port_of(element)
        tracker.hold(own)
        self.queues[number].append(own)
        if not all(self.queues.values()):
            return ()
        parts = [queue.popleft() for queue in self.queues.values()]
        tracker.let_go(parts)
        return (tracker.begin(self.joined_element(parts)),)


class LatestWorker(JoiningWorker):
    """Holds the latest element of each input: it is let go when the next one comes in its place."""

    def __init__(self, step: str, operator: spanning.JoiningOperator) -> None:
        super().__init__(step, operator)
        self.latest: dict[int, Element] = {}

    def keep(self, number: int, element: Element, tracker: RecordTracker) -> None:
        tracker.hold(element)
        earlier = self.latest.get(number)
        self.latest[number] = element
        if earlier is not None:
            tracker.let_go((earlier,))

    def combination(self, tracker: RecordTracker) -> Element:
        return tracker.begin(self.joined_element([self.latest[number] for number in self.ports]))


class CombineLatestWorker(LatestWorker):
    """The latest of all, whenever one of the chosen inputs gives an element."""

    def __init__(self, step: str, operator: spanning.CombineLatest) -> None:
        super().__init__(step, operator)
        self.emit_on = operator.emit_on or tuple(self.ports)

    def take(self, element: Element, tracker: RecordTracker) -> Sequence[Element]:
        number, own = self.port_of(element)
        self.keep(number, own, tracker)
        is_complete = len(self.latest) == len(self.ports)
        return (self.combination(tracker),) if is_complete and number in self.emit_on else ()


class ZipLatestWorker(LatestWorker):
    """Every element of the first input, as soon as all others have one; those of the others are held as the latest."""

    def __init__(self, step: str, operator: spanning.ZipLatest) -> None:
        super().__init__(step, operator)
        self.waiting: deque[Element] = deque()

    def take(self, element: Element, tracker: RecordTracker) -> Sequence[Element]:
        number, own = self.port_of(element)
        if number == self.ports[0]:
            tracker.hold(own)
            self.waiting.append(own)
        else:
            self.keep(number, own, tracker)
        if len(self.latest) < len(self.ports) - 1:
            return ()
        parts, self.waiting = list(self.waiting), deque()
        tracker.let_go(parts)
        others = [self.latest[port] for port in self.ports[1:]]
        return [tracker.begin(self.joined_element([part, *others])) for part in parts]


class RememberingWorker(ImmediateWorker):
    """A step that knows something of elements that are long settled."""

    @abstractmethod
    def memory(self, is_open: Callable[[RecordId], bool]) -> object:
        """What the next turn, in whichever run, has to know; `is_open` says which records may come again."""

    @abstractmethod
    def remember(self, memory: Any) -> None:  # noqa: ANN401 (what `memory` gave)
        """Go on from there."""


class UniqueWorker(RememberingWorker):
    """Drops what it has seen; the record that brought a value passes again when it is tried again."""

    def __init__(self, operator: spanning.Unique) -> None:
        self.operator = operator
        self.seen: list[tuple[object, tuple[RecordId, ...]]] | dict[object, tuple[RecordId, ...]]
        self.seen = {} if operator.hashable else []

    def take(self, element: Element, tracker: RecordTracker) -> Sequence[Element]:
        key = self.operator.key(element.value) if self.operator.key else element.value
        first = self._remember(key, element.lineage)
        return (element.child(element.value, "unique"),) if first is None or first == (element.lineage or None) else ()

    def memory(self, is_open: Callable[[RecordId], bool]) -> object:
        return self.seen

    def remember(self, memory: Any) -> None:  # noqa: ANN401 (what `memory` gave)
        if isinstance(memory, type(self.seen)):
            self.seen = memory

    def _remember(self, key: object, lineage: tuple[RecordId, ...]) -> tuple[RecordId, ...] | None:
        """The lineage of the element that brought the key first; None if this is the one."""
        if isinstance(self.seen, dict):
            return self._remember_by_hash(self.seen, key, lineage)
        at = next((at for at, (known, _) in enumerate(self.seen) if known == key), None)
        entry = self.seen.pop(at) if at is not None else (key, lineage)
        self.seen.insert(0, entry)  # the latest first, seen again or not: as streamz counts its history
        del self.seen[self.operator.maxsize or len(self.seen) :]
        return None if at is None else entry[1]

    def _remember_by_hash(
        self, seen: dict[object, tuple[RecordId, ...]], key: object, lineage: tuple[RecordId, ...]
    ) -> tuple[RecordId, ...] | None:
        first = seen.pop(key, None)
        seen[key] = lineage if first is None else first
        while self.operator.maxsize and len(seen) > self.operator.maxsize:
            del seen[next(iter(seen))]
        return first


class AccumulateWorker(RememberingWorker):
    """A state and the element give a new state; an element on which the function raises leaves it as it was."""

    def __init__(self, step: str, operator: spanning.Accumulate) -> None:
        self.step, self.operator = step, operator
        self.state = operator.start
        self.results: dict[tuple[RecordId, ...], object] = {}
        """Of records that may come again: they are part of the state already, and get what they got."""

    def take(self, element: Element, tracker: RecordTracker) -> Sequence[Element]:
        known = element.lineage in self.results
        result = self.results[element.lineage] if known else self._add(element.value)
        if element.lineage:
            self.results[element.lineage] = result
        return (element.child(result, self.step),)

    def _add(self, value: object) -> object:
        operator, result = self.operator, value
        if self.state is operators.NO_VALUE:
            self.state = value
        else:
            call = operator.call
            result = call.func(self.state, value, *call.args, **call.kwargs)
            self.state, result = result if operator.returns_state else (result, result)  # type: ignore[misc]
        return (self.state, result) if operator.with_state else result

    def memory(self, is_open: Callable[[RecordId], bool]) -> object:
        self.results = {lineage: each for lineage, each in self.results.items() if any(map(is_open, lineage))}
        return self.state, self.results

    def remember(self, memory: Any) -> None:  # noqa: ANN401 (what `memory` gave)
        self.state, self.results = memory

"""How the steps of a stream work: each takes an element and gives what follows from it, and says what it holds back."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from floodmark.errors import ConfigError
from floodmark.streams import operators as nodes
from floodmark.streams.elements import Element, Tally, joined_lineage, lineage_within, record_of
from floodmark.streams.operators import GONE, PlainFunction, plain_function

if TYPE_CHECKING:
    from confluent_kafka import Producer


# Calls on many items at once, in threads or as coroutines, bounded, with the results in the items' order.
CAUGHT = (Exception, SystemExit)  # sys.exit() in a user's function fails its record, not the worker


@dataclass(frozen=True)
class Raised:
    """What stands in the place of a result when the call raised."""

    error: BaseException


def call_one(call: Callable[[object], object], item: object) -> object:
    """The result of the call, or the exception as a value."""
    try:
        return call(item)
    except CAUGHT as error:
        return Raised(error)


def call_together(call: Callable[[object], object], items: Sequence[object], *, at_once: int) -> list[object]:
    """The results in order, with at most `at_once` calls under way; a call may be a function or a coroutine."""
    if not items:
        return []
    # A thread of its own for the loop: the caller may run inside one already, as every notebook does.
    with ThreadPoolExecutor(min(at_once, len(items))) as workers, ThreadPoolExecutor(1) as looping:
        return looping.submit(asyncio.run, _gather(call, items, at_once, workers)).result()


async def _gather(
    call: Callable[[object], object], items: Sequence[object], at_once: int, workers: ThreadPoolExecutor
) -> list[object]:
    turn = asyncio.Semaphore(at_once)

    async def one(item: object) -> object:
        async with turn:
            result = await asyncio.get_running_loop().run_in_executor(workers, call_one, call, item)
            return await _awaited(result) if inspect.isawaitable(result) else result

    return list(await asyncio.gather(*(one(item) for item in items)))


async def _awaited(coroutine: object) -> object:
    try:
        return await coroutine  # type: ignore[misc]  # seen to be awaitable by the caller
    except CAUGHT as error:
        return Raised(error)


Clock = Callable[[], float]


class Worker(Protocol):
    """One step at work; what it raises fails the records of the element that it was given."""

    def take(self, element: Element, tally: Tally) -> Sequence[Element]:
        """What the element becomes; what is kept for later is told to the tally."""

    def due(self, tally: Tally) -> Sequence[Element]:
        """What has to go on by now though no element came; called at every poll."""

    def await_io(self, tally: Tally) -> Sequence[Element]:
        """What can go on once what is under way outside has been confirmed; called at the end of a batch."""

    def flush(self, tally: Tally) -> Sequence[Element]:
        """Everything that is held, complete or not; called when the stream stops."""


class Prompt:
    """A step that holds nothing back."""

    def due(self, tally: Tally) -> Sequence[Element]:
        return ()

    def await_io(self, tally: Tally) -> Sequence[Element]:
        return ()

    def flush(self, tally: Tally) -> Sequence[Element]:
        return ()


class Plain(Prompt):
    """One function from a value to a value, or to nothing."""

    def __init__(self, step: str, function: PlainFunction) -> None:
        self.step, self.function = step, function

    def take(self, element: Element, tally: Tally) -> Sequence[Element]:
        value = self.function(element.value)
        return () if value is GONE else (element.child(value, self.step),)


class Flattening(Prompt):
    """Each item stands for the records that it names."""

    def __init__(self, step: str) -> None:
        self.step = step

    def take(self, element: Element, tally: Tally) -> Sequence[Element]:
        items = list(element.value)  # type: ignore[call-overload]  # what is no iterable fails its records
        return [Element(item, lineage_within(item, element.lineage), self.step, (element,)) for item in items]


class Foreach(Prompt):
    """A failing item fails the records that it names; the others go on, in a shorter tuple."""

    def __init__(self, step: str, results: Callable[[Sequence[object]], list[object]]) -> None:
        self.step, self.results = step, results

    def take(self, element: Element, tally: Tally) -> Sequence[Element]:
        items = list(element.value)  # type: ignore[call-overload]  # what is no iterable fails its records
        results = self.results(items)
        for item, result in zip(items, results, strict=True):
            if isinstance(result, Raised):
                tally.fail(lineage_within(item, element.lineage), self.step, result.error)
        kept = tuple(result for result in results if not isinstance(result, Raised))
        if results and not kept:
            return ()
        return (element.child(kept, self.step),)


class Holding(Prompt):
    """A step that keeps elements and gives them on as one tuple."""

    def __init__(self, step: str) -> None:
        self.step = step
        self.kept: deque[Element] = deque()

    def keep(self, element: Element, tally: Tally) -> None:
        tally.hold(element)
        self.kept.append(element)

    def tuple_of_kept(self) -> Element:
        parts = tuple(self.kept)
        return Element(tuple(part.value for part in parts), joined_lineage(parts), self.step, parts)

    def flush(self, tally: Tally) -> Sequence[Element]:
        if not self.kept:
            return ()
        together = self.tuple_of_kept()
        tally.let_go(self.kept)
        self.kept.clear()
        return (together,)


class Partitioning(Holding):
    """Tuples of a fixed size."""

    def __init__(self, step: str, size: int) -> None:
        super().__init__(step)
        self.size = size

    def take(self, element: Element, tally: Tally) -> Sequence[Element]:
        self.keep(element, tally)
        return self.flush(tally) if len(self.kept) == self.size else ()


class PartitioningTime(Holding):
    """Tuples that close when an element or a poll comes late enough after their first element."""

    def __init__(self, step: str, seconds: float, clock: Clock) -> None:
        super().__init__(step)
        self.seconds, self.clock = seconds, clock
        self.began_at = 0.0

    def take(self, element: Element, tally: Tally) -> Sequence[Element]:
        now = self.clock()
        closed = self._closed(now, tally)
        if not self.kept:
            self.began_at = now
        self.keep(element, tally)
        return closed

    def due(self, tally: Tally) -> Sequence[Element]:
        return self._closed(self.clock(), tally)

    def due_in_seconds(self) -> float | None:
        """How long until `due` gives something; None when nothing is held."""
        return max(0.0, self.began_at + self.seconds - self.clock()) if self.kept else None

    def _closed(self, now: float, tally: Tally) -> Sequence[Element]:
        return self.flush(tally) if self.kept and now - self.began_at >= self.seconds else ()


class Sliding(Holding):
    """Windows over the last elements: an element is let go when no later window can hold it."""

    def __init__(self, step: str, size: int, *, return_partial: bool) -> None:
        super().__init__(step)
        self.size, self.return_partial = size, return_partial

    def take(self, element: Element, tally: Tally) -> Sequence[Element]:
        self.keep(element, tally)
        full = len(self.kept) == self.size
        window = (self.tuple_of_kept(),) if full or self.return_partial else ()
        if full:
            tally.let_go((self.kept.popleft(),))
        return window

    def flush(self, tally: Tally) -> Sequence[Element]:
        tally.let_go(self.kept)
        self.kept.clear()
        return ()


# `to_kafka` at work: messages go out as they come, and each element goes on when the broker has its message.
DEFAULTS = {"linger.ms": 20, "enable.idempotence": True, "log_level": 0, "client.id": "floodmark"}
FULL_SECONDS = 0.05


class Undelivered(Exception):
    """The broker did not take a message."""


@dataclass
class Sent:
    """A message under way."""

    element: Element
    answered: bool = False
    refusal: str = ""

    def answer(self, error: object, message: object) -> None:
        """Called by the client, inside `poll` or `flush`."""
        self.answered, self.refusal = True, "" if error is None else str(error)


class Delivering:
    """Holds each element until its message is confirmed, and gives them on in order."""

    def __init__(self, operator: nodes.ToKafka, step: str) -> None:
        self.operator, self.step = operator, step
        self.under_way: deque[Sent] = deque()
        self._producer: Producer | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_producer": None}

    def take(self, element: Element, tally: Tally) -> Sequence[Element]:
        message, sent = message_of(element.value), Sent(element)
        self._send(message, sent)
        tally.hold(element)
        self.under_way.append(sent)
        self.producer.poll(0)
        return self._confirmed(tally)

    def due(self, tally: Tally) -> Sequence[Element]:
        return self.await_io(tally)

    def await_io(self, tally: Tally) -> Sequence[Element]:
        if self.under_way:
            self.producer.flush()  # ends: the client gives a message up after delivery.timeout.ms
        return self._confirmed(tally)

    def flush(self, tally: Tally) -> Sequence[Element]:
        return self.await_io(tally)

    @property
    def producer(self) -> Producer:
        if self._producer is None:
            self._producer = producer_of(self.operator)
        return self._producer

    def _send(self, message: bytes | str | None, sent: Sent) -> None:
        while True:
            try:
                return self.producer.produce(self.operator.topic, value=message, on_delivery=sent.answer)
            except BufferError:  # its queue is full: let the broker catch up
                self.producer.poll(FULL_SECONDS)

    def _confirmed(self, tally: Tally) -> Sequence[Element]:
        confirmed = []
        while self.under_way and self.under_way[0].answered:
            sent = self.under_way.popleft()
            tally.let_go((sent.element,))
            if sent.refusal:
                tally.fail(sent.element.lineage, self.step, Undelivered(sent.refusal))
            else:
                confirmed.append(sent.element.child(sent.element.value, self.step))
        return confirmed


def message_of(value: object) -> bytes | str | None:
    """What is written: the element itself, or the value of a row `(uuid, value)`."""
    if isinstance(value, (tuple, list)) and len(value) == 2 and record_of(value[0]) is not None:
        value = value[1]
    if value is None or isinstance(value, (bytes, str)):
        return value
    raise TypeError(f"to_kafka writes bytes or text, not {type(value).__name__}: map it first, as with json.dumps")


def producer_of(operator: nodes.ToKafka) -> Producer:
    """A producer with the user's options over ours."""
    try:
        from confluent_kafka import KafkaException, Producer
    except ImportError as error:
        raise ConfigError("writing to Kafka needs confluent-kafka.", hint="pip install 'floodmark[kafka]'") from error
    try:
        return Producer({**DEFAULTS, **operator.producer_params})
    except KafkaException as error:
        raise ConfigError(f"{operator}: the producer's options are refused: {error}", hint="mend them") from error


# From a step's description to the step at work.
def worker_of(operator: nodes.Operator, step: str, clock: Clock) -> Worker:
    """The step at work, with nothing held; healing is the business of whoever runs the stream."""
    plain = plain_function(operator)
    if plain is not None:
        return Plain(step, plain)
    match operator:
        case nodes.Flatten():
            return Flattening(step)
        case nodes.ForeachMap(call):
            return Foreach(step, lambda items: [call_one(call, item) for item in items])
        case nodes.ForeachAsync(call, at_once):
            return Foreach(step, lambda items: call_together(call, items, at_once=at_once))
        case nodes.Partition(size):
            return Partitioning(step, size)
        case nodes.PartitionTime(seconds):
            return PartitioningTime(step, seconds, clock)
        case nodes.SlidingWindow(size, return_partial):
            return Sliding(step, size, return_partial=return_partial)
        case nodes.ToKafka():
            return Delivering(operator, step)
    raise ConfigError(f"no step '{operator}' in a stream.", hint="use the steps that Stream offers")

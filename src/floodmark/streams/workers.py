"""How the steps of a stream work: each takes an element and gives what follows from it, and says what it holds back.

Those that hold elements are in `holding`. Healing is not among them: it is the business of whoever runs the stream.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from floodmark.errors import ConfigError
from floodmark.streams import operators, spanning
from floodmark.streams.elements import USER_ERRORS, Element, RecordTracker, lineage_within

Clock = Callable[[], float]


class Worker(Protocol):
    """One step at work; what it raises fails the records of the element that it was given."""

    runs_anywhere: bool
    """Whether its `take` needs nothing but the element, and may be called in any thread."""

    def take(self, element: Element, tracker: RecordTracker) -> Sequence[Element]:
        """What the element becomes; what is kept for later is reported to the tracker."""

    def due(self, tracker: RecordTracker) -> Sequence[Element]:
        """What has to go on by now though no element came; called at every poll."""

    def await_io(self, tracker: RecordTracker) -> Sequence[Element]:
        """What can go on once what is under way outside has been confirmed; called at the end of a batch."""

    def flush(self, tracker: RecordTracker) -> Sequence[Element]:
        """Everything that is held, complete or not; called when the stream stops."""


def worker_of(operator: operators.Operator, step: str, clock: Clock) -> Worker:
    """The step at work, with nothing held."""
    own, function = operator.own_worker(step), operator.function()
    if own is not None:
        return own
    if function is not None:
        return FunctionWorker(step, function)
    match operator:
        case operators.Flatten():
            return FlattenWorker(step)
        case operators.ForeachMap(call):
            return ForeachWorker(step, lambda items: [try_call(call, item) for item in items])
        case operators.ForeachAsync(call, at_once):
            return ForeachWorker(step, lambda items: call_all(call, items, at_once=at_once))
        case operators.Scatter() | operators.OrderedGather():
            return FunctionWorker(step, lambda value: value)
        case spanning.HoldingOperator():
            from floodmark.streams.holding import holding_worker

            return holding_worker(operator, step, clock)
        case operators.ToKafka():
            from floodmark.streams.delivery import DeliveryWorker

            return DeliveryWorker(operator, step)
    raise ConfigError(f"no step '{operator}' in a stream.", hint="use the steps that Stream offers")


class ImmediateWorker:
    """A step that holds nothing back."""

    runs_anywhere = False

    def due(self, tracker: RecordTracker) -> Sequence[Element]:
        return ()

    def await_io(self, tracker: RecordTracker) -> Sequence[Element]:
        return ()

    def flush(self, tracker: RecordTracker) -> Sequence[Element]:
        return ()


class FunctionWorker(ImmediateWorker):
    """One function from a value to a value, or to nothing: map, starmap, pluck, filter, sink."""

    runs_anywhere = True

    def __init__(self, step: str, function: operators.ValueFunction) -> None:
        self.step, self.function = step, function

    def take(self, element: Element, tracker: RecordTracker) -> Sequence[Element]:
        value = self.function(element.value)
        return () if value is operators.NO_VALUE else (element.child(value, self.step),)


class FlattenWorker(ImmediateWorker):
    """Each item stands for the records that it names."""

    runs_anywhere = True

    def __init__(self, step: str) -> None:
        self.step = step

    def take(self, element: Element, tracker: RecordTracker) -> Sequence[Element]:
        items = list(element.value)  # type: ignore[call-overload]  # what is no iterable fails its records
        return [Element(item, lineage_within(item, element.lineage), self.step, (element,)) for item in items]


class ForeachWorker(ImmediateWorker):
    """A failing item fails the records that it names; the others go on, in a shorter tuple."""

    runs_anywhere = True

    def __init__(self, step: str, results: Callable[[Sequence[object]], list[object]]) -> None:
        self.step, self.results = step, results

    def take(self, element: Element, tracker: RecordTracker) -> Sequence[Element]:
        items = list(element.value)  # type: ignore[call-overload]  # what is no iterable fails its records
        results = self.results(items)
        for item, result in zip(items, results, strict=True):
            if isinstance(result, CallError):
                tracker.fail(lineage_within(item, element.lineage), self.step, result.error)
        values = tuple(result for result in results if not isinstance(result, CallError))
        return () if results and not values else (element.child(values, self.step),)


@dataclass(frozen=True)
class CallError:
    """What stands in the place of a result when the call raised."""

    error: BaseException


def try_call(call: operators.ValueFunction, item: object) -> object:
    """The result of the call, or the exception as a value."""
    try:
        return call(item)
    except USER_ERRORS as error:
        return CallError(error)


def call_all(call: operators.ValueFunction, items: Sequence[object], *, at_once: int) -> list[object]:
    """The results in order, with at most `at_once` calls under way; a call may be a function or a coroutine."""
    import asyncio

    if not items:
        return []
    # A thread of its own for the loop: the caller may run inside one already, as every notebook does.
    with ThreadPoolExecutor(min(at_once, len(items))) as threads, ThreadPoolExecutor(1) as looping:
        return looping.submit(asyncio.run, _gather(call, items, at_once, threads)).result()


async def _gather(
    call: operators.ValueFunction, items: Sequence[object], at_once: int, threads: ThreadPoolExecutor
) -> list[object]:
    import asyncio

    turn = asyncio.Semaphore(at_once)

    async def one(item: object) -> object:
        async with turn:
            result = await asyncio.get_running_loop().run_in_executor(threads, try_call, call, item)
            try:
                return await result if inspect.isawaitable(result) else result
            except USER_ERRORS as error:
                return CallError(error)

    return list(await asyncio.gather(*(one(item) for item in items)))

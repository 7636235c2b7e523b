"""A stream made ready: its steps in the order of the flow, and a run of them that pushes elements through."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from floodmark.streams import nodes
from floodmark.streams.elements import Arrival, Element, RecordId, Settled
from floodmark.streams.mending import Healing
from floodmark.streams.steps import worker_of
from floodmark.streams.straight import Straight, straight_of
from floodmark.streams.tally import Tally
from floodmark.streams.together import CAUGHT
from floodmark.streams.workers import Clock, PartitioningTime, Worker


@dataclass(frozen=True)
class Step:
    """A step in its place; `after` are the positions of the steps that get what it makes."""

    operator: nodes.Operator
    name: str
    after: tuple[int, ...]
    followed: bool = False


@dataclass(frozen=True)
class Plan:
    """Steps that run together in one process, and where elements enter them."""

    steps: tuple[Step, ...]

    def start(self, clock: Clock = time.time) -> Running:
        """A fresh run, with nothing held."""
        return Running(self, clock)

    @property
    def wants_arrivals(self) -> bool:
        """Whether anything follows a healing step: else no healed row has to come back to the driver."""
        return any(isinstance(step.operator, nodes.Heal) and step.followed for step in self.steps)

    def straight(self) -> Straight | None:
        """One function for the whole plan, when it is a line of plain steps that ends in `healing`; else None."""
        in_line = all(step.after == (index + 1,) for index, step in enumerate(self.steps[:-1]))
        return (
            straight_of([step.operator for step in self.steps], [step.name for step in self.steps]) if in_line else None
        )


class Running:
    """A plan at work, in one thread: elements are pushed, and what became of their records is told."""

    def __init__(self, plan: Plan, clock: Clock) -> None:
        self._steps = plan.steps
        self._tally = Tally()
        self._workers = [_worker(index, step, clock) for index, step in enumerate(plan.steps)]

    def push(self, element: Element, entry: int = 0) -> list[Settled]:
        """Send an element through; the records that are settled by it, in order. User code never raises out of here."""
        self._tally.touch(element.lineage)
        self._hand_on(entry, (element,))  # where elements enter, nothing is done to them
        return self._tally.settle()

    def tick(self) -> list[Settled]:
        """Let go what is due by the clock though nothing came."""
        return self._sweep(lambda worker: worker.due(self._tally))

    def await_io(self) -> list[Settled]:
        """Wait for what is under way to a broker; partitions stay held."""
        return self._sweep(lambda worker: worker.await_io(self._tally))

    def flush(self) -> list[Settled]:
        """Let go everything that is held, complete or not, from the first step to the last."""
        return self._sweep(lambda worker: worker.flush(self._tally))

    def take_arrivals(self) -> list[Arrival]:
        """What was healed since the last call, where something follows healing."""
        arrivals, self._tally.arrivals = self._tally.arrivals, []
        return arrivals

    def take_errors(self) -> list[BaseException]:
        """What user code raised since the last call."""
        errors, self._tally.errors = self._tally.errors, []
        return errors

    def pending(self) -> tuple[RecordId, ...]:
        """The records of which something is held."""
        return tuple(self._tally.held)

    def due_in_seconds(self) -> float | None:
        """How long until `tick` lets something go; None when it is not the clock that it waits for."""
        waits = [wait for worker in self._timed() if (wait := worker.due_in_seconds()) is not None]
        return min(waits, default=None)

    def use_clock(self, clock: Clock) -> None:
        """Go by another clock: a run that was carried over is on another machine now."""
        for worker in self._timed():
            worker.clock = clock

    def _timed(self) -> list[PartitioningTime]:
        return [worker for worker in self._workers if isinstance(worker, PartitioningTime)]

    def _deliver(self, index: int, element: Element) -> None:
        try:
            made = self._workers[index].take(element, self._tally)
        except CAUGHT as error:
            self._tally.fail(element.lineage, self._steps[index].name, error)
            return
        if made:
            self._hand_on(index, made)

    def _hand_on(self, index: int, made: Sequence[Element]) -> None:
        for element in made:
            for after in self._steps[index].after:
                self._deliver(after, element)

    def _sweep(self, released: Callable[[Worker], Sequence[Element]]) -> list[Settled]:
        # Steps stand in the order of the flow: what an earlier one lets go reaches a later one before its turn.
        for index, worker in enumerate(self._workers):
            self._hand_on(index, released(worker))
        return self._tally.settle()


def _worker(index: int, step: Step, clock: Clock) -> Worker:
    if isinstance(step.operator, nodes.Heal):
        return Healing(step.operator, step.name, index, followed=step.followed)
    return worker_of(step.operator, step.name, clock)

"""A stream made ready: its steps in the order of the flow, and a run of them that pushes elements through."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from floodmark.errors import ConfigError
from floodmark.step.transform import code_texts, short_hash
from floodmark.streams import operators as nodes
from floodmark.streams.elements import Arrival, Element, RecordId, Settled, Tally
from floodmark.streams.healing_step import (
    Healing,
    Straight,
    UuidLost,
    lost_text,
    named_records,
    record_of_row,
    straight_of,
)
from floodmark.streams.workers import CAUGHT, Clock, PartitioningTime, Prompt, Worker, worker_of


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


# From the graph of a stream to its two plans: what runs on executors, up to healing, and what follows it.
class Verdict(NamedTuple):
    """What is said of a healed record after the commit."""

    success: bool
    reason: str


@dataclass(frozen=True)
class Program:
    """A stream in two plans; `tasks` can be pickled and goes to the executors."""

    tasks: Plan
    driver: DriverPlan

    @property
    def heals(self) -> bool:
        """Whether any record can become done: without a healing step the mark never moves."""
        return bool(self.driver.healers)

    @property
    def ignores(self) -> bool:
        """Whether every healing step lets a failed publication of the group's offsets pass."""
        return all(healer.ignore for healer in self.driver.healers.values())

    @property
    def asynchronous(self) -> bool:
        """Whether every healing step lets the group's offsets be published in the background."""
        return all(healer.asynchronous for healer in self.driver.healers.values())

    def fingerprint(self) -> str:
        """Changes when a step or a function before healing does."""
        return short_hash(*(text for step in self.tasks.steps for text in _texts(step)))


@dataclass(frozen=True)
class DriverPlan:
    """What follows the healing steps; `entries` tells where the results of each of them enter."""

    plan: Plan
    entries: Mapping[int, int]
    healers: Mapping[int, nodes.Heal]

    def start(self) -> DriverRun:
        """A fresh run of what follows healing."""
        return DriverRun(self, self.plan.start())


class DriverRun:
    """What follows healing, at work in the driver."""

    def __init__(self, plan: DriverPlan, running: Running) -> None:
        self._plan, self._running = plan, running

    def push(self, arrival: Arrival, verdict: Callable[[RecordId], Verdict]) -> None:
        """Turn the healed rows into results and send them on; what user code raises waits in `take_errors`."""
        healer = self._plan.healers[arrival.step]
        self._running.push(Element(results_of(healer, arrival.value, verdict)), self._plan.entries[arrival.step])

    def flush(self) -> None:
        """Send on what partitions after healing still hold."""
        self._running.flush()

    def take_errors(self) -> list[BaseException]:
        """What user code raised since the last call."""
        return self._running.take_errors()


def _texts(step: Step) -> Iterator[str]:
    yield f"{step.name} -> {step.after}"
    call = getattr(step.operator, "call", None)
    code = getattr(getattr(call, "func", None), "__code__", None)
    if code is not None:
        yield from code_texts(code)


def results_of(healer: nodes.Heal, value: object, verdict: Callable[[RecordId], Verdict]) -> object:
    """What healing returns for a row (a dict), for rows (a list), and in a foreach step (a tuple of either)."""
    if healer.each:
        once = nodes.Heal(healer.takes)
        return tuple(results_of(once, part, verdict) for part in value)  # type: ignore[attr-defined]  # healed before
    if healer.takes == "rows":
        return [_result(row, verdict) for row in value]  # type: ignore[attr-defined]  # healed before
    return _result(value, verdict)


def _result(row: object, verdict: Callable[[RecordId], Verdict]) -> dict[str, object]:
    record = record_of_row(row)
    success, reason = verdict(record)
    return {
        "data": row[1],  # type: ignore[index]  # record_of_row saw a pair
        "success": success,
        "reason": reason,
        "partition": record.partition,
        "offset": record.offset,
        "topic": record.topic,
    }


def compile_program(source: nodes.Node) -> Program:
    """The two plans of the stream that begins at this node; refuses what cannot work."""
    ordered = in_flow_order([source])
    healers = [node for node in ordered if isinstance(node.operator, nodes.Heal)]
    after = in_flow_order(healers)
    behind = {id(node) for node in in_flow_order(down for healer in healers for down in healer.downstreams)}
    before = [node for node in ordered if id(node) not in behind]
    _refuse_mixtures(before, after, {id(node) for node in ordered}, behind)
    tasks = plan_of(before)
    return Program(tasks, _driver_plan(tasks, before, after))


def _driver_plan(tasks: Plan, before: list[nodes.Node], after: list[nodes.Node]) -> DriverPlan:
    healers = {index: step.operator for index, step in enumerate(tasks.steps) if isinstance(step.operator, nodes.Heal)}
    places = {id(node): index for index, node in enumerate(after)}
    steps = tuple(
        Step(nodes.Pass(str(step.operator)), step.name, step.after) if isinstance(step.operator, nodes.Heal) else step
        for step in plan_of(after).steps
    )
    return DriverPlan(Plan(steps), {index: places[id(before[index])] for index in healers}, healers)


def _refuse_mixtures(before: list[nodes.Node], after: list[nodes.Node], known: set[int], behind: set[int]) -> None:
    for node in (*before, *after):
        if isinstance(node.operator, nodes.Heal) and id(node) in behind:
            raise ConfigError(
                f"{node.operator} follows another healing step, so it would get results and not rows.",
                hint="heal once, at the end of each branch",
            )
        if any(id(upstream) not in known for upstream in node.upstreams):
            raise ConfigError(
                f"{node.operator} joins two sources, and a stream has the marks of one.",
                hint="read both topics in one source: from_kafka(['first', 'second'], …)",
            )
        if id(node) in behind and any(id(upstream) not in behind for upstream in _unhealed(node)):
            raise ConfigError(
                f"{node.operator} joins a branch that was healed with one that was not.",
                hint="heal every branch first, or join them before healing",
            )


def _unhealed(node: nodes.Node) -> Iterable[nodes.Node]:
    return (upstream for upstream in node.upstreams if not isinstance(upstream.operator, nodes.Heal))


def plan_of(ordered: list[nodes.Node]) -> Plan:
    """The steps of these nodes; what lies outside them is left out."""
    places = {id(node): index for index, node in enumerate(ordered)}
    return Plan(tuple(_step(index, node, places) for index, node in enumerate(ordered)))


def _step(index: int, node: nodes.Node, places: Mapping[int, int]) -> Step:
    name = f"{node.operator} (step {index})" if index else str(node.operator)
    after = tuple(places[id(down)] for down in node.downstreams if id(down) in places)
    return Step(node.operator, name, after, followed=bool(node.downstreams))


def in_flow_order(roots: Iterable[nodes.Node]) -> list[nodes.Node]:
    """Every node that the roots lead to, each after all that feed it."""
    finished: dict[int, nodes.Node] = {}
    for root in reversed(list(roots)):
        _finish(root, finished)
    return list(reversed(finished.values()))


def _finish(node: nodes.Node, finished: dict[int, nodes.Node]) -> None:
    if id(node) in finished:
        return
    for down in reversed(node.downstreams):
        _finish(down, finished)
    finished[id(node)] = node


# A stream that is pushed by hand: elements run through it at once, in the calling thread, in order, without Spark.
NO_MARK = Verdict(success=False, reason="pushed by emit: there is no mark to move")


def push(node: nodes.Node, value: object, clock: Clock) -> None:
    """Send a value to everything that follows the node; what user code raises is raised here, as it is."""
    _hand_on(node, (Element(value),), Tally(), clock)


def sweep(node: nodes.Node, released: Callable[[Worker, Tally], Iterable[Element]], clock: Clock) -> None:
    """Let every step of the whole graph give up what it holds, from the first to the last."""
    for each in in_flow_order(_roots(node)):
        tally = Tally()
        _hand_on(each, _raised(released(_pushed_worker(each, clock), tally), tally), tally, clock)


def _hand_on(node: nodes.Node, made: Iterable[Element], tally: Tally, clock: Clock) -> None:
    for element in made:
        for down in tuple(node.downstreams):
            _hand_on(down, _raised(_pushed_worker(down, clock).take(element, tally), tally), tally, clock)


def _raised(made: Iterable[Element], tally: Tally) -> Sequence[Element]:
    """What a step made, once it is known that nothing in it failed."""
    elements = tuple(made)
    if tally.errors:
        raise tally.errors[0]
    return elements


def _pushed_worker(node: nodes.Node, clock: Clock) -> Worker:
    if node.at_work is None:
        node.at_work = _begin(node.operator, clock)
    return cast("Worker", node.at_work)


def _begin(operator: nodes.Operator, clock: Clock) -> Worker:
    return Unmarked(operator) if isinstance(operator, nodes.Heal) else worker_of(operator, str(operator), clock)


class Unmarked(Prompt):
    """Healing where there is no mark: the rows are looked at and become results, so that a pipeline can be tried."""

    def __init__(self, operator: nodes.Heal) -> None:
        self.operator = operator

    def take(self, element: Element, tally: Tally) -> Sequence[Element]:
        try:
            named_records(self.operator, element.value)
        except UuidLost:
            raise UuidLost(lost_text(element)) from None
        return (element.child(results_of(self.operator, element.value, lambda record: NO_MARK), str(self.operator)),)


def _roots(node: nodes.Node) -> list[nodes.Node]:
    """Where the elements of the graph enter: a union may have joined several sources."""
    found: dict[int, nodes.Node] = {}
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if id(each) not in found:
            found[id(each)] = each
            waiting += [*each.upstreams, *each.downstreams]
    return [each for each in found.values() if not each.upstreams]

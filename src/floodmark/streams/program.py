"""A stream made ready: its graph, the plans of its steps in the order of the flow, and the run that pushes elements.

There is one interpreter, `PlanRun`, for tasks, for what follows healing and for `emit`; and one short path beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from floodmark.errors import ConfigError
from floodmark.streams.elements import (
    USER_ERRORS,
    Element,
    Failure,
    HealedElement,
    RecordId,
    RecordOutcome,
    RecordTracker,
    StepFailed,
    record_of,
)
from floodmark.streams.healing_step import HealStep, UnmarkedHealStep, UuidLost, Verdict, healed_records, results_of
from floodmark.streams.operators import ENTRY, NO_VALUE, Heal, Operator, Pass
from floodmark.streams.workers import Clock, PartitionTimeWorker, Worker, worker_of

Row = tuple[object, object]
ShortPath = Callable[[Row], "Row | None"]


@dataclass(eq=False)
class Stage:
    """A step at work, and who gets what it makes, in the order they were added."""

    name: str
    worker: Worker
    followers: tuple[Stage, ...] = ()


@dataclass(eq=False)
class Node:
    """A step in the graph that a user builds; its stage is at work when elements are pushed by `emit`."""

    operator: Operator
    stage: Stage
    upstreams: tuple[Node, ...] = ()
    downstreams: list[Node] = field(default_factory=list)

    @classmethod
    def entry(cls, clock: Clock) -> Node:
        """Where elements enter: a source that is pushed, or Kafka."""
        return cls(ENTRY, Stage(str(ENTRY), worker_of(ENTRY, str(ENTRY), clock)))

    def then(self, operator: Operator, *others: Node, clock: Clock) -> Node:
        """A new step after this one (and after the others, for a union)."""
        node = Node(operator, Stage(str(operator), _pushed_worker(operator, clock)), (self, *others))
        for upstream in node.upstreams:
            upstream.downstreams.append(node)
            upstream.stage.followers += (node.stage,)  # a new tuple: a push may be going through the old one
        return node


def _pushed_worker(operator: Operator, clock: Clock) -> Worker:
    return UnmarkedHealStep(operator) if isinstance(operator, Heal) else worker_of(operator, str(operator), clock)


class RaisingTracker(RecordTracker):
    """For elements that are pushed by hand: what user code raises is raised to whoever pushes, as it is."""

    def fail(self, records: Iterable[RecordId], step: str, error: BaseException) -> None:
        raise error


def push(node: Node, value: object) -> None:
    """Send a value to everything that follows the node, at once and in the calling thread."""
    PlanRun([node.stage], RaisingTracker()).push(Element(value))


def flush(node: Node) -> None:
    """Let every step of the whole graph give up what it holds, from the first to the last."""
    PlanRun([each.stage for each in in_flow_order(_entries(node))], RaisingTracker()).flush()


def _entries(node: Node) -> list[Node]:
    """Where the elements of the graph enter: a union may have joined several sources."""
    nodes: dict[int, Node] = {}
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if id(each) not in nodes:
            nodes[id(each)] = each
            waiting += [*each.upstreams, *each.downstreams]
    return [each for each in nodes.values() if not each.upstreams]


class PlanRun:
    """Stages at work, in one thread and in the order of the flow: elements are pushed, outcomes of records returned."""

    def __init__(self, stages: Sequence[Stage], tracker: RecordTracker) -> None:
        self._stages, self._tracker = stages, tracker

    def push(self, element: Element, entry: int = 0) -> list[RecordOutcome]:
        """Send an element through; the records that are settled by it, in order. User code never raises out of here."""
        self._tracker.touch(element.lineage)
        self._hand_on(self._stages[entry], (element,))  # where elements enter, nothing is done to them
        return self._tracker.settle()

    def tick(self) -> list[RecordOutcome]:
        """Let go what is due by the clock though nothing came."""
        return self._sweep(lambda worker: worker.due(self._tracker))

    def await_io(self) -> list[RecordOutcome]:
        """Wait for what is under way to a broker; partitions stay held."""
        return self._sweep(lambda worker: worker.await_io(self._tracker))

    def flush(self) -> list[RecordOutcome]:
        """Let go everything that is held, complete or not, from the first step to the last."""
        return self._sweep(lambda worker: worker.flush(self._tracker))

    def take_healed(self) -> list[HealedElement]:
        """What was healed since the last call, where something follows healing."""
        healed, self._tracker.healed_elements = self._tracker.healed_elements, []
        return healed

    def take_errors(self) -> list[BaseException]:
        """What user code raised since the last call."""
        errors, self._tracker.errors = self._tracker.errors, []
        return errors

    def pending(self) -> tuple[RecordId, ...]:
        """The records of which something is held."""
        return tuple(self._tracker.holds)

    def due_in_seconds(self) -> float | None:
        """How long until `tick` lets something go; None when it is not the clock that it waits for."""
        waits = [wait for worker in self._timed_workers() if (wait := worker.due_in_seconds()) is not None]
        return min(waits, default=None)

    def use_clock(self, clock: Clock) -> None:
        """Go by another clock: a run that was carried over is on another machine now."""
        for worker in self._timed_workers():
            worker.clock = clock

    def _timed_workers(self) -> list[PartitionTimeWorker]:
        return [stage.worker for stage in self._stages if isinstance(stage.worker, PartitionTimeWorker)]

    def _hand_on(self, stage: Stage, elements: Sequence[Element]) -> None:
        for element in elements:
            for follower in stage.followers:
                try:
                    children = follower.worker.take(element, self._tracker)
                except USER_ERRORS as error:
                    self._tracker.fail(element.lineage, follower.name, error)
                    continue
                if children:
                    self._hand_on(follower, children)

    def _sweep(self, release: Callable[[Worker], Sequence[Element]]) -> list[RecordOutcome]:
        # Stages stand in the order of the flow: what an earlier one lets go reaches a later one before its turn.
        for stage in self._stages:
            self._hand_on(stage, release(stage.worker))
        return self._tracker.settle()


@dataclass(frozen=True)
class ProgramStep:
    """A step in its place; `followers` are the positions of the steps of its plan that get what it makes."""

    operator: Operator
    name: str
    followers: tuple[int, ...]
    is_followed: bool = False
    """Whether anything follows it, in this plan or in the other one."""

    def worker(self, index: int, clock: Clock) -> Worker:
        """The step at work in a task, with nothing held."""
        if isinstance(self.operator, Heal):
            return HealStep(self.operator, index, is_followed=self.is_followed)
        return worker_of(self.operator, self.name, clock)


@dataclass(frozen=True)
class Plan:
    """Steps that run together in one process; elements enter at the first."""

    steps: tuple[ProgramStep, ...]

    def start(self, clock: Clock = time.time) -> PlanRun:
        """A fresh run, with nothing held."""
        stages = [Stage(step.name, step.worker(index, clock)) for index, step in enumerate(self.steps)]
        for stage, step in zip(stages, self.steps, strict=True):
            stage.followers = tuple(stages[index] for index in step.followers)
        return PlanRun(stages, RecordTracker())

    @property
    def returns_rows(self) -> bool:
        """Whether anything follows a healing step: else no healed row has to come back to the driver."""
        return any(isinstance(step.operator, Heal) and step.is_followed for step in self.steps)

    def short_path(self) -> ShortPath | None:
        """One function from a row to the row that is healed, or to None when a filter took it out; None if too complex.

        For a line of steps that are functions and end in `healing`. It does what `PlanRun` does, without elements and
        tracker, and pays for itself in both rows of `bench/bench_healing.py` ("healing, against a plain read of Kafka
        with mapInArrow", "healing, against streamz's from_kafka"). It raises StepFailed where a record fails.
        """
        *steps, last = self.steps
        functions = [function for step in steps if (function := step.operator.function()) is not None]
        in_line = all(step.followers == (index + 1,) for index, step in enumerate(steps))
        heals_rows = isinstance(last.operator, Heal) and last.operator.takes == "row" and not last.operator.each
        if len(functions) < len(steps) or not in_line or not heals_rows:
            return None
        functions, names = functions[1:], [step.name for step in self.steps[1:]]  # the first is where the row enters

        def heal(row: Row) -> Row | None:
            value: object = row
            values: list[object] = []
            try:
                for function in functions:
                    value = function(value)
                    if value is NO_VALUE:
                        return None
                    values.append(value)
            except USER_ERRORS as error:
                raise StepFailed(Failure.of(names[len(values)], error)) from None
            if not (type(value) is tuple and len(value) == 2 and value[0] is row[0]):
                _require_own_record(row, values, self.steps)  # it is not the very uuid that came in
            return value  # type: ignore[return-value]  # a pair

        return heal


def _require_own_record(row: Row, values: Sequence[object], steps: Sequence[ProgramStep]) -> None:
    """Judge the end of a short path as the healing step would have: the same elements, made only where it is needed."""
    record, last = record_of(row[0]), steps[-1]
    element = Element(row, () if record is None else (record,))
    for value, step in zip(values, steps[1:], strict=False):
        element = element.child(value, step.name)
    try:
        healed_records(last.operator, element)  # type: ignore[arg-type]  # a short path ends in healing
    except UuidLost as error:
        raise StepFailed(Failure.of(last.name, error)) from None


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
        from floodmark.step.transform import short_hash  # not at the top: the tasks have no need of the whole step

        return short_hash(*(text for step in self.tasks.steps for text in _texts(step)))


def _texts(step: ProgramStep) -> Iterator[str]:
    from floodmark.step.transform import code_texts

    yield f"{step.name} -> {step.followers}"
    call = step.operator.user_call()
    code = getattr(call.func, "__code__", None) if call else None
    if code is not None:
        yield from code_texts(code)


@dataclass(frozen=True)
class DriverPlan:
    """What follows the healing steps; `entries` says where the results of each of them enter."""

    plan: Plan
    entries: Mapping[int, int]
    healers: Mapping[int, Heal]

    def start(self) -> DriverRun:
        """A fresh run of what follows healing."""
        return DriverRun(self, self.plan.start())


class DriverRun:
    """What follows healing, at work in the driver."""

    def __init__(self, plan: DriverPlan, run: PlanRun) -> None:
        self._plan, self._run = plan, run

    def push(self, healed: HealedElement, verdict: Callable[[RecordId], Verdict]) -> None:
        """Turn the healed rows into results and send them on; what user code raises waits in `take_errors`."""
        results = results_of(self._plan.healers[healed.step], healed.value, verdict)
        self._run.push(Element(results), self._plan.entries[healed.step])

    def flush(self) -> None:
        """Send on what partitions after healing still hold."""
        self._run.flush()

    def take_errors(self) -> list[BaseException]:
        """What user code raised since the last call."""
        return self._run.take_errors()


def compile_program(source: Node) -> Program:
    """The two plans of the stream that begins at this node: up to healing, and behind it; refuses what cannot work."""
    ordered = in_flow_order([source])
    healers = [node for node in ordered if isinstance(node.operator, Heal)]
    after = in_flow_order(healers)
    behind = {id(node) for node in in_flow_order(down for healer in healers for down in healer.downstreams)}
    before = [node for node in ordered if id(node) not in behind]
    _refuse_mixtures(before, after, {id(node) for node in ordered}, behind)
    tasks = plan_of(before)
    places = {id(node): index for index, node in enumerate(after)}
    healers_at = {index: step.operator for index, step in enumerate(tasks.steps) if isinstance(step.operator, Heal)}
    entries = {index: places[id(before[index])] for index in healers_at}
    return Program(tasks, DriverPlan(Plan(tuple(map(_without_healing, plan_of(after).steps))), entries, healers_at))


def _without_healing(step: ProgramStep) -> ProgramStep:
    """In the driver a healing step is where its results enter."""
    return ProgramStep(Pass(str(step.operator)), step.name, step.followers) if isinstance(step.operator, Heal) else step


def _refuse_mixtures(before: list[Node], after: list[Node], known: set[int], behind: set[int]) -> None:
    for node in (*before, *after):
        unhealed = [upstream for upstream in node.upstreams if not isinstance(upstream.operator, Heal)]
        if isinstance(node.operator, Heal) and id(node) in behind:
            raise ConfigError(
                f"{node.operator} follows another healing step, so it would get results and not rows.",
                hint="heal once, at the end of each branch",
            )
        if any(id(upstream) not in known for upstream in node.upstreams):
            raise ConfigError(
                f"{node.operator} joins two sources, and a stream has the marks of one.",
                hint="read both topics in one source: from_kafka(['first', 'second'], …)",
            )
        if id(node) in behind and any(id(upstream) not in behind for upstream in unhealed):
            raise ConfigError(
                f"{node.operator} joins a branch that was healed with one that was not.",
                hint="heal every branch first, or join them before healing",
            )


def plan_of(ordered: list[Node]) -> Plan:
    """The steps of these nodes; what lies outside them is left out."""
    places = {id(node): index for index, node in enumerate(ordered)}
    return Plan(tuple(_step(index, node, places) for index, node in enumerate(ordered)))


def _step(index: int, node: Node, places: Mapping[int, int]) -> ProgramStep:
    name = f"{node.operator} (step {index})" if index else str(node.operator)
    followers = tuple(places[id(down)] for down in node.downstreams if id(down) in places)
    return ProgramStep(node.operator, name, followers, is_followed=bool(node.downstreams))


def in_flow_order(roots: Iterable[Node]) -> list[Node]:
    """Every node that the roots lead to, each after all that feed it."""
    finished: dict[int, Node] = {}
    for root in reversed(list(roots)):
        _finish(root, finished)
    return list(reversed(finished.values()))


def _finish(node: Node, finished: dict[int, Node]) -> None:
    if id(node) in finished:
        return
    for down in reversed(node.downstreams):
        _finish(down, finished)
    finished[id(node)] = node

"""A stream made ready: the plans of its steps in the order of the flow, before healing and behind it.

They are run by `PlanRun`; there is one short path beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from floodmark.errors import ConfigError
from floodmark.streams.elements import (
    USER_ERRORS,
    Element,
    Failure,
    HealedElement,
    PassedElement,
    RecordId,
    RecordTracker,
    StepFailed,
    record_of,
)
from floodmark.streams.flow import Node, PlanRun, Stage, in_flow_order
from floodmark.streams.healing_step import (
    HealStep,
    UuidLost,
    Verdict,
    healed_records,
    results_of,
    step_that_lost_the_uuid,
)
from floodmark.streams.holding import RateLimitWorker
from floodmark.streams.operators import NO_VALUE, Buffer, Gather, Heal, Operator, OrderedGather, Pass, Scatter
from floodmark.streams.scatter import ScatterWorker
from floodmark.streams.workers import Clock, ImmediateWorker, Worker, worker_of

Row = tuple[object, object]
ShortPath = Callable[[Row], "Row | None"]


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
        match self.operator:
            case Heal():
                return HealStep(self.operator, index, is_followed=self.is_followed)
            case Scatter(at_once):
                return ScatterWorker(at_once, in_order=True)
        worker = worker_of(self.operator, self.name, clock)
        if isinstance(worker, RateLimitWorker):
            worker.begin_late()
        return worker


@dataclass(frozen=True)
class PassedOnStep(ProgramStep):
    """In the place of a step over the whole stream, where records are taken one by one: it comes later."""

    def worker(self, index: int, clock: Clock) -> Worker:
        return PassOnWorker(index)


@dataclass(frozen=True)
class DriverStep(Operator):
    """What an executor has to know of a step that runs in the driver: that it comes later."""

    name: str
    spans_stream = keeps = True

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class PooledStep(ProgramStep):
    """A scatter where records are taken one by one: whichever is ready goes on."""

    threads: int = 1

    def worker(self, index: int, clock: Clock) -> Worker:
        return ScatterWorker(self.threads, in_order=False)


class PassOnWorker(ImmediateWorker):
    """Reports what reaches a step over the whole stream."""

    def __init__(self, index: int) -> None:
        self.index = index

    def take(self, element: Element, tracker: RecordTracker) -> Sequence[Element]:
        made_by = step_that_lost_the_uuid(element) or element.step  # the elements before it are not kept
        tracker.pass_on(PassedElement(self.index, element.value, element.lineage, made_by))
        return ()


@dataclass(frozen=True)
class Plan:
    """Steps that run together in one process; elements enter at the first."""

    steps: tuple[ProgramStep, ...]

    def start(self, clock: Clock = time.time) -> PlanRun:
        """A fresh run, with nothing held."""
        stages = [Stage(step.name, step.worker(index, clock)) for index, step in enumerate(self.steps)]
        for stage, step in zip(stages, self.steps, strict=True):
            stage.followers = tuple(stages[index] for index in step.followers)
            if isinstance(stage.worker, ScatterWorker):
                stage.worker.followers = stage.followers
        return PlanRun(stages, RecordTracker())

    @cached_property
    def spans_stream(self) -> bool:
        """Whether a step takes the elements of all partitions in one order."""
        return any(step.operator.spans_stream for step in self.steps)

    @cached_property
    def keeps(self) -> bool:
        """Whether a step goes on holding when everything else is let go: then no record can run by itself alone."""
        return any(step.operator.keeps for step in self.steps)

    @cached_property
    def runs_in_driver(self) -> bool:
        """Whether a step that spans the stream runs in the program that built it."""
        return any(step.operator.runs_in_driver for step in self.steps)

    @cached_property
    def remembers(self) -> bool:
        """Whether a step knows something that the next run has to know too."""
        return any(step.operator.remembers for step in self.steps)

    def record_part(self, threads: int = 1) -> Plan:
        """The steps as they are for a record by itself, up to the first that spans the stream; places stay the same."""
        return Plan(tuple(_record_step(step, threads) for step in self.steps))

    def without_driver_steps(self) -> Plan:
        """What can be sent to the executors: whatever runs in the driver stands there by its name alone."""
        if not self.runs_in_driver:
            return self
        sent = set(self._record_steps())
        return Plan(tuple(_sent_step(step, is_sent=index in sent) for index, step in enumerate(self.steps)))

    def scatters_at_once(self) -> int | None:
        """How many records run side by side, where a scatter stands before any step that spans the stream."""
        return next((self.steps[at].operator.at_once for at in self._record_steps() if self._scatters(at)), None)  # type: ignore[attr-defined]  # _scatters says that it has one

    def _scatters(self, index: int) -> bool:
        return isinstance(self.steps[index].operator, Scatter)

    def _record_steps(self) -> list[int]:
        """The steps that are reached without passing one that spans the stream."""
        reached = [0]
        for index in reached:
            if not self.steps[index].operator.spans_stream:
                reached += [each for each in self.steps[index].followers if each not in reached]
        return reached

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
        return any(step.operator.heals for step in self.tasks.steps)

    @property
    def ignores(self) -> bool:
        """Whether every healing step lets a failed publication of the group's offsets pass."""
        return bool(self.driver.healers) and all(healer.ignore for healer in self.driver.healers.values())

    @property
    def asynchronous(self) -> bool:
        """Whether every healing step lets the group's offsets be published in the background."""
        return bool(self.driver.healers) and all(healer.asynchronous for healer in self.driver.healers.values())

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

    def tick(self) -> None:
        """Send on what the clock lets go."""
        self._run.tick()

    def flush(self) -> None:
        """Send on what partitions after healing still hold, and wait for what is under way."""
        self._run.finish()

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


def _record_step(step: ProgramStep, threads: int) -> ProgramStep:
    if step.operator.spans_stream:
        return PassedOnStep(step.operator, step.name, ())
    if isinstance(step.operator, Scatter):
        return PooledStep(step.operator, step.name, step.followers, threads=threads)
    return step


def _sent_step(step: ProgramStep, *, is_sent: bool) -> ProgramStep:
    if not step.operator.spans_stream:
        return step if is_sent else ProgramStep(Pass(step.name), step.name, ())
    return ProgramStep(DriverStep(step.name), step.name, ())


def _step(index: int, node: Node, places: Mapping[int, int]) -> ProgramStep:
    name = f"{node.operator} (step {index})" if index else str(node.operator)
    followers = tuple(places[id(down)] for down in node.downstreams if id(down) in places)
    return ProgramStep(_placed_operator(node), name, followers, is_followed=bool(node.downstreams))


def _placed_operator(node: Node) -> Operator:
    """The operator, with what its neighbours say: how many a scatter may run, and whether a gather has to order."""
    match node.operator:
        case Scatter(at_once):
            sizes = [each.operator.size for each in _up_to_gather(node) if isinstance(each.operator, Buffer)]
            return replace(node.operator, at_once=min(sizes, default=at_once))
        case Gather():
            orders = any(not isinstance(down.operator, Heal) for down in node.downstreams)
            return OrderedGather() if orders and _is_behind_scatter(node) else node.operator
    return node.operator


def _up_to_gather(node: Node) -> Iterator[Node]:
    for down in node.downstreams:
        if not isinstance(down.operator, Gather):
            yield down
            yield from _up_to_gather(down)


def _is_behind_scatter(node: Node) -> bool:
    return any(isinstance(up.operator, Scatter) or _is_behind_scatter(up) for up in node.upstreams)

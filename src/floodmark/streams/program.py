"""From the graph of a stream to its two plans: what runs on executors, up to healing, and what follows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from floodmark.errors import ConfigError
from floodmark.step.transform import code_texts, short_hash
from floodmark.streams import nodes
from floodmark.streams.elements import Arrival, Element, RecordId
from floodmark.streams.mending import record_of_row
from floodmark.streams.program import Plan, Running, Step


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

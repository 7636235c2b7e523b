"""Steps at work: the graph that a user builds, and the run that pushes elements through it.

There is one interpreter, `PlanRun`, for tasks, for what follows healing and for `emit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from floodmark.streams.elements import (
    USER_ERRORS,
    Element,
    HealedElement,
    PassedElement,
    RecordId,
    RecordOutcome,
    RecordTracker,
)
from floodmark.streams.healing_step import UnmarkedHealStep
from floodmark.streams.holding import RememberingWorker, TimedWorker
from floodmark.streams.operators import ENTRY, Heal, Operator
from floodmark.streams.scatter import ScatterWorker
from floodmark.streams.workers import Clock, Worker, worker_of


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
    PlanRun([each.stage for each in in_flow_order(entries(node))], RaisingTracker()).flush()


def nodes_before(nodes: Iterable[Node]) -> Iterator[Node]:
    """These, and every step that leads to them, each once."""
    known: dict[int, Node] = {}
    waiting = list(nodes)
    while waiting:
        each = waiting.pop()
        if id(each) not in known:
            known[id(each)] = each
            waiting += each.upstreams
    yield from known.values()


def entries(node: Node) -> list[Node]:
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
    """Stages at work, in the order of the flow: elements are pushed, outcomes of records returned.

    All in one thread, but for what a `scatter` has under way.
    """

    def __init__(self, stages: Sequence[Stage], tracker: RecordTracker) -> None:
        self._stages, self._tracker = stages, tracker
        self._pools = [stage.worker for stage in stages if isinstance(stage.worker, ScatterWorker)]

    def push(self, element: Element, entry: int = 0) -> list[RecordOutcome]:
        """Send an element through; the records that are settled by it, in order. User code never raises out of here."""
        self._tracker.touch(element.lineage)
        self._hand_on(self._stages[entry], (element,))  # where elements enter, nothing is done to them
        if self._pools:
            self._collect()
        return self._tracker.settle()

    def expect(self, element: Element) -> None:
        """An element waits for a step: its records are not settled before it was given to `push_into`."""
        self._tracker.hold(element)

    def push_into(self, element: Element, step: int) -> list[RecordOutcome]:
        """As `push`, for an element that was expected at this very step."""
        self._tracker.let_go((element,))
        self._give(self._stages[step], element)
        self._collect()
        return self._tracker.settle()

    def heal(self, records: Iterable[RecordId]) -> None:
        """These records were healed before they came here."""
        self._tracker.heal(records)

    def watch(self, on_begin: Callable[[Iterable[RecordId]], object] | None) -> None:
        """Be told, from now on, of the records of every element that a step puts together."""
        self._tracker.on_begin = on_begin

    def memory(self, is_open: Callable[[RecordId], bool]) -> dict[str, object]:
        """What its steps know of elements that are long settled."""
        return {name: worker.memory(is_open) for name, worker in self._remembering_workers().items()}

    def remember(self, memory: Mapping[str, object]) -> None:
        """Go on from there; a step that was not among them begins anew."""
        for name, worker in self._remembering_workers().items():
            if name in memory:
                worker.remember(memory[name])

    def replay(self, element: Element, step: int) -> None:
        """Let a step know again of an element whose records it has settled, and send nothing on."""
        worker = self._stages[step].worker
        if isinstance(worker, RememberingWorker):
            with suppress(*USER_ERRORS):  # as it did before
                worker.take(element, RecordTracker())

    def _remembering_workers(self) -> dict[str, RememberingWorker]:
        """By the name of their step, without its place: other steps may be added before it."""
        workers = [(stage.name, stage.worker) for stage in self._stages]
        return {name.partition(" (step")[0]: each for name, each in workers if isinstance(each, RememberingWorker)}

    def tick(self) -> list[RecordOutcome]:
        """Let go what is due by the clock though nothing came."""
        return self._sweep(lambda worker: worker.due(self._tracker))

    def await_io(self) -> list[RecordOutcome]:
        """Wait for what is under way to a broker, or for the next that is ready in a pool; partitions stay held."""
        for pool in self._pools:
            pool.wait_for_one()
        return self._sweep(lambda worker: worker.await_io(self._tracker))

    @property
    def is_busy(self) -> bool:
        """Whether anything is under way in a pool: then `await_io` has to be called again."""
        return any(pool.is_busy for pool in self._pools)

    def flush(self) -> list[RecordOutcome]:
        """Let go everything that is held, complete or not, from the first step to the last."""
        return self._sweep(lambda worker: worker.flush(self._tracker))

    def finish(self) -> list[RecordOutcome]:
        """Flush, and wait for what that has put under way."""
        outcomes = [*self.await_io(), *self.flush()]
        while self.is_busy:
            outcomes += [*self.await_io(), *self.flush()]
        return [*outcomes, *self.await_io()]

    def close(self) -> None:
        """End the threads of its pools."""
        for pool in self._pools:
            pool.close()

    def take_healed(self) -> list[HealedElement]:
        """What was healed since the last call, where something follows healing."""
        healed, self._tracker.healed_elements = self._tracker.healed_elements, []
        return healed

    def take_passed(self) -> list[PassedElement]:
        """What came to a step over the whole stream since the last call, where such steps run later."""
        return self._tracker.take_passed() if self._tracker.passed_elements else []

    def take_errors(self) -> list[BaseException]:
        """What user code raised since the last call."""
        errors, self._tracker.errors = self._tracker.errors, []
        return errors

    def pending(self) -> tuple[RecordId, ...]:
        """The records of which something is held."""
        return tuple(self._tracker.holds)

    def is_pending(self, record: RecordId) -> bool:
        return record in self._tracker.holds

    def due_in_seconds(self) -> float | None:
        """How long until `tick` lets something go; None when it is not the clock that it waits for."""
        waits = [wait for worker in self._timed_workers() if (wait := worker.due_in_seconds()) is not None]
        return min(waits, default=None)

    def use_clock(self, clock: Clock) -> None:
        """Go by another clock: a run that was carried over is on another machine now."""
        for worker in self._timed_workers():
            worker.clock = clock

    def _timed_workers(self) -> list[TimedWorker]:
        return [stage.worker for stage in self._stages if isinstance(stage.worker, TimedWorker)]

    def _hand_on(self, stage: Stage, elements: Sequence[Element]) -> None:
        for element in elements:
            for follower in stage.followers:
                self._give(follower, element)

    def _give(self, stage: Stage, element: Element) -> None:
        try:
            children = stage.worker.take(element, self._tracker)
        except USER_ERRORS as error:
            self._tracker.fail(element.lineage, stage.name, error)
            return
        if children:
            self._hand_on(stage, children)

    def _collect(self) -> None:
        """Hand on what pools have ready."""
        for pool in self._pools:
            for stage, element in pool.ready(self._tracker):
                self._give(stage, element)

    def _sweep(self, release: Callable[[Worker], Sequence[Element]]) -> list[RecordOutcome]:
        # Stages stand in the order of the flow: what an earlier one lets go reaches a later one before its turn.
        self._collect()
        for stage in self._stages:
            self._hand_on(stage, release(stage.worker))
        return self._tracker.settle()


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

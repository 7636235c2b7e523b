"""A stream that is pushed by hand: elements run through it at once, in the calling thread, in order, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import cast

from floodmark.streams import nodes
from floodmark.streams.compiling import Verdict, in_flow_order, results_of
from floodmark.streams.elements import Element
from floodmark.streams.mending import UuidLost, lost_text, named_records
from floodmark.streams.steps import worker_of
from floodmark.streams.tally import Tally
from floodmark.streams.workers import Clock, Prompt, Worker

NO_MARK = Verdict(success=False, reason="pushed by emit: there is no mark to move")


def push(node: nodes.Node, value: object, clock: Clock) -> None:
    """Send a value to everything that follows the node; what user code raises is raised here, as it is."""
    _hand_on(node, (Element(value),), Tally(), clock)


def sweep(node: nodes.Node, released: Callable[[Worker, Tally], Iterable[Element]], clock: Clock) -> None:
    """Let every step of the whole graph give up what it holds, from the first to the last."""
    for each in in_flow_order(_roots(node)):
        tally = Tally()
        _hand_on(each, _raised(released(_worker(each, clock), tally), tally), tally, clock)


def _hand_on(node: nodes.Node, made: Iterable[Element], tally: Tally, clock: Clock) -> None:
    for element in made:
        for down in tuple(node.downstreams):
            _hand_on(down, _raised(_worker(down, clock).take(element, tally), tally), tally, clock)


def _raised(made: Iterable[Element], tally: Tally) -> Sequence[Element]:
    """What a step made, once it is known that nothing in it failed."""
    elements = tuple(made)
    if tally.errors:
        raise tally.errors[0]
    return elements


def _worker(node: nodes.Node, clock: Clock) -> Worker:
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

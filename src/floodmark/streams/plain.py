"""The steps that are one function from a value to a value, or to nothing: map, starmap, pluck, filter, sink."""

from __future__ import annotations

from collections.abc import Callable

from floodmark.streams import nodes

GONE = object()  # what a filter gives for a value that it takes out, and a sink for every value

PlainFunction = Callable[[object], object]


def plain_function(operator: nodes.Operator) -> PlainFunction | None:
    """What the step makes of a value; None for steps that hold, split or heal."""
    match operator:
        case nodes.Entry() | nodes.Pass():
            return _same
        case nodes.Map(call):
            return call if call.args or call.kwargs else call.func
        case nodes.Starmap(call):
            return lambda value: call.func(*value, *call.args, **call.kwargs)  # type: ignore[misc]
        case nodes.Pluck(list() as picks):
            return lambda value: tuple(value[pick] for pick in picks)  # type: ignore[index]
        case nodes.Pluck(pick):
            return lambda value: value[pick]  # type: ignore[index]
        case nodes.Filter(predicate):
            return _filter(predicate or bool)
        case nodes.Sink(call):
            return lambda value: (call(value), GONE)[1]
    return None


def _same(value: object) -> object:
    return value


def _filter(predicate: PlainFunction) -> PlainFunction:
    return lambda value: value if predicate(value) else GONE

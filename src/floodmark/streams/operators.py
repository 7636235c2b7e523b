"""The steps that are one function from a value to a value, or to nothing: map, starmap, pluck, filter, sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

# The steps of a stream as plain values, and the graph they form; how each of them works is in `workers`.
Function = Callable[..., object]


@dataclass(frozen=True)
class Call:
    """A user's function with the arguments it gets after the element."""

    func: Function
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)

    def __call__(self, value: object) -> object:
        return self.func(value, *self.args, **self.kwargs)

    def __str__(self) -> str:
        return str(getattr(self.func, "__name__", type(self.func).__name__))


@dataclass(frozen=True)
class Entry:
    """Where elements enter: a source that is pushed, or Kafka."""

    def __str__(self) -> str:
        return "source"


@dataclass(frozen=True)
class Pass:
    """A step that only hands on: union, buffer, scatter, gather."""

    word: str

    def __str__(self) -> str:
        return self.word


@dataclass(frozen=True)
class Map:
    """One element in, one out."""

    call: Call

    def __str__(self) -> str:
        return f"map({self.call})"


@dataclass(frozen=True)
class Starmap:
    """As map, with the element's items as the first arguments."""

    call: Call

    def __str__(self) -> str:
        return f"starmap({self.call})"


@dataclass(frozen=True)
class Pluck:
    """An item of the element, or a tuple of several."""

    pick: object

    def __str__(self) -> str:
        return f"pluck({self.pick!r})"


@dataclass(frozen=True)
class Filter:
    """Hands on the elements for which the predicate is true; without a predicate, those that are true themselves."""

    call: Call | None

    def __str__(self) -> str:
        return f"filter({self.call})" if self.call else "filter(None)"


@dataclass(frozen=True)
class Sink:
    """The end of a branch: the function is called for what it does."""

    call: Call

    def __str__(self) -> str:
        return f"sink({self.call})"


@dataclass(frozen=True)
class Flatten:
    """Every item of an element on its own."""

    def __str__(self) -> str:
        return "flatten"


@dataclass(frozen=True)
class Partition:
    """Tuples of n elements."""

    size: int

    def __str__(self) -> str:
        return f"partition({self.size})"


@dataclass(frozen=True)
class PartitionTime:
    """Tuples of what arrived within some seconds of the first of them."""

    seconds: float

    def __str__(self) -> str:
        return f"partition_time({self.seconds:g})"


@dataclass(frozen=True)
class SlidingWindow:
    """Tuples of the last n elements, each element in up to n of them."""

    size: int
    return_partial: bool

    def __str__(self) -> str:
        return f"sliding_window({self.size})"


@dataclass(frozen=True)
class ForeachMap:
    """The function on every item of an element, one after the other; gives a tuple."""

    call: Call

    def __str__(self) -> str:
        return f"foreach_map({self.call})"


@dataclass(frozen=True)
class ForeachAsync:
    """The function or coroutine on every item of an element, at most `at_once` at a time; gives a tuple in order."""

    call: Call
    at_once: int

    def __str__(self) -> str:
        return f"foreach_async({self.call})"


@dataclass(frozen=True)
class ToKafka:
    """Writes each element to a topic and hands it on when the broker has it."""

    topic: str
    producer_params: Mapping[str, object] = field(repr=False)

    def __str__(self) -> str:
        return f"to_kafka({self.topic})"


@dataclass(frozen=True)
class Heal:
    """Where records become done: an element is a row, or rows; or a tuple of such, when given to a foreach step."""

    takes: Literal["row", "rows"]
    each: bool = False
    ignore: bool = False
    asynchronous: bool = False

    def __str__(self) -> str:
        return "healing" if self.takes == "row" else "healing_batch"


class AtWork(Protocol):
    """A step with what it holds; `workers` knows more of it."""


Operator = (
    Entry | Pass | Map | Starmap | Pluck | Filter | Sink | Flatten | Partition | PartitionTime | SlidingWindow
    | ForeachMap | ForeachAsync | ToKafka | Heal
)  # fmt: skip


@dataclass(eq=False)
class Node:
    """A step in its place: what it gets its elements from, and who gets what it makes, in the order they were added."""

    operator: Operator
    upstreams: tuple[Node, ...] = ()
    downstreams: list[Node] = field(default_factory=list)
    at_work: AtWork | None = None  # of a stream that is pushed; a compiled plan has its own

    def then(self, operator: Operator, *others: Node) -> Node:
        """A new step after this one (and after the others, for a union)."""
        node = Node(operator, (self, *others))
        for upstream in node.upstreams:
            upstream.downstreams.append(node)
        return node


GONE = object()  # what a filter gives for a value that it takes out, and a sink for every value

PlainFunction = Callable[[object], object]


def plain_function(operator: Operator) -> PlainFunction | None:
    """What the step makes of a value; None for steps that hold, split or heal."""
    match operator:
        case Entry() | Pass():
            return _same
        case Map(call):
            return call if call.args or call.kwargs else call.func
        case Starmap(call):
            return lambda value: call.func(*value, *call.args, **call.kwargs)  # type: ignore[misc]
        case Pluck(list() as picks):
            return lambda value: tuple(value[pick] for pick in picks)  # type: ignore[index]
        case Pluck(pick):
            return lambda value: value[pick]  # type: ignore[index]
        case Filter(predicate):
            return _filter(predicate or bool)
        case Sink(call):
            return lambda value: (call(value), GONE)[1]
    return None


def _same(value: object) -> object:
    return value


def _filter(predicate: PlainFunction) -> PlainFunction:
    return lambda value: value if predicate(value) else GONE

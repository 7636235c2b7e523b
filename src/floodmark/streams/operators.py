"""The steps of a stream as plain values; one that is a function from a value to a value knows that function.

Steps that hold elements, over the whole stream, are in `spanning`. How steps work is in `workers`, `holding` and
`healing_step`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from floodmark.streams.workers import Worker

Function = Callable[..., object]
ValueFunction = Callable[[object], object]


class Nothing(Enum):
    """What a filter gives for a value that it takes out, and a sink for every value.

    An enumeration, since it stays the same object when steps that hold records are pickled from turn to turn.
    """

    NO_VALUE = "no value"


NO_VALUE = Nothing.NO_VALUE


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


class Operator:
    """A step, whatever it does."""

    spans_stream: ClassVar[bool] = False
    """Whether it takes the elements of all partitions in one order: it and what follows run in one place."""
    keeps: ClassVar[bool] = False
    """Whether it goes on holding elements, or what it knows of them, when a stream lets go what it holds."""
    remembers: ClassVar[bool] = False
    """Whether it knows something of elements that are long settled, which the next run has to know too."""
    heals: ClassVar[bool] = False
    """Whether records become done in it."""
    runs_in_driver: ClassVar[bool] = False
    """Whether it, and all that spans the stream, runs in the program that built the stream."""

    def function(self) -> ValueFunction | None:
        """What the step makes of a value; None for steps that hold, split or heal."""
        return None

    def user_call(self) -> Call | None:
        """The user's function in it, if there is one."""
        return None

    def own_worker(self, step: str) -> Worker | None:
        """How a step works that this package does not know; None for those that it does."""
        return None


@dataclass(frozen=True)
class Pass(Operator):
    """A step that only hands on: union, and `source`, where elements enter."""

    word: str

    def __str__(self) -> str:
        return self.word

    def function(self) -> ValueFunction:
        return lambda value: value


ENTRY = Pass("source")


@dataclass(frozen=True)
class Scatter(Operator):
    """What follows, up to gather, runs for several elements at the same time; `at_once` is what buffer says."""

    at_once: int

    def __str__(self) -> str:
        return "scatter"


@dataclass(frozen=True)
class Buffer(Pass):
    """Between scatter and gather: at most so many elements are under way; elsewhere it hands on."""

    word: str = "buffer"
    size: int = 1


@dataclass(frozen=True)
class Gather(Pass):
    """The end of what runs side by side."""

    word: str = "gather"


@dataclass(frozen=True)
class OrderedGather(Gather):
    """A gather behind a scatter with steps behind it that are not healing: they get the elements in their order."""

    spans_stream = True

    def function(self) -> None:  # type: ignore[override]  # not a function of a value alone: the order is its work
        return None


@dataclass(frozen=True)
class Port(Operator):
    """One of the inputs of a step that joins several: it says through which input an element comes."""

    number: int
    word: str

    def __str__(self) -> str:
        return f"{self.word} (input {self.number})"

    def function(self) -> ValueFunction:
        number = self.number
        return lambda value: PortValue(number, value)


@dataclass(frozen=True)
class PortValue:
    """An element's value, and the input that it came through."""

    number: int
    value: object


@dataclass(frozen=True)
class CallOperator(Operator):
    """A step that calls a user's function."""

    call: Call
    word: ClassVar[str]

    def __str__(self) -> str:
        return f"{self.word}({self.call})"

    def user_call(self) -> Call:
        return self.call


@dataclass(frozen=True)
class Map(CallOperator):
    """One element in, one out."""

    word = "map"

    def function(self) -> ValueFunction:
        return self.call if self.call.args or self.call.kwargs else self.call.func


@dataclass(frozen=True)
class Starmap(CallOperator):
    """As map, with the element's items as the first arguments."""

    word = "starmap"

    def function(self) -> ValueFunction:
        call = self.call
        return lambda value: call.func(*value, *call.args, **call.kwargs)  # type: ignore[misc]


@dataclass(frozen=True)
class Sink(CallOperator):
    """The end of a branch: the function is called for what it does."""

    word = "sink"

    def function(self) -> ValueFunction:
        return lambda value: (self.call(value), NO_VALUE)[1]


@dataclass(frozen=True)
class Pluck(Operator):
    """An item of the element, or a tuple of several."""

    pick: object

    def __str__(self) -> str:
        return f"pluck({self.pick!r})"

    def function(self) -> ValueFunction:
        pick = self.pick
        if isinstance(pick, list):
            return lambda value: tuple(value[each] for each in pick)  # type: ignore[index]
        return lambda value: value[pick]  # type: ignore[index]


@dataclass(frozen=True)
class Filter(Operator):
    """Hands on the elements for which the predicate is true; without a predicate, those that are true themselves."""

    call: Call | None

    def __str__(self) -> str:
        return f"filter({self.call})"

    def user_call(self) -> Call | None:
        return self.call

    def function(self) -> ValueFunction:
        predicate: ValueFunction = self.call or bool
        return lambda value: value if predicate(value) else NO_VALUE


@dataclass(frozen=True)
class Flatten(Operator):
    """Every item of an element on its own."""

    def __str__(self) -> str:
        return "flatten"


@dataclass(frozen=True)
class ForeachMap(CallOperator):
    """The function on every item of an element, one after the other; gives a tuple."""

    word = "foreach_map"


@dataclass(frozen=True)
class ForeachAsync(CallOperator):
    """The function or coroutine on every item of an element, at most `at_once` at a time; gives a tuple in order."""

    word = "foreach_async"
    at_once: int


@dataclass(frozen=True)
class ToKafka(Operator):
    """Writes each element to a topic and hands it on when the broker has it."""

    topic: str
    producer_params: Mapping[str, object] = field(repr=False)

    def __str__(self) -> str:
        return f"to_kafka({self.topic})"


@dataclass(frozen=True)
class Heal(Operator):
    """Where records become done: an element is a row, or rows; or a tuple of such, when given to a foreach step."""

    heals = True
    takes: Literal["row", "rows"]
    each: bool = False
    ignore: bool = False
    asynchronous: bool = False

    def __str__(self) -> str:
        return "healing" if self.takes == "row" else "healing_batch"

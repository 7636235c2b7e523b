"""The stream that users build: step after step; its elements are pushed by `emit` or come from Kafka."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

from floodmark.errors import ConfigError
from floodmark.streams import flow, operators
from floodmark.streams.gathering import AT_ONCE, GatheringSteps, size
from floodmark.streams.healing_step import as_healing
from floodmark.streams.operators import Call, Function
from floodmark.streams.picture import Picture

if TYPE_CHECKING:
    from floodmark.streams.kafka import KafkaStream


class Stream(GatheringSteps):
    """A source of elements, or a step behind one.

    >>> source = Stream()
    >>> source.map(lambda x: x + 1).sink(print)
    >>> source.emit(1)
    2
    """

    step_type: ClassVar[type[Stream]]
    """What the steps behind a stream are."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.node = flow.Node.entry(clock)
        self.source: Stream = self
        self.clock = clock

    def __repr__(self) -> str:
        return f"<{self.node.operator}>"

    def emit(self, x: object) -> None:
        """Send an element through what follows, at once and in this thread; what a step raises is raised here."""
        flow.push(self.node, x)

    def flush(self) -> None:
        """Emit what `partition` and `partition_time` still hold, and wait for what `to_kafka` has under way.

        >>> source = Stream()
        >>> source.partition(2).sink(print)
        >>> source.emit(1)
        >>> source.flush()
        (1,)
        """
        flow.flush(self.node)

    def map(self, func: Function, *args: object, **kwargs: object) -> Stream:
        """Apply a function to every element.

        >>> source = Stream()
        >>> source.map(lambda x, by: x * by, by=2).sink(print)
        >>> source.emit(21)
        42
        """
        call = Call(func, args, kwargs)
        return self._then(as_healing(call, self.source) or operators.Map(plain_call(call, "map")))

    def starmap(self, func: Function, *args: object, **kwargs: object) -> Stream:
        """Apply a function to every element, with the element's items as its first arguments.

        >>> source = Stream()
        >>> source.starmap(lambda a, b: a + b).sink(print)
        >>> source.emit((1, 2))
        3
        """
        return self._then(operators.Starmap(self._without_healing(Call(func, args, kwargs), "starmap")))

    def filter(self, predicate: Function | None, *args: object, **kwargs: object) -> Stream:
        """Hand on the elements for which the predicate is true; with None, those that are true themselves.

        >>> source = Stream()
        >>> source.filter(lambda x: x % 2 == 0).sink(print)
        >>> for i in range(4):
        ...     source.emit(i)
        0
        2
        """
        call = None if predicate is None else self._without_healing(Call(predicate, args, kwargs), "filter")
        return self._then(operators.Filter(call))

    def pluck(self, pick: object) -> Stream:
        """Hand on one item of every element; with a list, a tuple of several.

        >>> source = Stream()
        >>> source.pluck([0, 3]).sink(print)
        >>> source.emit([1, 2, 3, 4])
        (1, 4)
        """
        return self._then(operators.Pluck(pick))

    def flatten(self) -> Stream:
        """Hand on every item of an element on its own.

        >>> source = Stream()
        >>> source.flatten().sink(print)
        >>> for x in [[1, 2], [3]]:
        ...     source.emit(x)
        1
        2
        3
        """
        return self._then(operators.Flatten())

    def foreach_map(self, func: Function, *args: object, **kwargs: object) -> Stream:
        """Apply a function to every item of an element, one after the other; gives a tuple.

        >>> source = Stream()
        >>> source.foreach_map(lambda x: 2*x).sink(print)
        >>> for i in range(3):
        ...     source.emit((i, i))
        (0, 0)
        (2, 2)
        (4, 4)
        """
        call = Call(func, args, kwargs)
        return self._then(
            as_healing(call, self.source, each=True) or operators.ForeachMap(plain_call(call, "foreach_map"))
        )

    def foreach_async(self, func: Function, *args: object, at_once: int = AT_ONCE, **kwargs: object) -> Stream:
        """Apply a function or coroutine to the items of an element at the same time; gives a tuple, in their order.

        At most `at_once` calls are under way, so that a large batch does not overrun what they talk to.

        >>> source = Stream()
        >>> source.foreach_async(lambda x: 2*x).sink(print)
        >>> for i in range(3):
        ...     source.emit((i, i))
        (0, 0)
        (2, 2)
        (4, 4)
        """
        call = Call(func, args, kwargs)
        healer = as_healing(call, self.source, each=True)
        return self._then(healer or operators.ForeachAsync(call, size("foreach_async's at_once", at_once)))

    def sink(self, func: Function, *args: object, **kwargs: object) -> None:
        """Call a function with every element, for what it does."""
        call = Call(func, args, kwargs)
        self._then(as_healing(call, self.source) or operators.Sink(plain_call(call, "sink")))
        self.source.on_sink()

    def sink_to_list(self) -> list[object]:
        """A list that every element is appended to.

        >>> source = Stream()
        >>> seen = source.map(lambda x: 10 * x).sink_to_list()
        >>> source.emit(1)
        >>> seen
        [10]
        """
        seen: list[object] = []
        self.sink(seen.append)
        return seen

    def to_kafka(self, topic: str, producer_params: Mapping[str, object]) -> Stream:
        """Write each element (bytes or text; of a row, its value) to a topic; it goes on when the broker has it."""
        written = self._then(operators.ToKafka(topic, dict(producer_params)))
        self.source.on_sink()
        return written

    def require_exact(self, operator: operators.Operator, upstreams: Sequence[flow.Node]) -> None:
        """Called on the source before a step is added behind it: a stream that heals refuses what cannot be exact."""

    def on_sink(self) -> None:
        """Called on the source whenever a sink was added behind it; a stream that polls may begin."""

    @staticmethod
    def from_kafka(*args: Any, **kwargs: Any) -> KafkaStream:  # noqa: ANN401 (handed on as they are)
        """The same as `floodmark.streams.from_kafka`."""
        from floodmark.streams.kafka import from_kafka

        return from_kafka(*args, **kwargs)

    @staticmethod
    def from_kafka_batched(*args: Any, **kwargs: Any) -> KafkaStream:  # noqa: ANN401 (handed on as they are)
        """The same as `floodmark.streams.from_kafka_batched`."""
        from floodmark.streams.kafka import from_kafka_batched

        return from_kafka_batched(*args, **kwargs)

    def visualize(self, filename: str | PathLike[str] | None = None) -> Picture:
        """A picture of the whole stream, which a notebook draws; with a file name it is written there (.svg or .dot).

        >>> source = Stream()
        >>> source.map(str).sink(print)
        >>> print(source.visualize())
        digraph stream {
          rankdir=LR
          0 [label="source"]
          1 [label="map(str)"]
          2 [label="sink(print)"]
          0 -> 1
          1 -> 2
        }
        """
        picture = Picture.of(self.node)
        if filename is not None:
            picture.save(filename)
        return picture

    def _then(self, operator: operators.Operator, *others: flow.Node) -> Stream:
        self.source.require_exact(operator, (self.node, *others))
        step = self.step_type.__new__(self.step_type)
        step.source, step.clock = self.source, self.source.clock
        step.node = self.node.then(operator, *others, clock=step.clock)
        return step

    def _without_healing(self, call: Call, step: str) -> Call:
        if as_healing(call, self.source) is None:
            return plain_call(call, step)
        raise ConfigError(
            f"{call} cannot be given to {step}.", hint="give it to map, sink, foreach_map or foreach_async"
        )


def plain_call(call: Call, step: str) -> Call:
    """The call, if it is one of a plain function; looked at when the step is added, not when an element comes."""
    if inspect.iscoroutinefunction(call.func):
        raise ConfigError(
            f"{step} was given the coroutine {call}, which nothing would await.",
            hint="gather elements with partition(n) and use foreach_async",
        )
    if not callable(call.func):
        raise ConfigError(f"{step} needs a function, not {type(call.func).__name__}.", hint="pass a callable")
    return call


Stream.step_type = Stream

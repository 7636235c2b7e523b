"""The steps of a stream that look beyond one element: batches, windows, joined inputs, and what runs side by side."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.hwm.parsing import seconds_in
from floodmark.streams import operators, spanning
from floodmark.streams.operators import NO_VALUE, Call, Function

if TYPE_CHECKING:
    from floodmark.streams.flow import Node
    from floodmark.streams.stream import Stream

AT_ONCE = 32
"""How many calls a scatter or a foreach_async has under way, if nothing is said."""


class GatheringSteps:
    """What a stream offers beyond functions of one element. On Kafka all of them look at the whole stream."""

    node: Node

    @abstractmethod
    def _then(self, operator: operators.Operator, *others: Node) -> Stream:
        """The stream behind a new step."""

    def partition(self, n: int) -> Stream:
        """Gather tuples of n elements; `flush`, or the end of the stream, emits a shorter one.

        >>> source = Stream()
        >>> source.partition(3).sink(print)
        >>> for i in range(10):
        ...     source.emit(i)
        (0, 1, 2)
        (3, 4, 5)
        (6, 7, 8)
        """
        return self._then(spanning.Partition(size("partition", n)))

    def partition_time(self, seconds: float | str) -> Stream:
        """Gather tuples by time: one is emitted when an element, or a poll, comes that long after its first element.

        An element that comes once a second:

        >>> source = Stream()
        >>> source.partition_time(3).sink(print)
        >>> for i in range(10):
        ...     source.emit(i)
        (0, 1, 2)
        (3, 4, 5)
        (6, 7, 8)
        """
        return self._then(spanning.PartitionTime(seconds_in(seconds, field="partition_time")))

    def timed_window(self, interval_length: float | str) -> Stream:
        """Gather lists of what comes in the same interval of the clock; intervals without an element give nothing.

        >>> source = Stream()
        >>> source.timed_window(4).sink(print)
        >>> for i in range(10):
        ...     source.emit(i)
        [0, 1, 2, 3]
        [4, 5, 6, 7]
        """
        return self._then(spanning.TimedWindow(interval("timed_window", interval_length)))

    def sliding_window(self, n: int, return_partial: bool = True) -> Stream:
        """Emit the last n elements as a tuple for every element; shorter ones at the start too, if `return_partial`.

        >>> source = Stream()
        >>> source.sliding_window(3, return_partial=False).sink(print)
        >>> for i in range(5):
        ...     source.emit(i)
        (0, 1, 2)
        (1, 2, 3)
        (2, 3, 4)
        """
        return self._then(spanning.SlidingWindow(size("sliding_window", n), return_partial))

    def collect(self) -> Stream:
        """Hold every element until `flush`, or the end of the stream, emits them all as one tuple.

        >>> source = Stream()
        >>> source.collect().sink(print)
        >>> source.emit(1)
        >>> source.emit(2)
        >>> source.flush()
        (1, 2)
        """
        return self._then(spanning.Collect())

    def delay(self, interval_length: float | str) -> Stream:
        """Hand every element on that much later: with a later element, or a poll; `flush` waits for it."""
        return self._then(spanning.Delay(seconds_in(interval_length, field="delay")))

    def rate_limit(self, interval_length: float | str) -> Stream:
        """Hand on at most one element in an interval: each waits until the interval after the last one is over."""
        return self._then(spanning.RateLimit(seconds_in(interval_length, field="rate_limit")))

    def unique(self, maxsize: int | None = None, key: Function | None = None, hashable: bool = True) -> Stream:
        """Take out elements that came before, or whose key did; `maxsize` is how many are remembered.

        >>> source = Stream()
        >>> source.unique(maxsize=1).sink(print)
        >>> for x in [1, 1, 2, 2, 2, 1, 3]:
        ...     source.emit(x)
        1
        2
        1
        3
        """
        remembered = None if maxsize is None else size("unique", maxsize)
        return self._then(spanning.Unique(remembered, None if key is None else Call(key), hashable))

    def accumulate(
        self,
        func: Function,
        start: object = NO_VALUE,
        returns_state: bool = False,
        with_state: bool = False,
        **kwargs: object,
    ) -> Stream:
        """Apply a function to a state and every element; the state that it gives is kept, and emitted.

        With `returns_state` the function gives the state and what is emitted; with `with_state` both are emitted.

        >>> source = Stream()
        >>> source.accumulate(lambda total, x: total + x).sink(print)
        >>> for i in range(5):
        ...     source.emit(i)
        0
        1
        3
        6
        10
        """
        return self._then(spanning.Accumulate(Call(func, (), kwargs), start, returns_state, with_state))

    def union(self, *others: Stream) -> Stream:
        """Join streams: every element of any of them is handed on as it comes.

        >>> left, right = Stream(), Stream()
        >>> left.union(right).sink(print)
        >>> left.emit(1)
        1
        >>> right.emit(2)
        2
        """
        return self._then(operators.Pass("union"), *(other.node for other in others))

    def zip(self, *others: object) -> Stream:
        """Pair the first elements of all streams, then the second, and so on; what is no stream stands as it is.

        >>> left, right = Stream(), Stream()
        >>> left.zip(right, "constant").sink(print)
        >>> left.emit(1)
        >>> left.emit(2)
        >>> right.emit("a")
        (1, 'a', 'constant')
        """
        inputs = (self, *others)
        constants = {at: each for at, each in enumerate(inputs) if not isinstance(each, GatheringSteps)}
        return self._joined(spanning.Zip(len(inputs), constants), inputs)

    def zip_latest(self, *others: Stream) -> Stream:
        """Pair every element of this stream with the latest of the others; it waits until each of them has one.

        >>> orders, prices = Stream(), Stream()
        >>> orders.zip_latest(prices).sink(print)
        >>> orders.emit("o1")
        >>> prices.emit(5)
        ('o1', 5)
        >>> prices.emit(6)
        >>> orders.emit("o2")
        ('o2', 6)
        """
        inputs = (self, *others)
        return self._joined(spanning.ZipLatest(len(inputs)), inputs)

    def combine_latest(self, *others: Stream, emit_on: object = None) -> Stream:
        """Emit the latest of all streams whenever one of them, or of those in `emit_on`, gives an element.

        >>> left, right = Stream(), Stream()
        >>> left.combine_latest(right).sink(print)
        >>> left.emit(1)
        >>> right.emit("a")
        (1, 'a')
        >>> left.emit(2)
        (2, 'a')
        """
        inputs = (self, *others)
        if emit_on is None:
            return self._joined(spanning.CombineLatest(len(inputs)), inputs)
        chosen = emit_on if isinstance(emit_on, Sequence) else (emit_on,)
        places = tuple(each if isinstance(each, int) else place_of(each, inputs) for each in chosen)
        return self._joined(spanning.CombineLatest(len(inputs), {}, places), inputs)

    def scatter(self) -> Stream:
        """What follows, up to `gather`, runs for several records of a partition at the same time, on Spark's cores.

        At most 32 of them, or as many as `buffer(n)` says. What is pushed by `emit` runs one after the other.
        """
        return self._then(operators.Scatter(AT_ONCE))

    def buffer(self, n: int = 1) -> Stream:
        """Between `scatter` and `gather`: at most n elements are under way. Elsewhere it hands elements on."""
        return self._then(operators.Buffer(size=size("buffer", n)))

    def gather(self) -> Stream:
        """The end of what runs side by side: what follows gets the elements in their order again."""
        return self._then(operators.Gather())

    def _joined(self, operator: spanning.JoiningOperator, inputs: Sequence[object]) -> Stream:
        """The step behind one port for each of its inputs, so that it knows through which an element comes."""
        ports = [
            each._then(operators.Port(at, operator.word))
            for at, each in enumerate(inputs)
            if isinstance(each, GatheringSteps)
        ]
        first, *others = ports
        return first._then(operator, *(port.node for port in others))


def place_of(stream: object, inputs: Sequence[object]) -> int:
    """Which of the inputs a stream is."""
    for place, each in enumerate(inputs):
        if each is stream:
            return place
    raise ConfigError("emit_on names a stream that is not combined.", hint="one of those that are, or its number")


def size(step: str, n: int) -> int:
    """The number, if elements can be counted by it."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise ConfigError(f"{step} needs a whole number from 1 on, not {n!r}.", hint="such as 5")
    return n


def interval(step: str, length: float | str) -> float:
    """The seconds of an interval, if elements can be told apart by it."""
    seconds = seconds_in(length, field=step)
    if seconds <= 0:
        raise ConfigError(f"{step} needs an interval longer than nothing.", hint="seconds, or text like '500ms'")
    return seconds

"""The steps of a stream that take the elements of all its partitions in one order, as plain values.

How they work is in `holding`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from floodmark.streams.operators import NO_VALUE, Call, Operator


@dataclass(frozen=True)
class HoldingOperator(Operator):
    """A step that keeps elements for later, over the whole stream."""

    spans_stream = True
    word: ClassVar[str]

    def __str__(self) -> str:
        return self.word


@dataclass(frozen=True)
class Partition(HoldingOperator):
    """Tuples of n elements."""

    size: int

    def __str__(self) -> str:
        return f"partition({self.size})"


@dataclass(frozen=True)
class PartitionTime(HoldingOperator):
    """Tuples of what arrived within some seconds of the first of them."""

    seconds: float

    def __str__(self) -> str:
        return f"partition_time({self.seconds:g})"


@dataclass(frozen=True)
class TimedWindow(HoldingOperator):
    """Lists of what arrived in the same interval of the clock."""

    seconds: float

    def __str__(self) -> str:
        return f"timed_window({self.seconds:g})"


@dataclass(frozen=True)
class Delay(HoldingOperator):
    """Every element some seconds later."""

    seconds: float

    def __str__(self) -> str:
        return f"delay({self.seconds:g})"


@dataclass(frozen=True)
class RateLimit(HoldingOperator):
    """At most one element in an interval: it waits before it hands on."""

    seconds: float

    def __str__(self) -> str:
        return f"rate_limit({self.seconds:g})"


@dataclass(frozen=True)
class Collect(HoldingOperator):
    """All elements up to the next flush as one tuple."""

    word = "collect"


@dataclass(frozen=True)
class SlidingWindow(HoldingOperator):
    """Tuples of the last n elements, each element in up to n of them."""

    keeps = True
    size: int
    return_partial: bool

    def __str__(self) -> str:
        return f"sliding_window({self.size})"


@dataclass(frozen=True)
class JoiningOperator(HoldingOperator):
    """A step with several inputs, whose elements come as `PortValue`; constants stand in the place of an input."""

    keeps = True
    inputs: int
    constants: Mapping[int, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Zip(JoiningOperator):
    """The first elements of all inputs as a tuple, then the second, and so on."""

    word = "zip"


@dataclass(frozen=True)
class ZipLatest(JoiningOperator):
    """Every element of the first input, with the latest of the others."""

    word = "zip_latest"


@dataclass(frozen=True)
class CombineLatest(JoiningOperator):
    """The latest of every input, whenever one of `emit_on` gives an element."""

    word = "combine_latest"
    emit_on: tuple[int, ...] = ()


@dataclass(frozen=True)
class Unique(HoldingOperator):
    """The elements whose key was not among the last `maxsize` that were new."""

    keeps = remembers = True
    word = "unique"
    maxsize: int | None
    key: Call | None
    hashable: bool = True

    def user_call(self) -> Call | None:
        return self.key


@dataclass(frozen=True)
class Accumulate(HoldingOperator):
    """A state that every element changes; the state, or what the function says beside it, is handed on."""

    keeps = remembers = True
    call: Call
    start: object = NO_VALUE
    """Without one it begins with its first element."""
    returns_state: bool = False
    with_state: bool = False

    def __str__(self) -> str:
        return f"accumulate({self.call})"

    def user_call(self) -> Call:
        return self.call

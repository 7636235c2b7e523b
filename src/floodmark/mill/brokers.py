"""The contract of a broker: where the streams of a mill come from, and where its output goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar, runtime_checkable

from floodmark.errors import ConfigError
from floodmark.hwm import Span
from floodmark.mill.aliases import Stream, name_of
from floodmark.sinks.contract import Sink
from floodmark.sources.contract import Source

Place = TypeVar("Place")
PARTITION, OFFSET, VALUE = "partition", "offset", "value"
"""The columns of an inlet: which partition (int), where in it (bigint, rising), and one element as JSON text."""


@dataclass(frozen=True)
class Inlet:
    """A stream that comes in. Its source's rows have the columns partition, offset and value.

    A source that is not ordered (a table) is taken in the order of its keys, and an offset is only a stable tie-break.
    `ends` with_source: what a look finds is all there will ever be. `ends` by_message: a partition ends at
    `{"eos__": true}`, or the stream when nothing came for `data_timeout_seconds`. After `poll_timeout_seconds` without
    a new element a window is asked again whether it is over.
    """

    source: Source
    ends: Literal["with_source", "by_message"] = "by_message"
    data_timeout_seconds: float | None = None
    poll_timeout_seconds: float | None = None
    is_ordered: bool = True


@dataclass(frozen=True)
class Outlet:
    """Where output goes. A sink of form json gets one column, value, with an element's JSON text; else its fields.

    `publish` is called when the stream has ended and everything is committed, and again if a crash came between: a
    second call changes nothing.
    """

    sink: Sink
    form: Literal["json", "columns"] = "json"
    publish: Callable[[], None] | None = None


@runtime_checkable
class Cuttable(Protocol):
    """A source of which part of a span can be read, and part passed; of any other a mark passes whole spans."""

    def lanes(self, span: Span) -> Mapping[int, tuple[int, int]]:
        """The first and the next-to-come offset that the span reads in every partition, equal in an empty one."""

    def cut(self, span: Span, *, reads: Mapping[int, int], passes: Mapping[int, int]) -> Span:
        """The span that reads each partition below `reads` and leaves the mark at `passes`, the first still needed."""


class MessageBroker(Protocol):
    """Knows streams by the class, or the alias, of their elements."""

    def inlet(self, stream: Stream) -> Inlet:
        """Called once per node of the join tree, when the mill is made; the source is named as the stream.

        Raises ConfigError if there is no such stream.
        """

    def outlet(self, stream: Stream) -> Outlet:
        """Called once, when the mill is made, if its function returns something.

        Raises ConfigError if there is no such stream.
        """


def place_of(places: Mapping[Stream, Place], stream: Stream, *, broker: str) -> Place:
    """What a broker was told about a stream; raises ConfigError if it was told nothing."""
    if stream in places:
        return places[stream]
    known = ", ".join(sorted(map(name_of, places))) or "none"
    raise ConfigError(
        f"{broker} has no place for {name_of(stream)}.", hint=f"add it to its mapping; the streams there are: {known}"
    )

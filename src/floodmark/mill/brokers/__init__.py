"""The contract of a broker: where the streams of a mill come from, and where its output goes.

Also the broker of streams in anything that Floodmark reads and writes, by its sources and sinks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from floodmark.errors import ConfigError
from floodmark.hwm import HWM, Span
from floodmark.mill.join_tree import Stream, name_of
from floodmark.sinks.contract import Sink
from floodmark.sources.contract import Reading, Request, Session, Sight, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Address = TypeVar("Address")
PARTITION, OFFSET, VALUE = "partition", "offset", "value"
"""The columns of an inlet: which partition (int), where in it (bigint, rising), and one element as JSON text."""


@dataclass(frozen=True)
class Inlet:
    """A stream that comes in. Its source's rows have the columns partition, offset and value.

    A source that is not ordered (a table) is taken in the order of its keys, and an offset is only a stable tie-break.
    `ends="with_source"`: what a look finds is all there will ever be. `ends="by_message"`: a partition ends at
    `{"eos__": true}`, or the stream when nothing came for `data_timeout_seconds`. After `poll_timeout_seconds` without
    a new element a window is asked again whether it is over.

    >>> Inlet(fm.sources.Kafka("localhost:9092", "orders"), data_timeout_seconds=20).ends
    'by_message'
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

    >>> Outlet(fm.sinks.Kafka("localhost:9092", topic="shipped"), form="columns").sink.describe()
    'kafka topic shipped at localhost:9092'
    """

    sink: Sink
    form: Literal["json", "columns"] = "json"
    publish: Callable[[], None] | None = None


@runtime_checkable
class Cuttable(Protocol):
    """A source of which part of a span can be read, and part passed; of any other a mark passes whole spans."""

    def offsets(self, span: Span) -> Mapping[int, tuple[int, int]]:
        """The first and the next-to-come offset that the span reads in every partition, equal in an empty one."""

    def cut(self, span: Span, *, reads: Mapping[int, int], passes: Mapping[int, int]) -> Span:
        """The span that reads each partition below `reads` and leaves the mark at `passes`, the first still needed."""


Message: TypeAlias = "tuple[int, int, str | None]"
"""Partition, offset and text of one element."""


class Arrivals(Protocol):
    """The elements of a stream as they arrive, for a driver that looks at each of them."""

    def next_after(self, offsets: Mapping[int, int], seconds: float) -> Iterable[Message]:
        """What stands at or behind these offsets, by partition: at once if there is anything, else what comes in time.

        Offsets that rise with what was given mean to go on; others mean to go there.
        """

    def close(self) -> None:
        """Called when nobody waits any more."""


@runtime_checkable
class Followable(Protocol):
    """A source that tells of its elements the moment they are there, without a Spark job."""

    def follow(self) -> Arrivals: ...


class MessageBroker(Protocol):
    """Knows streams by the class, or the alias, of their elements.

    >>> def mill_over(broker: MessageBroker) -> WaterMill:
    ...     return WaterMill(broker, ship, Order, name="ship")
    >>> mill_over(fm.mill.JsonFileMessageBroker({Order: "orders.json", Shipment: "shipments.json"})).name
    'ship'
    """

    def inlet(self, stream: Stream) -> Inlet:
        """Called once per node of the join tree, when the mill is made; the source is named as the stream.

        Raises ConfigError if there is no such stream.
        """

    def outlet(self, stream: Stream) -> Outlet:
        """Called once, when the mill is made, if its function returns something.

        Raises ConfigError if there is no such stream.
        """


def address_of(stream: Stream, addresses: Mapping[Stream, Address], *, broker: str) -> Address:
    """Where a broker finds a stream; raises ConfigError if it was not given that."""
    if stream in addresses:
        return addresses[stream]
    known = ", ".join(sorted(map(name_of, addresses))) or "none"
    raise ConfigError(
        f"{broker} has no place for {name_of(stream)}.", hint=f"add it to its mapping; the streams there are: {known}"
    )


EXACT_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}
"""Spark's own format for JSON would cut a time off at its milliseconds."""


@dataclass(frozen=True)
class SourceMessageBroker:
    """Any source as a stream, by the class of its elements, and any sink as output.

    Columns are fields. Rows of a table come in the order of their keys. `ends="with_source"`: a run is over when
    everything that its look found is joined. `ends="never"`: there may be more, so only what is final is joined.

    >>> broker = SourceMessageBroker(
    ...     {Order: fm.sources.Delta("silver/orders")}, {Shipment: fm.sinks.Delta("gold/shipments")}
    ... )
    >>> WaterMill(broker, ship, Order, name="ship").name
    'ship'
    """

    sources: Mapping[Stream, Source]
    sinks: Mapping[Stream, Sink] = field(default_factory=dict)
    ends: Literal["with_source", "never"] = "with_source"

    def __post_init__(self) -> None:
        if self.ends not in ("with_source", "never"):
            raise ConfigError(f"ends={self.ends!r} is not known.", hint="one of: with_source, never")

    def inlet(self, stream: Stream) -> Inlet:
        source = address_of(stream, self.sources, broker="SourceMessageBroker")
        ends: Literal["with_source", "by_message"] = "with_source" if self.ends == "with_source" else "by_message"
        return Inlet(RowsAsElements(source, name_of(stream)), ends=ends, is_ordered=False)

    def outlet(self, stream: Stream) -> Outlet:
        return Outlet(address_of(stream, self.sinks, broker="SourceMessageBroker"), form="columns")


@dataclass(frozen=True)
class RowsAsElements:
    """The rows of a source as elements: each a JSON object of its columns."""

    source: Source
    name: str

    def fingerprint(self, session: Session) -> str:
        return self.source.fingerprint(session)

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        return self.source.look(mark, request, session)

    def read(self, spark: SparkSession, span: Span) -> Reading:
        """The rows as partition, offset and value. Raises ConfigError for a source that would leave some out."""
        reading = self.source.read(spark, span)
        if reading.reason is not None:
            raise ConfigError(
                f"the source of {self.name} puts malformed records aside, which a join would miss.",
                hint="give it malformed='fail'",
            )
        return Reading(elements_of(reading.rows.drop(*reading.hidden)))


def elements_of(rows: DataFrame) -> DataFrame:
    """An offset that is the same whenever, and in whatever order, the row is read."""
    from pyspark.sql import functions as F

    from floodmark.locations import quote

    text = F.to_json(F.struct(*map(quote, rows.columns)), EXACT_TIMES)
    values = rows.select(text.alias(VALUE))
    offset = F.xxhash64(VALUE).bitwiseAND(F.lit(2**63 - 1))
    return values.select(F.lit(0).alias(PARTITION), offset.alias(OFFSET), VALUE)

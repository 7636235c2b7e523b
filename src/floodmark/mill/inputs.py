"""The streams of a mill as sources of its step: elements with their keys, from where the last turn stopped.

Also here: what a span says about its turn, and the cache that spares the turn a second reading of what its look read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from floodmark.hwm import HWM, Json, Span, deserialize
from floodmark.mill.brokers import OFFSET, PARTITION, VALUE, Cuttable, Inlet, MessageBroker
from floodmark.mill.codec import Codec
from floodmark.mill.declaration import Declaration
from floodmark.mill.horizon import EVERYTHING, NOTHING, Level, level_from_json, level_to_json
from floodmark.mill.join_tree import MARKER, name_of
from floodmark.mill.keys import Key, with_keys
from floodmark.mill.windows import OffsetRanges, with_run_numbers, with_window_numbers
from floodmark.sources.contract import Reading, Request, Session, Sight
from floodmark.spark.faults import element_fault

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


IS_END = "_fm_is_end"
DETAIL, READ_UPTO = "mill", "mill_reads_upto"
WORTH_CACHING = 20_000
"""Fewer messages are read a second time sooner than they are put into Spark's storage."""


@dataclass(frozen=True)
class StreamInput:
    """One stream with its keys: key 0 orders it, key 1 + i is what its i-th branch is joined by."""

    inlet: Inlet
    codec: Codec
    keys: tuple[Key, ...]

    @property
    def name(self) -> str:
        return self.inlet.source.name

    @property
    def keys_by_column(self) -> dict[str, Key]:
        return {f"k{place}": key for place, key in enumerate(self.keys)}

    @property
    def key_types(self) -> tuple[str, ...]:
        return tuple(key.spark_type for key in self.keys)

    @property
    def expressions(self) -> tuple[str, ...]:
        """What the keys are, as a record names them."""
        return tuple(key.expression.fingerprint() for key in self.keys)

    @property
    def has_end_messages(self) -> bool:
        return self.inlet.ends == "by_message"

    def fingerprint(self, session: Session) -> str:
        """A mark says nothing about a stream whose keys are others now, so they are part of what it is."""
        keys = ", ".join(dict.fromkeys(self.expressions))
        source = self.inlet.source.fingerprint(session)
        return f"{source} by {keys}" if keys else source

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        """A source that is all there will ever be is read whole: half of it would be taken for its end."""
        whole = request if self.has_end_messages else replace(request, max_rows=None)
        return self.inlet.source.look(mark, whole, session)

    def read(self, spark: SparkSession, span: Span) -> Reading:
        """The elements of a turn, in columns partition, offset, value and k0, k1 and so on.

        The look has met a key in each of them. Where one has none now, a function of the user's gives another answer
        than before, and the turn fails: an element without a key would be in no join and in no window.
        """
        functions = [name for name, key in self.keys_by_column.items() if key.calls_a_function]
        if functions:
            return Reading(self.elements(self._with_keys_still(self.keyed_messages(spark, span), functions), span))
        rows = self.inlet.source.read(spark, as_looked_at(span)).rows
        return Reading(self.elements(with_keys(rows, self.codec, self.keys_by_column), span))

    def _with_keys_still(self, messages: DataFrame, functions: Sequence[str]) -> DataFrame:
        """The messages; one that is no end and has lost a key made by a function stops the job."""
        from pyspark.sql import functions as F

        lost = reduce(or_, (F.col(name).isNull() for name in functions)) & ~F.col(IS_END)
        fault = element_fault(self.name, "the key that it had is gone", PARTITION, OFFSET)
        return messages.where(F.when(lost, fault).isNull())

    def elements(self, messages: DataFrame, span: Span) -> DataFrame:
        """Of messages with their keys, what the turn takes."""
        rows, turn = messages.select(PARTITION, OFFSET, VALUE, *self.keys_by_column), TurnDetail.of(span)
        if turn.windows is not None:
            return with_window_numbers(rows.drop("k0"), turn.windows)
        if not self.keys:
            return rows
        return with_run_numbers(rows) if turn.is_in_runs else between(rows, *turn.levels)

    def no_elements(self, spark: SparkSession) -> DataFrame:
        """The columns of `read`, and no rows."""
        keys = [f"{name} {key.spark_type}" for name, key in self.keys_by_column.items()]
        return spark.createDataFrame([], ", ".join([f"{PARTITION} int, {OFFSET} bigint, {VALUE} string", *keys]))

    def messages(self, spark: SparkSession, span: Span) -> DataFrame:
        """Every message of a span, with whether it is an end."""
        from pyspark.sql import functions as F

        rows = self.inlet.source.read(spark, as_looked_at(span)).rows
        return rows.withColumn(IS_END, is_end() if self.has_end_messages else F.lit(False))

    def keyed_messages(self, spark: SparkSession, span: Span) -> DataFrame:
        """The same with their keys; an end has none."""
        return with_keys(self.messages(spark, span), self.codec, self.keys_by_column)

    def offsets(self, span: Span) -> OffsetRanges:
        """What the span reads; nothing of a source that cannot say it."""
        source = self.inlet.source
        return dict(source.offsets(span)) if isinstance(source, Cuttable) else {}


def stream_inputs(declaration: Declaration, broker: MessageBroker) -> dict[str, StreamInput]:
    """Every stream of the tree, by its name."""
    return {
        name_of(stream): StreamInput(broker.inlet(stream), declaration.codecs[stream], declaration.keys_of(stream))
        for stream in declaration.tree.nodes
    }


def with_mark_kept(span: Span) -> Span:
    """The span that is read as it is, and leaves the mark where it was: of a source that cannot be cut."""
    kept = span.after or span.upto.reset()
    return replace(span, upto=kept, detail={**span.detail, READ_UPTO: as_looked_at(span).upto.serialize()})


def as_looked_at(span: Span) -> Span:
    """The span as its source made it: some read as far as its end says, which may be where the mark was kept."""
    stored: Any = span.detail.get(READ_UPTO)
    return span if stored is None else replace(span, upto=deserialize(stored))


@dataclass(frozen=True)
class TurnDetail:
    """What a span says about its turn, in the part of its detail that is ours.

    `elements`: how many are read. Only with the master: from which level of keys to which, whether windows are runs of
    neighbours, whose keys need no order, and the windows that are given out where a function decided them, each a list
    of (partition, first offset, next).
    """

    elements: int = 0
    after: Level | None = None
    until: Level | None = None
    is_in_runs: bool = False
    windows: list[Any] | None = None

    @property
    def levels(self) -> tuple[Level, Level]:
        return self.after or NOTHING, self.until or EVERYTHING

    def added_to(self, span: Span) -> Span:
        own: dict[str, Json] = {"elements": self.elements}
        own |= {"after": level_to_json(self.after)} if self.after is not None else {}
        own |= {"until": level_to_json(self.until)} if self.until is not None else {}
        own |= {"runs": True} if self.is_in_runs else {}
        own |= {"windows": self.windows} if self.windows is not None else {}
        return replace(span, detail={**span.detail, DETAIL: own})

    @classmethod
    def of(cls, span: Span) -> TurnDetail:
        """Nothing but the defaults for a span of which no turn was planned."""
        own: Any = span.detail.get(DETAIL) or {}
        after, until = (level_from_json(own[name]) if name in own else None for name in ("after", "until"))
        return cls(own.get("elements", 0), after, until, "runs" in own, own.get("windows"))


@dataclass(frozen=True)
class CachedMessages:
    """Messages of a stream with their keys, in Spark's own storage."""

    offsets: OffsetRanges
    rows: DataFrame

    def covers(self, offsets: OffsetRanges) -> bool:
        """Whether all of these are among them."""
        known = {partition: self.offsets.get(partition, (0, 0)) for partition in offsets}
        return all(known[each][0] <= first and upto <= known[each][1] for each, (first, upto) in offsets.items())


@dataclass
class MessageCache:
    """By stream, what the last look has read. Whoever does not find something here reads it again.

    Storage of this Spark session: a look that fills it writes nothing that outlives the process.
    """

    by_stream: dict[str, CachedMessages] = field(default_factory=dict)

    def add(self, stream: StreamInput, span: Span, rows: DataFrame) -> DataFrame:
        """The messages of a span with their keys, cached as they are read if there are many."""
        offsets = stream.offsets(span)
        if sum(upto - first for first, upto in offsets.values()) >= WORTH_CACHING:
            self.remove(stream.name)
            self.by_stream[stream.name] = CachedMessages(offsets, rows.persist())
        return rows

    def elements(self, stream: StreamInput, spark: SparkSession, span: Span) -> DataFrame:
        """The elements of a turn, as the stream reads them."""
        cached, offsets = self.by_stream.get(stream.name), stream.offsets(span)
        if cached is None or not cached.covers(offsets):
            return stream.read(spark, span).rows
        return stream.elements(cached.rows.where(is_within(offsets)), span)

    def remove(self, name: str) -> None:
        """Give back the room of one stream."""
        cached = self.by_stream.pop(name, None)
        if cached is not None:
            cached.rows.unpersist()

    def clear(self) -> None:
        """Give back all room."""
        for name in [*self.by_stream]:
            self.remove(name)


def is_end() -> Column:
    """Whether a message is the end of its partition; cheap for those that do not even hold the word."""
    from pyspark.sql import functions as F

    says_so = F.get_json_object(VALUE, f"$.{MARKER}") == "true"
    return F.coalesce(F.col(VALUE).contains(MARKER) & says_so, F.lit(False))


def is_within(offsets: Mapping[int, tuple[int, int]]) -> Column:
    """Whether a message stands in one of the ranges."""
    from pyspark.sql import functions as F

    own = [
        (F.col(PARTITION) == partition) & (F.col(OFFSET) >= first) & (F.col(OFFSET) < upto)
        for partition, (first, upto) in offsets.items()
    ]
    return reduce(or_, own, F.lit(False))


def between(rows: DataFrame, after: Level, until: Level) -> DataFrame:
    """The elements that stand at or above one level and below another."""
    above = rows if after == NOTHING else rows.where(~is_below(after))
    return above if until == EVERYTHING else above.where(is_below(until))


def is_below(level: Level) -> Column:
    """(key, partition, offset) against a level of as many parts as it has."""
    from pyspark.sql import functions as F

    if level in (NOTHING, EVERYTHING):
        return F.lit(level == EVERYTHING)
    columns = [F.col("k0"), F.col(PARTITION).cast("bigint"), F.col(OFFSET)]
    below = F.lit(False)
    for column, bound in reversed(list(zip(columns, level[1:], strict=False))):
        below = (column < F.lit(bound)) | ((column == F.lit(bound)) & below)
    return below

"""What a look has read of the streams stays at hand for the turn that follows: a message is fetched and parsed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from floodmark.hwm import HWM, Json, Span
from floodmark.mill.brokers import OFFSET, PARTITION, VALUE, Cuttable, Inlet, MessageBroker
from floodmark.mill.codec import Codec
from floodmark.mill.columns import (
    IS_END,
    between,
    is_end,
    is_plain,
    numbered_runs,
    with_plain_keys,
    with_python_keys,
    with_window_numbers,
)
from floodmark.mill.declaration import Declaration
from floodmark.mill.horizon import EVERYTHING, NOTHING, Branch, Level, Node, level_from_json
from floodmark.mill.join_tree import Stream, name_of
from floodmark.mill.keys import Key, key_schema
from floodmark.mill.timed import Ranges, numbers_by_lane
from floodmark.sources.contract import Reading, Request, Session, Sight

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


# A node of the join tree as a source of the step: its elements with their keys, from where the last turn stopped.
DETAIL = "mill"
"""The part of a span's detail that is ours: from which level of keys to which, and how many elements that are."""


@dataclass(frozen=True)
class Feed:
    """One stream with its keys: key 0 orders it, key 1 + i is what its i-th branch is joined by."""

    inlet: Inlet
    codec: Codec
    keys: tuple[Key, ...]

    @property
    def name(self) -> str:
        return self.inlet.source.name

    @property
    def key_names(self) -> list[str]:
        return [f"k{place}" for place in range(len(self.keys))]

    @property
    def key_types(self) -> tuple[str, ...]:
        return tuple(key.spark_type for key in self.keys)

    @property
    def plain_keys(self) -> dict[str, Key]:
        """All keys by their columns, if each of them is a field as it stands; else none."""
        return dict(zip(self.key_names, self.keys, strict=True)) if all(map(is_plain, self.keys)) else {}

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
        asked = request if self.has_end_messages else replace(request, max_rows=None)
        return self.inlet.source.look(mark, asked, session)

    def read(self, spark: SparkSession, span: Span) -> Reading:
        """The elements of a turn, in columns partition, offset, value and k0, k1 and so on."""
        rows = self.inlet.source.read(spark, span).rows
        return Reading(self.taken(self.with_keys(rows), span))

    def taken(self, rows: DataFrame, span: Span) -> DataFrame:
        """Of messages with their keys, what the turn takes."""
        elements = rows.select(PARTITION, OFFSET, VALUE, *self.key_names)
        windows = windows_in(span)
        if windows is not None:
            return with_window_numbers(elements.drop("k0"), numbers_by_lane(windows))
        if not self.keys:
            return elements
        return numbered_runs(elements) if is_in_runs(span) else between(elements, *levels_in(span))

    def nothing(self, spark: SparkSession) -> DataFrame:
        """The columns of `read`, and no rows."""
        keys = [f"k{place} {key.spark_type}" for place, key in enumerate(self.keys)]
        return spark.createDataFrame([], ", ".join([f"{PARTITION} int, {OFFSET} bigint, {VALUE} string", *keys]))

    def scan(self, keyed: DataFrame) -> DataFrame:
        """What a turn is planned by: partition, offset, whether it is an end, the keys; the text where one is null."""
        from pyspark.sql import functions as F

        missing = [F.col(name).isNull() for name in self.key_names]
        bad = F.greatest(F.lit(False), *missing) & ~F.col(IS_END) if missing else F.lit(False)
        rows = keyed.select(PARTITION, OFFSET, IS_END, *self.key_names, F.when(bad, F.col(VALUE)).alias(VALUE))
        return rows if self.inlet.is_ordered or not self.keys else rows.orderBy(*self.key_names)

    def keyed(self, spark: SparkSession, span: Span) -> DataFrame:
        """Every message of a span, with its keys and whether it is an end."""
        return self.with_keys(self.messages(spark, span))

    def messages(self, spark: SparkSession, span: Span) -> DataFrame:
        """Every message of a span, with whether it is an end."""
        from pyspark.sql import functions as F

        rows = self.inlet.source.read(spark, span).rows
        return rows.withColumn(IS_END, is_end() if self.has_end_messages else F.lit(False))

    def with_keys(self, rows: DataFrame) -> DataFrame:
        """The rows and a column for every key: Spark's own where it can, by Python beside the data, or sooner there."""
        if self.plain_keys:
            return with_plain_keys(rows, self.codec, self.plain_keys)
        keys = dict(zip(self.key_names, self.keys, strict=True))
        compiled = {name: key for name, key in keys.items() if key.compiled}
        computed = {name: key for name, key in keys.items() if not key.compiled}
        known = with_compiled_keys(rows, self.codec, compiled) if compiled else rows
        return with_python_keys(known, self.codec, computed) if computed else known


def with_compiled_keys(rows: DataFrame, codec: Codec, keys: Mapping[str, Key]) -> DataFrame:
    """The rows with keys that Spark tells as Python would."""
    from pyspark.sql import functions as F

    parsed = rows.withColumn("_fm_element", F.from_json(VALUE, key_schema(codec, list(keys.values()))))
    columns = {name: key.column(F.col("_fm_element")) for name, key in keys.items()}
    return parsed.withColumns(columns).drop("_fm_element")


def part_of(span: Span, name: str) -> Json:
    """One of our own entries in the detail of a span."""
    stored = span.detail.get(DETAIL)
    return stored.get(name) if isinstance(stored, dict) else None


def levels_in(span: Span) -> tuple[Level, Level]:
    """From where to where a turn reads, as its intent has it."""
    after, until = part_of(span, "after"), part_of(span, "until")
    return (
        level_from_json(after) if after is not None else NOTHING,
        level_from_json(until) if until is not None else EVERYTHING,
    )


def windows_in(span: Span) -> list[Any] | None:
    """The windows that a turn gives out, where a function told them: lists of (partition, first offset, next)."""
    stored = part_of(span, "windows")
    return stored if isinstance(stored, list) else None


def is_in_runs(span: Span) -> bool:
    """Whether windows are runs of neighbours, whose keys need no order."""
    return part_of(span, "runs") is True


def elements_in(span: Span) -> int:
    """How many elements of a stream a turn reads."""
    return int(str(part_of(span, "elements") or 0))


# The join tree in the words of those who work with it: as feeds that are read, and as nodes of the horizon.
def feeds_of(declared: Declaration, broker: MessageBroker) -> dict[str, Feed]:
    """Every node of the tree with its keys: first the one that orders it, then one for each edge that leaves it."""
    feeds = {}
    for stream in declared.tree.nodes:
        leaving = [declared.keys[edge][0] for edge in declared.tree.edges_from(stream)]
        own = [declared.keys[edge][1] for edge in declared.tree.edges if edge.right == stream]
        has_window = stream == declared.tree.root and not declared.tree.has_told_windows
        window = [declared.window_key] if has_window and declared.window_key is not None else []
        keys = (*(own or window or leaving[:1]), *leaving)
        feeds[name_of(stream)] = Feed(broker.inlet(stream), declared.codecs[stream], keys)
    return feeds


def node_of(declared: Declaration, stream: Stream) -> Node:
    """The tree in the words of the horizon."""
    tree = declared.tree
    own = [edge.right_expression for edge in tree.edges if edge.right == stream]
    leaving = tree.edges_from(stream)
    has_window = tree.window is not None and stream == tree.root and not declared.tree.has_told_windows
    window = [tree.window] if has_window else []
    first = next(iter([*own, *window, *(edge.left_expression for edge in leaving)]), None)
    branches = [
        Branch(
            node_of(declared, edge.right),
            is_inner=edge.how == "inner",
            shares_key=first is not None and first.fingerprint() == edge.left_expression.fingerprint(),
        )
        for edge in leaving
    ]
    return Node(name_of(stream), tuple(branches))


MANY = 20_000
"""Fewer messages are read a second time sooner than they are put aside."""


@dataclass(frozen=True)
class Kept:
    """Messages of a stream with their keys, in Spark's own storage."""

    lanes: Ranges
    rows: DataFrame

    def holds(self, lanes: Ranges) -> bool:
        """Whether all of these offsets are among them."""
        known = {lane: self.lanes.get(lane, (0, 0)) for lane in lanes}
        return all(known[lane][0] <= first and upto <= known[lane][1] for lane, (first, upto) in lanes.items())


@dataclass
class Shelf:
    """By stream, what the last look has read. Whoever does not find something here reads it again."""

    kept: dict[str, Kept] = field(default_factory=dict)

    def keep(self, feed: Feed, span: Span, rows: DataFrame) -> DataFrame:
        """The messages of a span with their keys, put aside as they are read if there are many."""
        lanes = lanes_of(feed, span)
        if sum(upto - first for first, upto in lanes.values()) >= MANY:
            self.kept[feed.name] = Kept(lanes, rows.persist())
        return rows

    def elements(self, feed: Feed, spark: SparkSession, span: Span) -> DataFrame:
        """The elements of a turn, as the feed reads them."""
        kept, lanes = self.kept.get(feed.name), lanes_of(feed, span)
        if kept is None or not kept.holds(lanes):
            return feed.read(spark, span).rows
        return feed.taken(kept.rows.where(is_within(lanes)), span)

    def clear(self) -> None:
        """Give back the room."""
        for each in self.kept.values():
            each.rows.unpersist()
        self.kept.clear()


def lanes_of(feed: Feed, span: Span) -> Ranges:
    """What the span reads; nothing of a source that cannot say it, which is never kept."""
    source = feed.inlet.source
    return dict(source.lanes(span)) if isinstance(source, Cuttable) else {}


def is_within(lanes: Ranges) -> Column:
    """Whether a message stands in one of the lanes."""
    from pyspark.sql import functions as F

    own = [
        (F.col(PARTITION) == lane) & (F.col(OFFSET) >= first) & (F.col(OFFSET) < upto)
        for lane, (first, upto) in lanes.items()
    ]
    return reduce(or_, own, F.lit(False))

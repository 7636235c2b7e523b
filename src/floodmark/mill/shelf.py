"""What a look has read of the streams stays at hand for the turn that follows: a message is fetched and parsed once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from floodmark.hwm import Span
from floodmark.mill.brokers import OFFSET, PARTITION, Cuttable
from floodmark.mill.feeds import Feed
from floodmark.mill.timed import Ranges

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

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

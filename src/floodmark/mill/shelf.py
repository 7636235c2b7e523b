"""What a look has read of the streams stays at hand for the turn that follows: a message is fetched and parsed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, TypeAlias

from floodmark.hwm import Span
from floodmark.mill.brokers import OFFSET, PARTITION, Cuttable
from floodmark.mill.feeds import Feed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MANY = 20_000
"""Fewer messages are read a second time sooner than they are put aside."""
Lanes: TypeAlias = "Mapping[int, tuple[int, int]]"
"""By partition, the first offset and the one behind the last."""


@dataclass(frozen=True)
class Kept:
    """Messages of a stream with their keys, in Spark's own storage."""

    lanes: Lanes
    rows: DataFrame

    def holds(self, lanes: Lanes) -> bool:
        """Whether all of these offsets are among them."""
        known = {lane: self.lanes.get(lane, (0, 0)) for lane in lanes}
        return all(known[lane][0] <= first and upto <= known[lane][1] for lane, (first, upto) in lanes.items())


@dataclass
class Shelf:
    """By stream, what the last look has read. Whoever does not find something here reads it again."""

    kept: dict[str, Kept] = field(default_factory=dict)

    def keyed(self, feed: Feed, spark: SparkSession, span: Span) -> DataFrame:
        """Every message of a span with its keys and whether it is an end, kept if there are many."""
        rows, source = feed.keyed(spark, span), feed.inlet.source
        lanes = source.lanes(span) if isinstance(source, Cuttable) else {}
        if sum(upto - first for first, upto in lanes.values()) >= MANY:
            self.kept[feed.name] = Kept(lanes, rows.persist())
        return rows

    def elements(self, feed: Feed, spark: SparkSession, span: Span) -> DataFrame:
        """The elements of a turn, as the feed reads them."""
        kept, source = self.kept.get(feed.name), feed.inlet.source
        lanes = dict(source.lanes(span)) if isinstance(source, Cuttable) else {}
        if kept is None or not kept.holds(lanes):
            return feed.read(spark, span).rows
        return feed.taken(kept.rows.where(is_within(lanes)), span)

    def clear(self) -> None:
        """Give back the room."""
        for each in self.kept.values():
            each.rows.unpersist()
        self.kept.clear()


def is_within(lanes: Lanes) -> Column:
    """Whether a message stands in one of the lanes."""
    from pyspark.sql import functions as F

    own = [
        (F.col(PARTITION) == lane) & (F.col(OFFSET) >= first) & (F.col(OFFSET) < upto)
        for lane, (first, upto) in lanes.items()
    ]
    return reduce(or_, own, F.lit(False))

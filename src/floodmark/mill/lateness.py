"""Elements that come too late: the partition that brings them was not waited for, and what they belong to is gone."""

from __future__ import annotations

from functools import reduce
from operator import or_

from floodmark.mill.brokers import OFFSET, PARTITION
from floodmark.mill.element_columns import is_below
from floodmark.mill.horizon import EVERYTHING, NOTHING, Lanes, Level, Node, Seen, lowest, past
from floodmark.mill.stretches import Stretch
from floodmark.sources.contract import Session


def promised(root: Node, seen: Seen) -> dict[str, Level]:
    """By joined stream: the level, in its key 0, below which elements were given out without waiting for partners."""
    levels: dict[str, Level] = {}
    for place, branch in enumerate(root.branches, start=1):
        lefts, rights = seen[root.name], seen[branch.node.name]
        level = min(lowest(lefts, place), lowest(rights, 0))
        levels[branch.node.name] = _highest(lefts, place) if level == EVERYTHING else level
        levels |= promised(branch.node, seen)
    return levels


def _highest(lanes: Lanes, key: int) -> Level:
    return max((past(lane.last[key]) for lane in lanes.values() if lane.last), default=NOTHING)


def late_lanes(stretch: Stretch, lanes: Lanes) -> list[int]:
    """Partitions in which new elements may stand below what was promised; a stream without idle ones has none."""
    floor = stretch.floor
    return [number for number, lane in lanes.items() if stretch.lowest_new(number, lane.pieces) < floor]


def count_late(stretch: Stretch, lanes: Lanes, session: Session) -> dict[int, int]:
    """How many there are, by partition; asked of Spark only where there can be any."""
    from pyspark.sql import functions as F

    suspects = late_lanes(stretch, lanes)
    if not suspects or stretch.unread is None:
        return {}
    rows = stretch.feed.keyed(session(), stretch.unread).where(is_below(stretch.floor))
    seen = stretch.memory.seen
    news = [(F.col(PARTITION) == lane) & (F.col(OFFSET) >= seen.get(lane, 0)) for lane in suspects]
    counts = rows.where(reduce(or_, news)).groupBy(PARTITION).count().collect()
    return {row[PARTITION]: row["count"] for row in counts}

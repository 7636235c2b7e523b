"""Elements that come too late: the partition that brings them was not waited for, and what they belong to is gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import TYPE_CHECKING, Any

from floodmark.errors import ElementInvalid, FloodmarkError, KeyDecreased
from floodmark.hwm import Span
from floodmark.mill.brokers import OFFSET, PARTITION, VALUE, Cuttable
from floodmark.mill.columns import IS_END, between, is_below, key_columns, keyed_batches, with_columns
from floodmark.mill.horizon import (
    EVERYTHING,
    NOTHING,
    Keys,
    Lane,
    Lanes,
    Level,
    Memory,
    Node,
    Piece,
    Seen,
    State,
    lowest,
    past,
)
from floodmark.mill.inputs import Feed, is_within
from floodmark.mill.survey import NOTES, Survey
from floodmark.sources.contract import Session
from floodmark.spark.faults import position_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession


# One pass over the keys of a stream, from which a turn is planned: pieces of neighbours, faults, and ends.
@dataclass(frozen=True)
class Found:
    """What the pass met in one partition, in order; `end` is the offset of its first end message.

    `has_rest`: something follows the end. (Offsets cannot tell: transactions use some up.)
    """

    pieces: tuple[Piece, ...] = ()
    end: int | None = None
    has_rest: bool = False


def surveyed(feed: Feed, spark: SparkSession, span: Span, *, ordered: bool) -> DataFrame:
    """Every message of a span with its keys; where Python reads those, what it finds is noted beside them."""
    rows, keys = feed.messages(spark, span), feed.plain_keys
    if not keys or not feed.inlet.is_ordered:
        return feed.with_keys(rows)
    codec, types = feed.codec, feed.key_types

    def survey(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from Survey(types, ordered=ordered).noted(keyed_batches(batches, codec, keys))

    notes = Survey(types, ordered=ordered).notes_type()
    return rows.mapInArrow(survey, with_columns(rows.schema, {**key_columns(keys), NOTES: notes}))


def scout(feed: Feed, messages: DataFrame, *, ordered: bool = True) -> dict[int, Found]:
    """What these messages, as `surveyed` gives them, are, by partition.

    Raises KeyDecreased where `ordered` and keys go down, ElementInvalid for an element without a key.
    """
    if not feed.keys:
        return ends_in(messages)
    found = noted(messages) if NOTES in messages.columns else scanned(feed, messages, ordered=ordered)
    return found_in(feed, [row.asDict() for row in found.collect()], ordered=ordered)


def noted(messages: DataFrame) -> DataFrame:
    """What the pass that read the keys has found."""
    from pyspark.sql import functions as F

    return messages.where(F.col(NOTES).isNotNull()).select(F.inline(NOTES))


def scanned(feed: Feed, messages: DataFrame, *, ordered: bool) -> DataFrame:
    """The same, found in a pass of its own."""
    from pyspark.sql.types import StructType

    types = feed.key_types

    def survey(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from Survey(types, ordered=ordered).run(batches)

    told = {column.name: column.type for column in Survey(types, ordered=ordered).schema()}
    return feed.scan(messages).mapInArrow(survey, with_columns(StructType(), told))


def ends_in(messages: DataFrame) -> dict[int, Found]:
    """The same for a stream without keys, where Spark alone can tell: one piece before the first end."""
    found = {row.partition: row for row in extents(messages)}
    ends = {lane: row.end for lane, row in found.items() if row.end is not None}
    followed = {lane: (0, end) for lane, end in ends.items() if found[lane].beyond > end + 1}
    before = extents(messages.where(is_within(followed))) if followed else []
    pieces = {lane: _one_piece(row) for lane, row in found.items() if lane not in followed}
    pieces |= {row.partition: _one_piece(row) for row in before}
    return {lane: Found(pieces.get(lane, ()), ends.get(lane), lane in followed) for lane in found}


def extents(messages: DataFrame) -> list[Row]:
    """By partition: from where to where elements stand, how many they are, the first end, what lies behind it all."""
    from pyspark.sql import functions as F

    is_end, offset = F.col(IS_END), F.col(OFFSET)
    element = F.when(~is_end, offset)
    told = {"first": F.min(element), "last": F.max(element), "count": F.count(element)}
    told |= {"end": F.min(F.when(is_end, offset)), "beyond": F.max(offset) + 1}
    return messages.groupBy(PARTITION).agg(*(column.alias(name) for name, column in told.items())).collect()


def _one_piece(extent: Row) -> tuple[Piece, ...]:
    return (Piece(extent.first, extent.last + 1, extent["count"], (), ()),) if extent["count"] else ()


def found_in(feed: Feed, rows: Sequence[Mapping[str, Any]], *, ordered: bool) -> dict[int, Found]:
    """What all tasks told, by partition. Raises for the first fault of one."""
    found = {}
    for lane in dict.fromkeys(row["partition"] for row in rows):
        own = [row for row in rows if row["partition"] == lane]
        found[lane] = _before_end(feed, own)
        _require_sound(feed, lane, found[lane], own, ordered=ordered)
    return found


def _before_end(feed: Feed, rows: Sequence[Mapping[str, Any]]) -> Found:
    """The pieces of one partition up to its first end.

    Offsets tell their order, or, for a stream that was sorted by its keys, the keys do.
    """
    end = min((row["end"] for row in rows if row.get("end") is not None), default=None)
    told = [_piece(row, len(feed.keys)) for row in rows if row.get("first") is not None]
    pieces = sorted(told, key=lambda piece: piece.first if feed.inlet.is_ordered else (piece.low, piece.high))
    rest = end is not None and any((row.get("rest") or row.get("first") or -1) > end for row in rows)
    return Found(tuple(piece for piece in pieces if end is None or piece.first < end), end, rest)


def _piece(row: Mapping[str, Any], keys: int) -> Piece:
    low, high = (tuple(row[f"{end}{place}"] for place in range(keys)) for end in ("low", "high"))
    return Piece(row["first"], row["next"], row["count"], low, high, row["run"])


def _require_sound(feed: Feed, lane: int, found: Found, rows: Sequence[Mapping[str, Any]], *, ordered: bool) -> None:
    """No fault before the end; and two tasks may each have seen an order that does not hold between them."""
    faults = [row for row in rows if row.get("fault") is not None and (found.end is None or row["fault"] < found.end)]
    for fault in sorted(faults, key=lambda row: int(row["fault"]))[:1]:
        raise _told(feed, lane, fault)
    for before, after in pairwise(found.pieces) if ordered else ():
        require_order(feed, lane, after.first, before.high, after.low)


def require_order(feed: Feed, lane: int, offset: int, before: Keys, keys: Keys) -> None:
    """Raises KeyDecreased if a key is lower than the one before it."""
    for old, new in zip(before, keys, strict=True):
        if new < old:
            raise KeyDecreased(feed.name, position=position_text(lane, offset), key=repr(new), before=repr(old))


def _told(feed: Feed, lane: int, fault: Mapping[str, Any]) -> FloodmarkError:
    """What is wrong with an element, in the words of whoever reads its text in full."""
    place = position_text(lane, fault["fault"])
    if fault.get("key") is not None:
        return KeyDecreased(feed.name, position=place, key=fault["key"], before=fault["before"])
    try:
        values = feed.codec.values_from_text(fault.get("text") or "null")
        for key in feed.keys:
            key.of(values)
    except ElementInvalid as error:
        return error.at(place)
    return ElementInvalid(feed.name, field="", reason="it has no key that could be compared", position=place)


# What a stream holds behind its mark, as far as one look tells, and as the horizon sees it.
EVERY = 1 << 64
"""The end of a partition whose source cannot say it."""


@dataclass(frozen=True)
class Waiting:
    """Why a turn may not wait any longer for some: streams that timed out, lanes that are left out as idle."""

    timed_out: frozenset[str] = frozenset()
    idle: frozenset[tuple[str, int]] = frozenset()
    leaves_out_late: bool = False
    """Whether elements of a partition that was idle may come too late: then they are counted, and no error."""


@dataclass(frozen=True)
class Stretch:
    """What a stream holds behind its mark, before any element of it was looked at."""

    feed: Feed
    span: Span | None
    memory: Memory
    waiting: Waiting = field(default_factory=Waiting)

    @property
    def ranges(self) -> dict[int, tuple[int, int]]:
        """The offsets behind the mark, by partition; a source that cannot be cut has one partition without an end."""
        source = self.feed.inlet.source
        if self.span is None:
            return {}
        return dict(source.lanes(self.span)) if isinstance(source, Cuttable) else {0: (0, EVERY)}

    def has_ended(self, lane: int) -> bool:
        """Whether it had before this turn, or does by the clock."""
        timed_out = self.feed.name in self.waiting.timed_out
        return lane in self.memory.ended or timed_out or self.feed.inlet.ends == "with_source"

    @property
    def floor(self) -> Level:
        """What comes below this comes too late."""
        return max(self.memory.done, self.memory.promised)

    @property
    def unread(self) -> Span | None:
        """The span without what follows an end: that belongs to the next run."""
        source = self.feed.inlet.source
        if self.span is None or not isinstance(source, Cuttable) or not self.memory.ended:
            return self.span
        ends = {lane: self._end(lane, upto) for lane, (_, upto) in self.ranges.items()}
        return source.cut(self.span, reads=ends, passes=ends)

    def unseen(
        self, spark: SparkSession, seen: Mapping[int, int], found: Mapping[int, Found], below: Level
    ) -> Iterator[tuple[int, int, str | None]]:
        """Elements from these offsets on, below a level and without what follows an end: for the driver to look at."""
        if self.unread is None:
            return
        rows = between(self.feed.keyed(spark, self.unread), NOTHING, below)
        order = [*self.feed.key_names[:1], PARTITION, OFFSET]
        for lane, offset, text in rows.orderBy(*order).select(PARTITION, OFFSET, VALUE).toLocalIterator():
            end = found[lane].end if lane in found else None
            if offset >= seen.get(lane, 0) and (end is None or offset < end):
                yield lane, offset, text

    def lanes(self, found: Mapping[int, Found]) -> dict[int, Lane]:
        """The stream as the horizon sees it."""
        known = {lane: (at_, at_) for lane, at_ in self.memory.seen.items()}
        ranges = {**known, **self.ranges} or ({} if self.feed.inlet.ends == "with_source" else {0: (0, 0)})
        return {lane: self._lane(lane, *bounds, found.get(lane, Found())) for lane, bounds in ranges.items()}

    def _lane(self, lane: int, first: int, upto: int, found: Found) -> Lane:
        if upto < EVERY:
            self._require_order(lane, found)
        end = found.end if found.end is not None else self._end(lane, upto)
        last = highest(self.memory.last.get(lane), found.pieces[-1].high if found.pieces else None)
        ended = found.end is not None or self.has_ended(lane)
        idle = (self.feed.name, lane) in self.waiting.idle
        state: State = "ended" if ended else "idle" if idle else "live"
        return Lane(first, end, found.pieces, last, state, found.end is not None, found.has_rest)

    def _end(self, lane: int, upto: int) -> int:
        return min(upto, self.memory.ended.get(lane, upto))

    def _require_order(self, lane: int, found: Found) -> None:
        """Between the elements of earlier turns and the first new one, and against what was given out already."""
        last, seen = self.memory.last.get(lane), self.memory.seen.get(lane, 0)
        for piece in found.pieces[:1]:
            if last and piece.first >= seen:
                require_order(self.feed, lane, piece.first, last, piece.low)
        if not self.waiting.leaves_out_late and self.lowest_new(lane, found.pieces) < self.floor:
            first = next(piece for piece in found.pieces if piece.next > seen)
            raise KeyDecreased(
                self.feed.name,
                position=position_text(lane, max(first.first, seen)),
                key=repr(first.low[0]),
                before=f"{self.floor[1]!r}, which was given out already,",
            )

    def lowest_new(self, lane: int, pieces: Sequence[Piece]) -> Level:
        """A level that no element of a partition stands below that no turn has seen before."""
        seen, last = self.memory.seen.get(lane, 0), self.memory.last.get(lane)
        first = next((piece for piece in pieces if piece.next > seen), None)
        if first is None or not first.low:
            return EVERYTHING
        key = max(first.low[0], last[0]) if last else first.low[0]
        return (0, key, lane, max(first.first, seen))


def highest(before: Keys | None, now: Keys | None) -> Keys | None:
    """The higher of two keys, place by place."""
    if before is None or now is None:
        return before or now
    return tuple(max(pair) for pair in zip(before, now, strict=True))


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

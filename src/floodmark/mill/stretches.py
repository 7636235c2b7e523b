"""What a stream holds behind its mark, as far as one look tells, and as the horizon sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from floodmark.errors import KeyDecreased
from floodmark.hwm import Span
from floodmark.mill.brokers import OFFSET, PARTITION, VALUE, Cuttable
from floodmark.mill.element_columns import between
from floodmark.mill.feeds import Feed
from floodmark.mill.horizon import EVERYTHING, NOTHING, Keys, Lane, Level, Piece, State
from floodmark.mill.mishaps import position
from floodmark.mill.remembering import Memory
from floodmark.mill.scouting import Found, require_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
                position=position(lane, max(first.first, seen)),
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

"""What a stream holds behind its mark, as far as a look tells, and what the record remembers of it beside the mark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, TypeVar

from floodmark.errors import KeyDecreased
from floodmark.hwm import Json, Span
from floodmark.mill.brokers import OFFSET, PARTITION, VALUE, Cuttable
from floodmark.mill.horizon import (
    EVERYTHING,
    NOTHING,
    UNBOUNDED,
    KeyRange,
    Keys,
    Level,
    Partitions,
    PartitionView,
    State,
    key_from_json,
    key_to_json,
    level_from_json,
    level_to_json,
)
from floodmark.mill.inputs import StreamInput, between, is_below
from floodmark.mill.scan import ScanResult, require_order
from floodmark.mill.windows import OffsetRanges
from floodmark.sources.contract import Session
from floodmark.spark.faults import position_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.stores.record import JobRecord

Part = TypeVar("Part")


@dataclass(frozen=True)
class StreamMemory:
    """What is remembered of one stream: by partition the highest keys, the next unseen offset, and where it ended.

    Kept with the master: `done_level`, below which everything was given to the function, and whether the mill
    `has_stopped`, that is, come to its end. Kept with the others: `promised_level`, below which masters were given out
    without waiting for partners. `has_rest`: elements were seen behind an end, which the next run reads.
    """

    last: Mapping[int, Keys] = field(default_factory=dict)
    next_unseen: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    done_level: Level = NOTHING
    promised_level: Level = NOTHING
    has_stopped: bool = False
    has_rest: bool = False
    expressions: tuple[str, ...] = ()
    """What the keys in `last` are, in their order."""

    def to_json(self) -> dict[str, Json]:
        return {
            "last": {str(partition): [key_to_json(key) for key in keys] for partition, keys in self.last.items()},
            "seen": {str(partition): offset for partition, offset in self.next_unseen.items()},
            "ended": {str(partition): offset for partition, offset in self.ends.items()},
            "done": level_to_json(self.done_level),
            "promised": level_to_json(self.promised_level),
            "stopped": self.has_stopped,
            "has_rest": self.has_rest,
            "expressions": list(self.expressions),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> StreamMemory:
        """What a record holds; an empty memory if the stream is new to it."""
        if "last" not in stored:  # a source may have left something there before the first turn
            return cls()
        return cls(
            last={int(partition): tuple(map(key_from_json, keys)) for partition, keys in stored["last"].items()},
            next_unseen={int(partition): offset for partition, offset in stored["seen"].items()},
            ends={int(partition): offset for partition, offset in stored["ended"].items()},
            done_level=level_from_json(stored["done"]),
            promised_level=level_from_json(stored.get("promised", NOTHING)),
            has_stopped=stored["stopped"],
            has_rest=stored["has_rest"],
            expressions=tuple(stored.get("expressions", ())),
        )

    def in_terms_of(self, expressions: Sequence[str]) -> StreamMemory:
        """The same for a tree that has these keys: with another node, one key may be asked for more often, or less."""
        if not self.expressions or self.expressions == tuple(expressions):
            return self
        if not set(expressions) <= set(self.expressions):
            return replace(self, last={}, expressions=tuple(expressions))
        places = [self.expressions.index(each) for each in expressions]
        last = {partition: tuple(keys[place] for place in places) for partition, keys in self.last.items()}
        return replace(self, last=last, expressions=tuple(expressions))

    def for_next_run(self) -> StreamMemory:
        """After the run that ended: ended partitions go on behind their end, and their keys begin anew."""
        has_ended = bool(self.next_unseen) and self.ends.keys() >= self.next_unseen.keys()
        return StreamMemory(
            last={partition: keys for partition, keys in self.last.items() if partition not in self.ends},
            next_unseen=self.next_unseen,
            done_level=NOTHING if has_ended else self.done_level,
            expressions=self.expressions,
        )


def memory_of(record: JobRecord, name: str) -> StreamMemory:
    """What the record holds of a stream."""
    return StreamMemory.from_json(record.extras.part(name) or {})


def without_streams(record: JobRecord, streams: Sequence[str]) -> JobRecord:
    """The record that has forgotten these streams."""
    return replace(
        record,
        marks=_without(record.marks, streams),
        sources=_without(record.sources, streams),
        extras=record.extras.without(streams),
    )


def _without(part: Mapping[str, Part], streams: Sequence[str]) -> dict[str, Part]:
    return {name: own for name, own in part.items() if name not in streams}


@dataclass(frozen=True)
class NotWaitedFor:
    """For whom a turn does not wait any longer: streams that timed out, partitions that are left out as idle."""

    late_streams: frozenset[str] = frozenset()
    idle_partitions: frozenset[tuple[str, int]] = frozenset()
    leaves_out_late: bool = False
    """Whether elements of a partition that was idle may come too late: then they are counted, and no error."""


@dataclass(frozen=True)
class PendingInput:
    """What a stream holds behind its mark, before any element of it was looked at."""

    stream: StreamInput
    span: Span | None
    memory: StreamMemory
    not_waited_for: NotWaitedFor = field(default_factory=NotWaitedFor)

    def reaching_what_was_seen(self, by_windows: Mapping[int, int] | None = None) -> PendingInput:
        """The same with a span that reaches, in each partition, as far as any turn has seen.

        A look that may read so many elements divides them anew each time, and after a restart it may read fewer. What
        is remembered of a partition (`last`) is true of all that was seen: of less, it would promise elements that the
        turn does not read, and what they are joined to would be given out without them. So it is of what was seen
        `by_windows` when they were cut, in a turn that gave out none of them.
        """
        source, seen, cut_at = self.stream.inlet.source, self.memory.next_unseen, by_windows or {}
        if self.span is None or not isinstance(source, Cuttable):
            return self
        offsets = self.offsets.items()
        ends = {number: max(upto, seen.get(number, 0), cut_at.get(number, 0)) for number, (_, upto) in offsets}
        if all(upto == ends[number] for number, (_, upto) in self.offsets.items()):
            return self
        return replace(self, span=source.cut(self.span, reads=ends, passes=ends))

    @property
    def offsets(self) -> OffsetRanges:
        """The offsets behind the mark, by partition; a source that cannot be cut has one partition without an end."""
        if self.span is None:
            return {}
        is_cuttable = isinstance(self.stream.inlet.source, Cuttable)
        return self.stream.offsets(self.span) if is_cuttable else {0: (0, UNBOUNDED)}

    @property
    def has_risen(self) -> bool:
        """Whether there are elements that no turn has seen."""
        known = self.memory.next_unseen
        is_above = any(upto > known.get(partition, 0) for partition, (_, upto) in self.offsets.items())
        return is_above or self.memory.has_rest

    @property
    def floor(self) -> Level:
        """What comes below this comes too late."""
        return max(self.memory.done_level, self.memory.promised_level)

    @property
    def unread(self) -> Span | None:
        """The span without what follows an end: that belongs to the next run."""
        source = self.stream.inlet.source
        if self.span is None or not isinstance(source, Cuttable) or not self.memory.ends:
            return self.span
        ends = {partition: self._end(partition, upto) for partition, (_, upto) in self.offsets.items()}
        return source.cut(self.span, reads=ends, passes=ends)

    def has_ended(self, partition: int) -> bool:
        """Whether it had before this turn, or does by the clock."""
        has_timed_out = self.stream.name in self.not_waited_for.late_streams
        return partition in self.memory.ends or has_timed_out or self.stream.inlet.ends == "with_source"

    def unread_ends(self, results: Mapping[int, ScanResult]) -> dict[int, int]:
        """By partition, the offset behind the last element that a turn may read."""
        ends = {number: self._end(number, upto) for number, (_, upto) in self.offsets.items()}
        met = {number: result.end for number, result in results.items() if result.end is not None}
        return {number: min(upto, met.get(number, upto)) for number, upto in ends.items()}

    def elements_from(
        self, offsets: Mapping[int, int], spark: SparkSession, results: Mapping[int, ScanResult], below: Level
    ) -> Iterator[tuple[int, int, str | None]]:
        """Elements from these offsets on, below a level and without what follows an end: for the driver to look at."""
        if self.unread is None:
            return
        rows = between(self.stream.keyed_messages(spark, self.unread), NOTHING, below)
        order = [*list(self.stream.keys_by_column)[:1], PARTITION, OFFSET]
        for partition, offset, text in rows.orderBy(*order).select(PARTITION, OFFSET, VALUE).toLocalIterator():
            end = results[partition].end if partition in results else None
            if offset >= offsets.get(partition, 0) and (end is None or offset < end):
                yield partition, offset, text

    def partitions(self, results: Mapping[int, ScanResult]) -> dict[int, PartitionView]:
        """The stream as the horizon sees it. Raises KeyDecreased where it goes back behind what was joined."""
        known = {partition: (offset, offset) for partition, offset in self.memory.next_unseen.items()}
        offsets = {**known, **self.offsets} or ({} if self.stream.inlet.ends == "with_source" else {0: (0, 0)})
        return {each: self._view(each, *bounds, results.get(each, ScanResult())) for each, bounds in offsets.items()}

    def _view(self, partition: int, first: int, upto: int, result: ScanResult) -> PartitionView:
        if upto < UNBOUNDED:
            self._require_order(partition, result)
        has_end_message = result.end is not None
        next_ = result.end if result.end is not None else self._end(partition, upto)
        last = highest(self.memory.last.get(partition), result.key_ranges[-1].high if result.key_ranges else None)
        is_idle = (self.stream.name, partition) in self.not_waited_for.idle_partitions
        has_ended = has_end_message or self.has_ended(partition)
        state: State = "ended" if has_ended else "idle" if is_idle else "live"
        return PartitionView(first, next_, result.key_ranges, last, state, has_end_message, result.has_rest)

    def _end(self, partition: int, upto: int) -> int:
        return min(upto, self.memory.ends.get(partition, upto))

    def _require_order(self, partition: int, result: ScanResult) -> None:
        """Between the elements of earlier turns and the first new one, and against what was given out already."""
        last, unseen = self.memory.last.get(partition), self.memory.next_unseen.get(partition, 0)
        for key_range in result.key_ranges[:1]:
            if last and key_range.first >= unseen:
                require_order(self.stream, partition, key_range.first, last, key_range.low)
        if not self.not_waited_for.leaves_out_late and self.lowest_new(partition, result.key_ranges) < self.floor:
            first = next(each for each in result.key_ranges if each.next > unseen)
            raise KeyDecreased(
                self.stream.name,
                position=position_text(partition, max(first.first, unseen)),
                key=repr(first.low[0]),
                before=f"{self.floor[1]!r}, which was given out already,",
            )

    def lowest_new(self, partition: int, key_ranges: Sequence[KeyRange]) -> Level:
        """A level that no element of a partition stands below that no turn has seen before."""
        unseen, last = self.memory.next_unseen.get(partition, 0), self.memory.last.get(partition)
        first = next((each for each in key_ranges if each.next > unseen), None)
        if first is None or not first.low:
            return EVERYTHING
        key = max(first.low[0], last[0]) if last else first.low[0]
        return (0, key, partition, max(first.first, unseen))


def highest(before: Keys | None, now: Keys | None) -> Keys | None:
    """The higher of two keys, place by place."""
    if before is None or now is None:
        return before or now
    return tuple(max(pair) for pair in zip(before, now, strict=True))


def count_late(pending: PendingInput, partitions: Partitions, session: Session) -> dict[int, int]:
    """By partition, how many new elements come too late; asked of Spark only where there can be any.

    The partition that brings them was not waited for, and what they belong to was given out. A stream without idle
    partitions has none.
    """
    from pyspark.sql import functions as F

    suspects = [n for n, each in partitions.items() if pending.lowest_new(n, each.key_ranges) < pending.floor]
    if not suspects or pending.unread is None:
        return {}
    rows = pending.stream.keyed_messages(session(), pending.unread).where(is_below(pending.floor))
    unseen = pending.memory.next_unseen
    is_new = [(F.col(PARTITION) == each) & (F.col(OFFSET) >= unseen.get(each, 0)) for each in suspects]
    counts = rows.where(reduce(or_, is_new)).groupBy(PARTITION).count().collect()
    return {row[PARTITION]: row["count"] for row in counts}

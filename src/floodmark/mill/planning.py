"""Planning a turn: from what the streams hold to the spans of one batch, cut where everything before is final."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from floodmark.errors import KeyDecreased
from floodmark.hwm import Json, Span
from floodmark.mill.brokers import Cuttable
from floodmark.mill.feeds import DETAIL, Feed
from floodmark.mill.horizon import EVERYTHING, NOTHING, Horizon, Keys, Lane, Lanes, Level, Node, State, at, horizon
from floodmark.mill.mishaps import position
from floodmark.mill.remembering import Memory, level_to_json
from floodmark.mill.scouting import Found, require_order

EVERY = 1 << 64
"""The end of a partition whose source cannot say it."""


@dataclass(frozen=True)
class Waiting:
    """Why a turn may not wait any longer for some: streams that timed out, lanes that are left out as idle."""

    timed_out: frozenset[str] = frozenset()
    idle: frozenset[tuple[str, int]] = frozenset()


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
    def unread(self) -> Span | None:
        """The span without the partitions that have ended: what follows their end belongs to the next run."""
        source, over = self.feed.inlet.source, self.memory.ended
        if self.span is None or not isinstance(source, Cuttable) or not over:
            return self.span
        ends = {lane: first if lane in over else upto for lane, (first, upto) in self.ranges.items()}
        return source.cut(self.span, reads=ends, passes=ends)

    def lanes(self, found: Mapping[int, Found]) -> dict[int, Lane]:
        """The stream as the horizon sees it."""
        known = {lane: (at_, at_) for lane, at_ in self.memory.seen.items()}
        ranges = {**known, **self.ranges} or ({} if self.feed.inlet.ends == "with_source" else {0: (0, 0)})
        return {lane: self._lane(lane, *bounds, found.get(lane, Found())) for lane, bounds in ranges.items()}

    def _lane(self, lane: int, first: int, upto: int, found: Found) -> Lane:
        if upto < EVERY:
            self._require_order(lane, found)
        was_over = lane in self.memory.ended
        end = found.end if found.end is not None else first if was_over else upto
        last = highest(self.memory.last.get(lane), found.pieces[-1].high if found.pieces else None)
        ended = found.end is not None or self.has_ended(lane)
        idle = (self.feed.name, lane) in self.waiting.idle
        state: State = "ended" if ended else "idle" if idle else "live"
        return Lane(first, end, found.pieces, last, state, has_end_message=found.end is not None)

    def _require_order(self, lane: int, found: Found) -> None:
        """Between the elements of earlier turns and the first new one, and against what was given out already."""
        last, seen = self.memory.last.get(lane), self.memory.seen.get(lane, 0)
        for piece in found.pieces[:1]:
            if last and piece.first >= seen:
                require_order(self.feed, lane, piece.first, last, piece.low)
            if piece.first >= seen and self.feed.keys and at(piece.low[0]) < self.memory.done[:2]:
                raise KeyDecreased(
                    self.feed.name,
                    position=position(lane, piece.first),
                    key=repr(piece.low[0]),
                    before=f"{self.memory.done[1]!r}, which was given out already,",
                )


@dataclass(frozen=True)
class Turn:
    """What one batch of a mill does: how far it reads and passes each stream, and what is remembered afterwards."""

    stretches: Mapping[str, Stretch]
    lanes: Mapping[str, Lanes]
    root: str
    until: Level
    passes: Mapping[str, Mapping[int, int]]
    reads: Mapping[str, Mapping[int, int]]
    stops: bool
    waits_for: frozenset[tuple[str, int]]
    runs: bool = False
    cuts: Sequence[int] | None = None

    @property
    def moves(self) -> bool:
        """Whether there is anything to commit."""
        done = self.stretches[self.root].memory.done
        ended = any(self._ended(name) != stretch.memory.ended for name, stretch in self.stretches.items())
        passed = any(
            at_ > self.lanes[name][lane].first for name, lanes in self.passes.items() for lane, at_ in lanes.items()
        )
        return self.stops or passed or ended or (self.until > done and self.until != EVERYTHING)

    def spans(self) -> dict[str, Span]:
        """One span per stream: its detail says what is read, its end where the mark will be."""
        cut = {name: self._span(name, stretch) for name, stretch in self.stretches.items()}
        return {name: span for name, span in cut.items() if span is not None}

    def memories(self) -> dict[str, Memory]:
        """What the record has to remember of every stream."""
        return {name: self._memory(name, stretch) for name, stretch in self.stretches.items()}

    def elements(self, name: str) -> int:
        """How many elements of a stream are read."""
        reads, lanes = self.reads[name], self.lanes[name]
        return sum(
            (sum(piece.count for piece in lane.pieces if piece.next <= reads[number]))
            if lane.pieces
            else max(min(reads[number], lane.next) - lane.first, 0)
            for number, lane in lanes.items()
            if lane.next < EVERY
        )

    def _span(self, name: str, stretch: Stretch) -> Span | None:
        span, source = stretch.span, stretch.feed.inlet.source
        if span is None:
            return None
        if isinstance(source, Cuttable):
            span = source.cut(span, reads=self.reads[name], passes=self.passes[name])
        elif any(at_ < EVERY for at_ in self.passes[name].values()):
            span = replace(span, upto=span.after or span.upto.reset())
        detail: dict[str, Json] = {"elements": self.elements(name)}
        if name == self.root:
            done = stretch.memory.done
            detail |= {"after": level_to_json(done), "until": level_to_json(self.until)}
            detail |= {"runs": True} if self.runs else {}
            detail |= {"cuts": list(self.cuts)} if self.cuts is not None else {}
        return replace(span, detail={**span.detail, DETAIL: detail})

    def _memory(self, name: str, stretch: Stretch) -> Memory:
        lanes = self.lanes[name]
        is_root = name == self.root
        return Memory(
            last={number: lane.last for number, lane in lanes.items() if lane.last},
            seen={number: lane.beyond for number, lane in lanes.items() if lane.next < EVERY},
            ended=self._ended(name),
            done=self.until if is_root and stretch.feed.keys and not self.runs else NOTHING,
            stopped=is_root and self.stops,
        )

    def _ended(self, name: str) -> frozenset[int]:
        """Partitions whose end is behind the mark: it will not be met again."""
        stretch, lanes = self.stretches[name], self.lanes[name]
        met = {n for n, lane in lanes.items() if lane.has_end_message and self.passes[name].get(n, 0) >= lane.beyond}
        return stretch.memory.ended | met


@dataclass(frozen=True)
class Planner:
    """The tree of a mill, and how its turns are cut."""

    root: Node
    feeds: Mapping[str, Feed]
    has_window: bool
    notes: list[str] = field(default_factory=list)

    def plan(self, stretches: Mapping[str, Stretch], found: Mapping[str, Mapping[int, Found]]) -> Turn:
        """The next turn. Raises KeyDecreased where a stream goes back behind what was joined."""
        lanes = {name: stretch.lanes(found.get(name, {})) for name, stretch in stretches.items()}
        if not self.feeds[self.root.name].keys:
            return self._all_of_it(stretches, lanes)
        if self.is_in_runs(stretches[self.root.name]):
            return self._runs(stretches, lanes)
        return self._joined(stretches, lanes)

    def is_in_runs(self, stretch: Stretch) -> bool:
        """Whether windows are runs of neighbours in one partition: then their keys may go down."""
        alone = self.has_window and not self.root.branches and stretch.feed.inlet.is_ordered
        return alone and len(stretch.ranges) <= 1

    def _all_of_it(self, stretches: Mapping[str, Stretch], lanes: Mapping[str, Lanes]) -> Turn:
        """A stream without keys: every element is final as soon as it is there."""
        name = self.root.name
        own = lanes[name]
        passes, reads = ({n: lane.beyond for n, lane in own.items()}, {n: lane.next for n, lane in own.items()})
        stops = all(lane.state == "ended" for lane in own.values())
        waits = frozenset((name, number) for number, lane in own.items() if lane.state != "ended")
        return Turn(stretches, lanes, name, EVERYTHING, {name: passes}, {name: reads}, stops, waits)

    def _runs(self, stretches: Mapping[str, Stretch], lanes: Mapping[str, Lanes]) -> Turn:
        """Windows of one partition: all but the last run of equal keys, which may go on."""
        name = self.root.name
        ((number, lane),) = lanes[name].items()
        stops = lane.state == "ended"
        open_run = max((piece.run for piece in lane.pieces if piece.run is not None), default=lane.first)
        passes = lane.beyond if stops else open_run
        reads = lane.next if stops else open_run
        waits = frozenset({(name, number)})
        ends = ({name: {number: passes}}, {name: {number: reads}})
        return Turn(stretches, lanes, name, EVERYTHING, *ends, stops, waits, runs=True)

    def _joined(self, stretches: Mapping[str, Stretch], lanes: Mapping[str, Lanes]) -> Turn:
        name = self.root.name
        reached = horizon(self.root, lanes, stretches[name].memory.done)
        passes = {each: self._passes(each, own, reached) for each, own in lanes.items()}
        reads = {each: {n: lane.next for n, lane in own.items()} for each, own in lanes.items()}
        reads[name] = {n: lane.read_below(reached.until) for n, lane in lanes[name].items()}
        return Turn(stretches, lanes, name, reached.until, passes, reads, reached.stops, reached.waits_for)

    def _passes(self, name: str, lanes: Lanes, reached: Horizon) -> dict[int, int]:
        """A mark stays before what is still needed; where the mill stops, ended partitions are left behind whole."""
        level = reached.needed[name]
        return {
            number: lane.beyond if reached.stops and lane.state == "ended" else lane.passed(level)
            for number, lane in lanes.items()
        }


def highest(before: Keys | None, now: Keys | None) -> Keys | None:
    """The higher of two keys, place by place."""
    if before is None or now is None:
        return before or now
    return tuple(max(pair) for pair in zip(before, now, strict=True))


def held(turn: Turn) -> str | None:
    """Which partitions were never filled: nothing can be final while one of them may still begin anywhere."""
    empty = [(n, p) for n, p in sorted(turn.waits_for) if not turn.lanes[n][p].last]
    named = ", ".join(f"partition {partition} of {name}" for name, partition in empty)
    return f"waiting for the first element of {named}" if named and turn.stretches[turn.root].feed.keys else None

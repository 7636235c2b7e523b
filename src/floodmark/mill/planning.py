"""Planning a turn: from what the streams hold to the spans of one batch, cut where everything before is final."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from floodmark.hwm import Json, Span
from floodmark.mill.brokers import Cuttable
from floodmark.mill.feeds import DETAIL, Feed
from floodmark.mill.horizon import EVERYTHING, NOTHING, Horizon, Lanes, Level, Node, horizon
from floodmark.mill.lateness import promised
from floodmark.mill.remembering import Memory, level_to_json
from floodmark.mill.scouting import Found
from floodmark.mill.stretches import EVERY, Stretch
from floodmark.mill.timed import Ranges, ranges_to_json


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
    promised: Mapping[str, Level] = field(default_factory=dict)
    runs: bool = False
    windows: Sequence[Ranges] | None = None

    @property
    def moves(self) -> bool:
        """Whether there is anything to commit."""
        done = self.stretches[self.root].memory.done
        ended = any(self._ended(name) != stretch.memory.ended for name, stretch in self.stretches.items())
        passed = any(
            at_ > self.lanes[name][lane].first for name, lanes in self.passes.items() for lane, at_ in lanes.items()
        )
        rises = self.windows is None and done < self.until < EVERYTHING
        return self.stops or passed or ended or rises

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
            detail |= {"windows": ranges_to_json(self.windows)} if self.windows is not None else {}
        return replace(span, detail={**span.detail, DETAIL: detail})

    def _memory(self, name: str, stretch: Stretch) -> Memory:
        lanes = self.lanes[name]
        is_root = name == self.root
        return Memory(
            last={number: lane.last for number, lane in lanes.items() if lane.last},
            seen={**stretch.memory.seen, **{n: upto for n, (_, upto) in stretch.ranges.items() if upto < EVERY}},
            ended=self._ended(name),
            done=self.until if is_root and stretch.feed.keys and not self.runs else NOTHING,
            promised=max(self.promised.get(name, NOTHING), stretch.memory.promised),
            stopped=is_root and self.stops,
            has_rest=any(lane.has_rest for lane in lanes.values()),
            expressions=stretch.feed.expressions,
        )

    def _ended(self, name: str) -> dict[int, int]:
        """Where partitions ended: those whose end is behind the mark and will not be met again, or by the clock."""
        stretch, passes = self.stretches[name], self.passes[name]
        met = {n: lane for n, lane in self.lanes[name].items() if lane.has_end_message and passes[n] >= lane.beyond}
        late = self.lanes[name] if name in stretch.waiting.timed_out else {}
        return {**{n: lane.beyond for n, lane in {**late, **met}.items()}, **stretch.memory.ended}


@dataclass(frozen=True)
class Planner:
    """The tree of a mill, and how its turns are cut."""

    root: Node
    feeds: Mapping[str, Feed]
    has_window: bool

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
        passes = {each: self.passes(each, own, reached) for each, own in lanes.items()}
        reads = {each: {n: lane.next for n, lane in own.items()} for each, own in lanes.items()}
        reads[name] = {n: lane.read_below(reached.until) for n, lane in lanes[name].items()}
        ends, promises = (passes, reads), promised(self.root, lanes)
        return Turn(stretches, lanes, name, reached.until, *ends, reached.stops, reached.waits_for, promises)

    def passes(self, name: str, lanes: Lanes, reached: Horizon) -> dict[int, int]:
        """A mark stays before what is still needed; where the mill stops, ended partitions are left behind whole."""
        level = reached.needed[name]
        return {
            number: lane.beyond if reached.stops and lane.state == "ended" else lane.passed(level)
            for number, lane in lanes.items()
        }


def held(turn: Turn) -> str | None:
    """Which partitions were never filled: nothing can be final while one of them may still begin anywhere."""
    empty = [(n, p) for n, p in sorted(turn.waits_for) if not turn.lanes[n][p].last]
    named = ", ".join(f"partition {partition} of {name}" for name, partition in empty)
    return f"waiting for the first element of {named}" if named and turn.stretches[turn.root].feed.keys else None

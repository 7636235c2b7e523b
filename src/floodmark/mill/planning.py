"""Planning a turn: from what the streams hold to the spans of one batch, cut where everything before is final."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from floodmark.hwm import Json, Span
from floodmark.mill.brokers import Cuttable
from floodmark.mill.horizon import (
    EVERYTHING,
    NOTHING,
    Horizon,
    Lanes,
    Level,
    Memory,
    Node,
    at,
    horizon,
    level_to_json,
    needed_from,
)
from floodmark.mill.inputs import DETAIL, Feed
from floodmark.mill.pending import EVERY, Found, Stretch, promised
from floodmark.mill.timed import Ranges, TimedWindows, ranges_to_json


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


# Turns of a mill whose windows a function tells: they are decided already, and those that are over are given out.
def asked_below(planner: Planner, stretches: Mapping[str, Stretch], found: Mapping[str, Mapping[int, Found]]) -> Level:
    """Which elements the function is asked about: of a single stream all, of joined ones those that are final.

    Only below the horizon the order of the master is known, over all its partitions.
    """
    if not planner.root.branches:
        return EVERYTHING
    return horizon(planner.root, lanes_of(stretches, found), stretches[planner.root.name].memory.done).until


def lanes_of(stretches: Mapping[str, Stretch], found: Mapping[str, Mapping[int, Found]]) -> dict[str, Lanes]:
    """Every stream as the horizon sees it."""
    return {name: stretch.lanes(found.get(name, {})) for name, stretch in stretches.items()}


def plan_timed(
    planner: Planner,
    stretches: Mapping[str, Stretch],
    found: Mapping[str, Mapping[int, Found]],
    windows: TimedWindows,
) -> Turn:
    """The next turn, from windows that have taken what lies below the level of `asked_below`."""
    lanes = lanes_of(stretches, found)
    plan = _joined if planner.root.branches else _alone
    return plan(planner, stretches, lanes, windows)


def _alone(
    planner: Planner, stretches: Mapping[str, Stretch], lanes: Mapping[str, Lanes], windows: TimedWindows
) -> Turn:
    name = planner.root.name
    own = lanes[name]
    stops = all(lane.state == "ended" for lane in own.values())
    closed = windows.closed(ended=stops)
    passes = {number: lane.beyond for number, lane in own.items()} if stops else passed(own, closed)
    waits = frozenset((name, number) for number in own)
    ends = ({name: passes}, {name: _read(own, passes)})
    return Turn(stretches, lanes, name, EVERYTHING, *ends, stops, waits, windows=closed)


def _joined(
    planner: Planner, stretches: Mapping[str, Stretch], lanes: Mapping[str, Lanes], windows: TimedWindows
) -> Turn:
    name, root = planner.root.name, planner.root
    own, reached = lanes[name], horizon(root, lanes, stretches[name].memory.done)
    given = windows.closed(ended=reached.stops)
    level = reached.until if reached.stops else min(reached.until, _lowest_left(own, passed(own, given)))
    held = replace(reached, until=level, needed=needed_from(root, lanes, level))
    passes = {each: planner.passes(each, lanes[each], held) for each in lanes}
    reads = {each: {number: lane.next for number, lane in lanes[each].items()} for each in lanes}
    reads[name] = _read(own, passed(own, given))
    passes[name] = passes[name] if reached.stops else passed(own, given)
    waits = reached.waits_for | {(name, number) for number in own}
    return Turn(
        stretches, lanes, name, level, passes, reads, reached.stops, waits, promised(root, lanes), windows=given
    )


def passed(own: Lanes, given: Sequence[Ranges]) -> dict[int, int]:
    """The offsets behind the windows that are given out."""
    passes = {number: lane.first for number, lane in own.items()}
    for window in given:
        passes |= {number: upto for number, (_, upto) in window.items()}
    return passes


def _read(own: Lanes, passes: Mapping[int, int]) -> dict[int, int]:
    return {number: min(at_, own[number].next) for number, at_ in passes.items()}


def _lowest_left(own: Lanes, passes: Mapping[int, int]) -> Level:
    """The level of the first element that stays behind the mark."""
    left = [next((p for p in lane.pieces if p.next > passes[n]), None) for n, lane in own.items()]
    return min((at(piece.low[0]) for piece in left if piece), default=EVERYTHING)

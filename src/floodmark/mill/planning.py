"""Planning a turn: from what the streams hold to the spans of one batch, cut where everything before is final."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from floodmark.hwm import Span
from floodmark.mill.brokers import Cuttable
from floodmark.mill.horizon import (
    EVERYTHING,
    NOTHING,
    UNBOUNDED,
    Horizon,
    Level,
    Node,
    Partitions,
    at,
    horizon,
    needed_from,
    promised_levels,
)
from floodmark.mill.inputs import StreamInput, TurnDetail, with_mark_kept
from floodmark.mill.pending import PendingInput, StreamMemory
from floodmark.mill.scan import ScanResult
from floodmark.mill.windows import OffsetRanges, TimedWindows, windows_to_json

Inputs: TypeAlias = Mapping[str, PendingInput]
"""By stream, what lies behind its mark."""
Scans: TypeAlias = Mapping[str, Mapping[int, ScanResult]]
"""By stream and partition, what a pass over the elements found."""


@dataclass(frozen=True)
class Turn:
    """What one batch of a mill does: how far it reads and passes each stream, and what is remembered afterwards.

    `passes` are the offsets, by stream and partition, at which the marks will stand; `reads` those behind what is read.
    `runs`: windows are runs of neighbours. `windows`: those that are given out, where a function decided them.
    """

    inputs: Inputs
    partitions: Mapping[str, Partitions]
    root: str
    passes: Mapping[str, Mapping[int, int]]
    reads: Mapping[str, Mapping[int, int]]
    stops: bool
    waits_for: frozenset[tuple[str, int]]
    until: Level = EVERYTHING
    promised_levels: Mapping[str, Level] = field(default_factory=dict)
    runs: bool = False
    windows: Sequence[OffsetRanges] | None = None

    @property
    def moves(self) -> bool:
        """Whether there is anything to commit."""
        done = self.inputs[self.root].memory.done_level
        has_new_end = any(self._ends(name) != pending.memory.ends for name, pending in self.inputs.items())
        passes = [(self.partitions[name][n], at) for name, own in self.passes.items() for n, at in own.items()]
        has_passed = any(offset > view.first and view.can_be_passed_to(offset) for view, offset in passes)
        rises = self.windows is None and done < self.until < EVERYTHING
        return self.stops or has_passed or has_new_end or rises

    @property
    def held_reason(self) -> str | None:
        """Which partitions were never filled: nothing can be final while one of them may still begin anywhere."""
        empty = [(name, n) for name, n in sorted(self.waits_for) if not self.partitions[name][n].last]
        if not empty or not self.inputs[self.root].stream.keys:
            return None
        return f"waiting for the first element of {', '.join(f'partition {n} of {name}' for name, n in empty)}"

    def spans(self) -> dict[str, Span]:
        """One span per stream: its detail says what is read, its end where the mark will be."""
        return {name: self._cut(name, each, each.span) for name, each in self.inputs.items() if each.span is not None}

    def memories(self) -> dict[str, StreamMemory]:
        """What the record has to remember of every stream."""
        return {name: self._memory(name, pending) for name, pending in self.inputs.items()}

    def element_count(self, name: str) -> int:
        """How many elements of a stream are read."""
        reads = self.reads[name]
        return sum(
            sum(each.count for each in view.key_ranges if each.next <= reads[number])
            if view.key_ranges
            else max(min(reads[number], view.next) - view.first, 0)
            for number, view in self.partitions[name].items()
            if view.next < UNBOUNDED
        )

    def _cut(self, name: str, pending: PendingInput, span: Span) -> Span:
        source = pending.stream.inlet.source
        if isinstance(source, Cuttable):
            span = source.cut(span, reads=self.reads[name], passes=self.passes[name])
        elif any(offset < UNBOUNDED for offset in self.passes[name].values()):
            span = with_mark_kept(span)
        count = self.element_count(name)
        if name != self.root:
            return TurnDetail(count).added_to(span)
        windows = windows_to_json(self.windows) if self.windows is not None else None
        return TurnDetail(count, pending.memory.done_level, self.until, self.runs, windows).added_to(span)

    def _memory(self, name: str, pending: PendingInput) -> StreamMemory:
        views, is_root = self.partitions[name], name == self.root
        has_level = is_root and pending.stream.keys and not self.runs and not self._passes_whole(name)
        ends = {number: upto for number, (_, upto) in pending.offsets.items() if upto < UNBOUNDED}
        return StreamMemory(
            last={number: view.last for number, view in views.items() if view.last},
            next_unseen={**pending.memory.next_unseen, **ends},
            ends=self._ends(name),
            done_level=self.until if has_level else NOTHING,
            promised_level=max(self.promised_levels.get(name, NOTHING), pending.memory.promised_level),
            has_stopped=is_root and self.stops,
            has_rest=any(view.has_rest for view in views.values()),
            expressions=pending.stream.expressions,
        )

    def _passes_whole(self, name: str) -> bool:
        """Whether the mark passes all rows of a table; those that come later may have any keys."""
        offsets = self.passes[name].values()
        return bool(offsets) and all(offset >= UNBOUNDED for offset in offsets)

    def _ends(self, name: str) -> dict[int, int]:
        """Where partitions ended: those whose end is behind the mark and will not be met again, or by the clock."""
        pending, views, passes = self.inputs[name], self.partitions[name], self.passes[name]
        met = {n: view for n, view in views.items() if view.has_end_message and passes[n] >= view.beyond}
        late = views if name in pending.not_waited_for.late_streams else {}
        return {**{n: view.beyond for n, view in {**late, **met}.items()}, **pending.memory.ends}


@dataclass(frozen=True)
class Planner:
    """The tree of a mill, and how its turns are cut."""

    root: Node
    streams: Mapping[str, StreamInput]
    has_window: bool

    def plan(self, inputs: Inputs, scans: Scans, windows: TimedWindows | None = None) -> Turn:
        """The next turn; `windows` have taken what lies below `level_to_ask`.

        Raises KeyDecreased where a stream goes back behind what was joined.
        """
        views = partitions_of(inputs, scans)
        if windows is not None:
            plan = self._plan_joined_windows if self.root.branches else self._plan_windows
            return plan(inputs, views, windows)
        if not self.streams[self.root.name].keys:
            return self._plan_all(inputs, views)
        if self.is_in_runs(inputs[self.root.name]):
            return self._plan_runs(inputs, views)
        return self._plan_joined(inputs, views)

    def level_to_ask(self, inputs: Inputs, scans: Scans) -> Level:
        """Which elements a window function is asked about: of a single stream all, of joined ones those that are final.

        Only below the horizon the order of the master is known, over all its partitions.
        """
        if not self.root.branches:
            return EVERYTHING
        return horizon(self.root, partitions_of(inputs, scans), inputs[self.root.name].memory.done_level).until

    def is_in_runs(self, pending: PendingInput) -> bool:
        """Whether windows are runs of neighbours in one partition: then their keys may go down."""
        is_alone = self.has_window and not self.root.branches and pending.stream.inlet.is_ordered
        return is_alone and len(pending.offsets) <= 1

    def _plan_all(self, inputs: Inputs, views: Mapping[str, Partitions]) -> Turn:
        """A stream without keys: every element is final as soon as it is there."""
        name, own = self.root.name, views[self.root.name]
        live = frozenset((name, number) for number, view in own.items() if view.state != "ended")
        passes, reads = {n: view.beyond for n, view in own.items()}, {n: view.next for n, view in own.items()}
        return Turn(inputs, views, name, {name: passes}, {name: reads}, stops=not live, waits_for=live)

    def _plan_runs(self, inputs: Inputs, views: Mapping[str, Partitions]) -> Turn:
        """Windows of one partition: all but the last run of equal keys, which may go on."""
        name = self.root.name
        ((number, view),) = views[name].items()
        stops = view.state == "ended"
        open_run = max((each.run for each in view.key_ranges if each.run is not None), default=view.first)
        passes, reads = (view.beyond, view.next) if stops else (open_run, open_run)
        waits_for = frozenset({(name, number)})
        ends = ({name: {number: passes}}, {name: {number: reads}})
        return Turn(inputs, views, name, *ends, stops, waits_for, runs=True)

    def _plan_joined(self, inputs: Inputs, views: Mapping[str, Partitions]) -> Turn:
        name = self.root.name
        reached = horizon(self.root, views, inputs[name].memory.done_level)
        passes = {each: _passes(own, reached, reached.needed_levels[each]) for each, own in views.items()}
        reads = {each: {n: view.next for n, view in own.items()} for each, own in views.items()}
        reads[name] = {n: view.end_below(reached.until) for n, view in views[name].items()}
        promised = promised_levels(self.root, views)
        return Turn(inputs, views, name, passes, reads, reached.stops, reached.waits_for, reached.until, promised)

    def _plan_windows(self, inputs: Inputs, views: Mapping[str, Partitions], windows: TimedWindows) -> Turn:
        """Windows that a function decided, of a single stream: those that are over are given out."""
        name, own = self.root.name, views[self.root.name]
        stops = all(view.state == "ended" for view in own.values())
        seen_upto = {number: view.next for number, view in own.items()}
        closed = windows.closed_windows(has_ended=stops, seen_upto=seen_upto)
        passes = {number: view.beyond for number, view in own.items()} if stops else offsets_behind(own, closed)
        waits_for = frozenset((name, number) for number in own)
        ends = ({name: passes}, {name: _reads(own, passes)})
        return Turn(inputs, views, name, *ends, stops, waits_for, windows=closed)

    def _plan_joined_windows(self, inputs: Inputs, views: Mapping[str, Partitions], windows: TimedWindows) -> Turn:
        """The same of a master that is joined: what its elements that stay behind the mark may want is still needed."""
        name, own = self.root.name, views[self.root.name]
        reached = horizon(self.root, views, inputs[name].memory.done_level)
        closed = windows.closed_windows(has_ended=reached.stops)
        behind = offsets_behind(own, closed)
        level = reached.until if reached.stops else min(reached.until, _lowest_left(own, behind))
        needed = needed_from(self.root, views, level)
        passes = {each: _passes(views[each], reached, needed[each]) for each in views}
        passes[name] = passes[name] if reached.stops else behind
        reads = {each: {number: view.next for number, view in views[each].items()} for each in views}
        reads[name] = _reads(own, behind)
        waits_for = reached.waits_for | {(name, number) for number in own}
        promised = promised_levels(self.root, views)
        return Turn(inputs, views, name, passes, reads, reached.stops, waits_for, level, promised, windows=closed)


def partitions_of(inputs: Inputs, scans: Scans) -> dict[str, Partitions]:
    """Every stream as the horizon sees it."""
    return {name: pending.partitions(scans.get(name, {})) for name, pending in inputs.items()}


def _passes(views: Partitions, reached: Horizon, needed: Level) -> dict[int, int]:
    """A mark stays before what is still needed; where the mill stops, ended partitions are left behind whole."""
    return {
        number: view.beyond if reached.stops and view.state == "ended" else view.first_from(needed)
        for number, view in views.items()
    }


def offsets_behind(own: Partitions, windows: Sequence[OffsetRanges]) -> dict[int, int]:
    """The offsets behind these windows."""
    offsets = {number: view.first for number, view in own.items()}
    for window in windows:
        offsets |= {number: upto for number, (_, upto) in window.items()}
    return offsets


def _reads(own: Partitions, passes: Mapping[int, int]) -> dict[int, int]:
    return {number: min(offset, own[number].next) for number, offset in passes.items()}


def _lowest_left(own: Partitions, passes: Mapping[int, int]) -> Level:
    """The level of the first element that stays behind the mark."""
    left = [next((each for each in view.key_ranges if each.next > passes[n]), None) for n, view in own.items()]
    return min((at(each.low[0]) for each in left if each), default=EVERYTHING)

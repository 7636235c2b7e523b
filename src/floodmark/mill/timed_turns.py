"""Turns of a mill whose windows a function tells: they are decided already, and those that are over are given out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from floodmark.mill.horizon import EVERYTHING, Lanes, Level, at, horizon, needed_from
from floodmark.mill.lateness import promised
from floodmark.mill.planning import Planner, Turn
from floodmark.mill.scouting import Found
from floodmark.mill.stretches import Stretch
from floodmark.mill.timed import Ranges, TimedWindows


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

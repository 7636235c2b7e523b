"""Turns of a mill whose windows a function tells: they are decided already, and those that are over are given out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

from floodmark.mill.horizon import EVERYTHING, Lanes, Level, at, horizon, needed_from
from floodmark.mill.lateness import promised
from floodmark.mill.planning import Planner, Turn
from floodmark.mill.scouting import Found
from floodmark.mill.stretches import Stretch
from floodmark.mill.timed import Ranges, TimedWindows


def plan_timed(
    planner: Planner,
    stretches: Mapping[str, Stretch],
    found: Mapping[str, Mapping[int, Found]],
    windows: TimedWindows,
) -> Turn:
    """The next turn; with a join, a window is given out when every one of its elements is final."""
    lanes = {name: stretch.lanes(found.get(name, {})) for name, stretch in stretches.items()}
    return (
        _joined(planner, stretches, lanes, windows)
        if planner.root.branches
        else _alone(planner, stretches, lanes, windows)
    )


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
    final = {number: lane.passed(reached.until) for number, lane in own.items()}
    given = final_windows(windows, own, final, stops=reached.stops)
    level = reached.until if reached.stops else min(reached.until, _lowest_left(own, passed(own, given)))
    needed = needed_from(root, lanes, level)
    passes = {
        each: {
            number: lane.beyond if reached.stops and lane.state == "ended" else lane.passed(needed[each])
            for number, lane in lanes[each].items()
        }
        for each in lanes
    }
    reads = {each: {number: lane.next for number, lane in lanes[each].items()} for each in lanes}
    reads[name] = _read(own, passed(own, given))
    passes[name] = passes[name] if reached.stops else passed(own, given)
    waits = reached.waits_for | {(name, number) for number in own}
    return Turn(
        stretches, lanes, name, level, passes, reads, reached.stops, waits, promised(root, lanes), windows=given
    )


def final_windows(windows: TimedWindows, own: Lanes, final: Mapping[int, int], *, stops: bool) -> list[Ranges]:
    """The windows that are over and have all their partners; where the mill stops, what of each is final."""
    if stops:
        cut = [{n: (first, min(upto, final[n])) for n, (first, upto) in w.items()} for w in windows.closed(ended=True)]
        whole = [{n: (first, upto) for n, (first, upto) in window.items() if first < upto} for window in cut]
        return [window for window in whole if window]
    ended = all(lane.state == "ended" for lane in own.values())
    over = windows.closed(ended=ended)
    return list(takewhile(lambda window: all(upto <= final[n] for n, (_, upto) in window.items()), over))


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

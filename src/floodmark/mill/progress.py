"""What a mill knows from turn to turn while it runs: when streams last rose, what it waits for, how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from floodmark.mill.horizon import Level
from floodmark.mill.inputs import Shelf
from floodmark.mill.pending import Stretch, Waiting
from floodmark.mill.planning import Turn, held
from floodmark.mill.timed import TimedWindows
from floodmark.sources.contract import Sight

if TYPE_CHECKING:
    from floodmark.mill.brokers import Inlet


@dataclass(frozen=True)
class StreamProgress:
    """One stream: elements read so far by this process, offsets that wait behind its mark, and its highest key."""

    elements: int = 0
    lag: int = 0
    key: object = None


@dataclass(frozen=True)
class Progress:
    """How far a mill is; everything below `horizon`, in the master's key, was given to the process function."""

    streams: Mapping[str, StreamProgress] = field(default_factory=dict)
    horizon: object = None
    turns: int = 0
    is_over: bool = False


@dataclass
class Watch:
    """The memory of a running mill; what has to outlive it is in the record.

    `limit` bounds the elements of a turn; it grows while a turn is too small to hold two different keys.
    """

    inlets: Mapping[str, Inlet]
    max_elements: int | None = None
    idle_after_seconds: float | None = None
    timed: TimedWindows | None = None
    now: Callable[[], float] = time.monotonic
    is_over: bool = False
    limit: int | None = None
    number: int | None = None
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    rose: dict[tuple[str, int], float] = field(default_factory=dict)
    risen: set[tuple[str, int]] = field(default_factory=set)
    known: set[tuple[str, int]] = field(default_factory=set)
    waited: Waiting = field(default_factory=Waiting)
    turn: Turn | None = None
    turns: int = 0
    read: dict[str, int] = field(default_factory=dict)
    late: dict[tuple[str, int], int] = field(default_factory=dict)
    """Up to which offset of a lane those that came too late were told of."""
    shelf: Shelf = field(default_factory=Shelf)

    def __post_init__(self) -> None:
        self.limit = self.max_elements
        self.begun = self.now()

    def anew(self) -> Watch:
        """One that has seen nothing yet, of the same streams."""
        return Watch(self.inlets, self.max_elements, self.idle_after_seconds, self.timed, self.now)

    def begin(self) -> None:
        """A new run: time-outs count from now, and what ended has ended."""
        self.begun, self.rose, self.is_over, self.number = self.now(), {}, False, None

    def waiting(self) -> Waiting:
        """Whom nobody waits for any longer, by the clock."""
        names = [name for name, inlet in self.inlets.items() if self._is_late(name, inlet.data_timeout_seconds)]
        after = self.idle_after_seconds
        idle = {lane for lane in self.ends if after is not None and self._since(lane) >= after}
        return Waiting(frozenset(names), frozenset(idle), leaves_out_late=after is not None)

    def note(self, stretches: Mapping[str, Stretch]) -> None:
        """Where the streams end now, and which of their lanes have risen."""
        ends = {(name, lane): upto for name, each in stretches.items() for lane, (_, upto) in each.ranges.items()}
        risen = {lane for lane, upto in ends.items() if upto > self.ends.get(lane, -1)}
        self.rose.update(dict.fromkeys(risen & self.ends.keys(), self.now()))
        self.risen |= risen
        self.ends = ends

    def is_worth_reading(self, number: int, waiting: Waiting) -> bool:
        """Whether the horizon can have risen: one of the lanes that held it has, or the clock let go of one."""
        is_new = number != self.number or waiting != self.waited or self.turn is None
        is_due = self.timed is not None and self.timed.is_due()
        held = self.turn.waits_for | (self.risen - self.known) if self.turn else frozenset()
        self.waited = waiting
        return is_new or is_due or bool(self.risen & held)

    def saw(self, number: int, turn: Turn) -> None:
        self.number, self.turn = number, turn
        self.risen, self.known = set(), set(self.ends)
        if turn.moves:
            self.limit, self.turns = self.max_elements, self.turns + 1
            for name in turn.stretches:
                self.read[name] = self.read.get(name, 0) + turn.elements(name)

    def is_told(self, name: str, lane: int) -> bool:
        """Whether this look's late elements were told of by an earlier look; from now on they are."""
        upto = self.ends.get((name, lane), 0)
        told = self.late.get((name, lane)) == upto
        self.late[name, lane] = upto
        return told

    def widened(self, stretches: Mapping[str, Stretch]) -> bool:
        """Whether the next look shall see more: this one was full, and yet nothing in it was final."""
        sizes = [sum(upto - first for first, upto in each.ranges.values()) for each in stretches.values()]
        if self.limit is None or max(sizes, default=0) < self.limit:
            return False
        self.limit *= 2
        return True

    def waiting_sights(self) -> dict[str, Sight]:
        """Why there is nothing to do, as the last look found it."""
        if self.turn is None:
            return {}
        return {self.turn.root: Sight(None, held_reason=held(self.turn))}

    def progress(self) -> Progress:
        """How far the last look got."""
        turn = self.turn
        if turn is None:
            return Progress(is_over=self.is_over)
        streams = {name: self._stream(name, turn) for name in turn.stretches}
        return Progress(streams, shown_level(turn.until), self.turns, self.is_over or turn.stops)

    def _stream(self, name: str, turn: Turn) -> StreamProgress:
        lanes, passes = turn.lanes[name], turn.passes[name]
        lag = sum(max(lane.beyond - passes.get(number, lane.first), 0) for number, lane in lanes.items())
        keys = [lane.last[0] for lane in lanes.values() if lane.last]
        return StreamProgress(self.read.get(name, 0), lag, max(keys, default=None))

    def _is_late(self, name: str, timeout: float | None) -> bool:
        if timeout is None:
            return False
        rises = [at for (stream, _), at in self.rose.items() if stream == name]
        return self.now() - max(rises, default=self.begun) >= timeout

    def _since(self, lane: tuple[str, int]) -> float:
        return self.now() - self.rose.get(lane, self.begun)


def shown_level(level: Level) -> object:
    """A level as people read it: the key, or None where everything, or nothing, lies below."""
    return level[1] if len(level) > 1 else None

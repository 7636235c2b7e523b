"""How far a mill is, and what it knows from turn to turn while it runs: when streams last rose, whom it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from floodmark.mill.horizon import UNBOUNDED, Level
from floodmark.mill.inputs import MessageCache
from floodmark.mill.pending import NotWaitedFor
from floodmark.mill.planning import Inputs, Turn
from floodmark.mill.windows import TimedWindows
from floodmark.sources.contract import Sight

if TYPE_CHECKING:
    from floodmark.mill.brokers import Inlet

PartitionId: TypeAlias = tuple[str, int]
"""A partition by its stream and its number."""


@dataclass(frozen=True)
class StreamProgress:
    """One stream: elements read so far by this process, offsets that wait behind its mark, and its highest key."""

    elements: int = 0
    lag: int = 0
    key: object = None


@dataclass(frozen=True)
class Progress:
    """How far a mill is; everything below `horizon`, in the master's key, was given to the process function.

    >>> Progress(turns=3, horizon=120).is_over
    False
    """

    streams: Mapping[str, StreamProgress] = field(default_factory=dict)
    horizon: object = None
    turns: int = 0
    is_over: bool = False


@dataclass
class RunState:
    """What a running mill knows; what has to outlive it is in the record.

    `limit` bounds the elements of a turn; it grows while a turn is too small to hold two different keys.
    """

    inlets: Mapping[str, Inlet]
    max_elements: int | None = None
    idle_after_seconds: float | None = None
    windows: TimedWindows | None = None
    now: Callable[[], float] = time.monotonic
    is_over: bool = False
    cache: MessageCache = field(default_factory=MessageCache)
    limit: int | None = field(init=False)
    start_time: float = field(init=False)
    record_number: int | None = None
    """That of the record at the last look that read something."""
    turn: Turn | None = None
    turns: int = 0
    not_waited_for: NotWaitedFor = field(default_factory=NotWaitedFor)
    offset_ends: dict[PartitionId, int] = field(default_factory=dict)
    uptos: dict[str, object] = field(default_factory=dict)
    """By stream, how far the last look reached: for tables, whose offsets do not tell."""
    rise_times: dict[PartitionId, float] = field(default_factory=dict)
    risen_partitions: set[PartitionId] = field(default_factory=set)
    known_partitions: set[PartitionId] = field(default_factory=set)
    elements_read: dict[str, int] = field(default_factory=dict)
    late_upto: dict[PartitionId, int] = field(default_factory=dict)
    """Up to which offset of a partition those that came too late were reported."""

    def __post_init__(self) -> None:
        self.limit, self.start_time = self.max_elements, self.now()

    def blank(self) -> RunState:
        """One that has seen nothing yet, of the same streams."""
        return RunState(self.inlets, self.max_elements, self.idle_after_seconds, self.windows, self.now)

    def begin(self) -> None:
        """A new run: time-outs count from now, and what ended has ended."""
        self.start_time, self.rise_times, self.is_over = self.now(), {}, False
        self.forget_look()

    def note_offsets(self, inputs: Inputs) -> None:
        """Where the streams end now, and which of their partitions have risen."""
        ends = partition_ends(inputs)
        risen = {each for each, upto in ends.items() if upto > self.offset_ends.get(each, -1)}
        uptos = {name: own.span.upto.value for name, own in inputs.items() if own.span is not None}
        risen |= {
            each for each, upto in ends.items() if upto >= UNBOUNDED and uptos[each[0]] != self.uptos.get(each[0])
        }
        self.uptos = uptos
        self.rise_times.update(dict.fromkeys(risen & self.offset_ends.keys(), self.now()))
        self.risen_partitions |= risen
        self.offset_ends = ends

    def whom_not_to_wait_for(self) -> NotWaitedFor:
        """Streams that timed out and partitions that are idle, by the clock."""
        timeouts = {name: inlet.data_timeout_seconds for name, inlet in self.inlets.items()}
        late = [name for name, timeout in timeouts.items() if self._is_late(name, timeout)]
        after = self.idle_after_seconds
        idle = {each for each in self.offset_ends if after is not None and self._idle_seconds(each) >= after}
        return NotWaitedFor(frozenset(late), frozenset(idle), leaves_out_late=after is not None)

    def is_worth_reading(self, number: int, not_waited_for: NotWaitedFor) -> bool:
        """Whether the horizon can have risen: one of the partitions that held it has, or the clock let go of one."""
        is_new = number != self.record_number or not_waited_for != self.not_waited_for or self.turn is None
        if self.windows is not None and self.windows.is_followed:
            self.not_waited_for = not_waited_for
            return is_new or self.windows.has_news()
        is_due = self.windows is not None and self.windows.is_due()
        self.not_waited_for = not_waited_for
        return is_new or is_due or self._is_any_waited_for(self.risen_partitions)

    def are_waited_for(self, inputs: Inputs) -> bool:
        """Whether something of these that the last look did not reach is what the horizon waits for."""
        ends = partition_ends(inputs)
        return self._is_any_waited_for({each for each, upto in ends.items() if upto > self.offset_ends.get(each, -1)})

    def _is_any_waited_for(self, risen: AbstractSet[PartitionId]) -> bool:
        return self.turn is not None and bool(risen & self.turn.waits_for or risen - self.known_partitions)

    def forget_look(self) -> None:
        """What the last look found was not done, so the next one reads again, whether anything has risen or not."""
        self.record_number = None

    def note_turn(self, number: int, turn: Turn) -> None:
        """What the look at this record makes of the streams."""
        self.record_number, self.turn = number, turn
        self.risen_partitions, self.known_partitions = set(), set(self.offset_ends)
        if turn.moves:
            self.limit, self.turns = self.max_elements, self.turns + 1
            self.note_elements({name: turn.element_count(name) for name in turn.inputs})

    def note_elements(self, counts: Mapping[str, int]) -> None:
        """So many more elements of these streams were read."""
        for name, count in counts.items():
            self.elements_read[name] = self.elements_read.get(name, 0) + count

    def is_reported(self, name: str, partition: int) -> bool:
        """Whether this look's late elements were reported by an earlier look; from now on they are."""
        upto = self.offset_ends.get((name, partition), 0)
        was_reported = self.late_upto.get((name, partition)) == upto
        self.late_upto[name, partition] = upto
        return was_reported

    def widen(self, inputs: Inputs) -> bool:
        """Whether the next look shall see more: this one was full, and yet nothing in it was final."""
        if self.limit is None or not self.is_full(inputs):
            return False
        self.limit *= 2
        return True

    def is_full(self, inputs: Inputs) -> bool:
        """Whether there may be more of a stream than the look was allowed to see."""
        sizes = [sum(upto - first for first, upto in each.offsets.values()) for each in inputs.values()]
        return self.limit is not None and max(sizes, default=0) >= self.limit

    def waiting_sights(self) -> dict[str, Sight]:
        """Why there is nothing to do, as the last look found it."""
        return {self.turn.root: Sight(None, held_reason=self.turn.held_reason)} if self.turn else {}

    def progress(self) -> Progress:
        """How far the last look got."""
        turn = self.turn
        if turn is None:
            return Progress(is_over=self.is_over)
        streams = {name: self._stream_progress(name, turn) for name in turn.inputs}
        return Progress(streams, display_key(turn.until), self.turns, self.is_over or turn.stops)

    def _stream_progress(self, name: str, turn: Turn) -> StreamProgress:
        views, passes = turn.partitions[name], turn.passes[name]
        lag = sum(max(view.beyond - passes.get(number, view.first), 0) for number, view in views.items())
        keys = [view.last[0] for view in views.values() if view.last]
        return StreamProgress(self.elements_read.get(name, 0), lag, max(keys, default=None))

    def _is_late(self, name: str, timeout: float | None) -> bool:
        if timeout is None:
            return False
        rises = [at for (stream, _), at in self.rise_times.items() if stream == name]
        return self.now() - max(rises, default=self.start_time) >= timeout

    def _idle_seconds(self, partition: PartitionId) -> float:
        return self.now() - self.rise_times.get(partition, self.start_time)


def partition_ends(inputs: Inputs) -> dict[PartitionId, int]:
    """Where the partitions of all streams end, as far as a look reached."""
    return {(name, each): upto for name, own in inputs.items() for each, (_, upto) in own.offsets.items()}


def display_key(level: Level) -> object:
    """A level as people read it: the key, or None where everything, or nothing, lies below."""
    return level[1] if len(level) > 1 else None

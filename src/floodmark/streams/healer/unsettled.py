"""The records of a stream that are not settled, as the driver knows them, and what the next turn does about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from floodmark.probes.kafka import Offsets, Place
from floodmark.streams.healer.looking import StreamOutlook
from floodmark.streams.healer.progress import Progress, Range, StreamProgress
from floodmark.streams.policy import FailedRecords, RetryBudget
from floodmark.streams.task.folder import StateFolder
from floodmark.streams.task.journal import FailedRecord, read_failures


@dataclass(frozen=True)
class TurnLimit:
    """How far a turn may go: up to these offsets, if any are given; there, steps let go what they hold if asked to."""

    upto: Offsets | None = None
    flushes: bool = False


@dataclass(frozen=True)
class TurnPlan:
    """What a turn has to do."""

    number: int
    progress: StreamProgress
    """Where the partitions stand before it."""
    reads: Mapping[Place, Range] = field(default_factory=dict)
    retries: FailedRecords = field(default_factory=dict)
    visits: frozenset[Place] = frozenset()
    """Partitions with held records and nothing new; they are looked at again with the others, or by the clock."""
    held_offsets: Mapping[Place, frozenset[int]] = field(default_factory=dict)
    """Records that the last turn of this run has carried over."""
    flushes: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.reads or self.retries or self.visits)

    @property
    def places(self) -> list[Place]:
        return sorted({*self.reads, *self.retries, *self.visits})


@dataclass(frozen=True)
class HeldRecords:
    """Records that steps held when a turn of this run ended; `due_at` is when the clock lets them go, if it does."""

    number: int
    offsets: frozenset[int]
    due_at: float | None
    is_flushed: bool = False
    """Whether that turn let go what it could: these are kept, whoever asks."""


@dataclass
class UnsettledRecords:
    """Who waits, and for what: failed records for their next attempt, held ones for their batch, others to be read."""

    state: StateFolder
    budget: RetryBudget
    held_records: dict[Place, HeldRecords] = field(default_factory=dict)

    def begin(self, places: Iterable[Place]) -> None:
        """A run begins: it may try everything again, also what failed in a batch that is open; and nothing is held."""
        self.held_records = {}
        self.budget.begin({place: read_failures(self.state.failures(place)) for place in places})

    def plan(self, number: int, outlook: StreamOutlook, limit: TurnLimit, now: float) -> TurnPlan:
        """What the turn of this number does, by what was seen; it flushes where it comes to the end of its reach."""
        ends = limit.upto or outlook.ends
        upto = {place: outlook.reads.get(place, (0, each.read_upto))[1] for place, each in outlook.progress.items()}
        flushes = limit.flushes and all(upto[place] >= ends.get(place, 0) for place in upto)
        is_due = any(held.due_at is not None and held.due_at <= now for held in self.held_records.values())
        retries = self.budget.due_records(self.failed_records(outlook.progress), now)
        can_flush = flushes and any(not held.is_flushed for held in self.held_records.values())
        is_at_work = bool(outlook.reads or retries or is_due or can_flush)
        return TurnPlan(
            number=number,
            progress=outlook.progress,
            reads=outlook.reads,
            retries=retries,
            visits=frozenset(self.held_records if is_at_work else ()) - frozenset(outlook.reads),
            held_offsets=self.held_offsets(),
            flushes=flushes,
        )

    def plan_again(
        self, number: int, progress: StreamProgress, reads: Mapping[Place, Range], now: float, *, flushes: bool
    ) -> TurnPlan:
        """The plan of a turn that was begun before: the same span, and what its journals say is settled stays so."""
        retries, held = self.budget.due_records(self.failed_records(progress), now), self.held_offsets()
        begun = {place for place in progress if self.state.states(number, place).exists()}
        return TurnPlan(number, progress, reads, retries, frozenset({*held, *begun}) - {*reads}, held, flushes)

    def failed_records(self, progress: StreamProgress) -> dict[Place, dict[int, FailedRecord]]:
        """The failed records of every partition that is stuck."""
        failed = {place: self._failed_at(place, each) for place, each in progress.items() if each.is_stuck}
        return {place: own for place, own in failed.items() if own}

    def spent_records(self, progress: StreamProgress) -> dict[Place, dict[int, FailedRecord]]:
        """Those that this run tries no more and that keep the mark where it is."""
        spent = self.budget.spent_records(self.failed_records(progress))
        return {place: {each.offset: each for each in own} for place, own in spent.items()}

    def to_put_aside(self, failed: FailedRecords) -> dict[Place, list[FailedRecord]]:
        """Those that become dead letters: this run tries them no more, and the policy says so."""
        return self.budget.spent_records(failed) if self.budget.policy.puts_aside else {}

    def to_read_again(self, progress: StreamProgress) -> dict[Place, int]:
        """The lowest record of each partition that waits and that neither we have nor a step holds."""
        lowest: dict[Place, int] = {}
        for place, each in progress.items():
            waiting = set(each.unsettled_offsets()) if each.is_stuck else set()
            waiting -= self._failed_at(place, each).keys() if waiting else set()
            waiting -= self.held_records[place].offsets if place in self.held_records else set()
            if waiting:
                lowest[place] = min(waiting)
        return lowest

    def held_offsets(self) -> dict[Place, frozenset[int]]:
        return {place: held.offsets for place, held in self.held_records.items()}

    def carried_from(self) -> int | None:
        """The turn in which the steps' state was kept; all that is held is from the last one."""
        return max((held.number for held in self.held_records.values()), default=None)

    def next_due_at(self, progress: StreamProgress) -> float | None:
        """When there is something to do though nothing new comes."""
        retry_at = self.budget.next_due_at(self.failed_records(progress))
        times = [retry_at, *(held.due_at for held in self.held_records.values())]
        return min((at for at in times if at is not None), default=None)

    def _failed_at(self, place: Place, progress: Progress) -> dict[int, FailedRecord]:
        failed = read_failures(self.state.failures(place))
        return {o: each for o, each in failed.items() if o < progress.read_upto and not progress.is_settled(o)}

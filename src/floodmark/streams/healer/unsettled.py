"""The records of a stream that are not settled, as the driver knows them: failed, held by a step, or not there yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from floodmark.probes.kafka import Place
from floodmark.streams.healer import journal as failures
from floodmark.streams.healer.journal import Failed, StateFolder
from floodmark.streams.healer.progress import Progress
from floodmark.streams.healing_step import OnError

# Which failed records run again, and when: the policy of a stream applied to its log of failures.
FailedRecords: TypeAlias = "Mapping[Place, Mapping[int, Failed]]"


@dataclass
class Tries:
    """The attempts that this run may make; those of earlier runs do not count, so every run tries at least once."""

    policy: OnError
    before: dict[tuple[Place, int], int] = field(default_factory=dict)

    def begin(self, failed: FailedRecords) -> None:
        """A run begins, with these records failed already."""
        self.before = {(place, offset): each.attempts for place, own in failed.items() for offset, each in own.items()}

    def made(self, place: Place, failed: Failed) -> int:
        """How often this run has tried the record."""
        return failed.attempts - self.before.get((place, failed.offset), 0)

    def are_used_up(self, place: Place, failed: Failed) -> bool:
        return self.made(place, failed) >= self.policy.attempts

    def due_at(self, place: Place, failed: Failed) -> float:
        """When the record may run again, in seconds of the epoch; at once, if this run has not tried it."""
        made = self.made(place, failed)
        return failed.last_at + self.policy.pause_seconds(made) if made else 0.0

    def due(self, failed: FailedRecords, now: float) -> dict[Place, dict[int, Failed]]:
        """The records that run again now."""
        chosen = {
            place: {offset: each for offset, each in own.items() if self._is_due(place, each, now)}
            for place, own in failed.items()
        }
        return {place: own for place, own in chosen.items() if own}

    def next_due_at(self, failed: FailedRecords) -> float | None:
        """When the next record runs again; None if none will."""
        left = [(place, each) for place, own in failed.items() for each in own.values()]
        return min((self.due_at(*each) for each in left if not self.are_used_up(*each)), default=None)

    def given_up(self, failed: FailedRecords) -> dict[Place, list[Failed]]:
        """The records that this run tries no more."""
        chosen = {p: [each for each in own.values() if self.are_used_up(p, each)] for p, own in failed.items()}
        return {place: own for place, own in chosen.items() if own}

    def _is_due(self, place: Place, failed: Failed, now: float) -> bool:
        return not self.are_used_up(place, failed) and self.due_at(place, failed) <= now


@dataclass(frozen=True)
class Held:
    """Records that steps held when a turn of this run ended; `due_at` is when the clock lets them go, if it does."""

    number: int
    offsets: frozenset[int]
    due_at: float | None


@dataclass
class Ward:
    """Who waits, and for what."""

    state: StateFolder
    tries: Tries
    held: dict[Place, Held] = field(default_factory=dict)

    def begin(self, places: Iterable[Place]) -> None:
        """A run begins: it may try everything again, also what failed in a batch that is open; and nothing is held."""
        self.held = {}
        self.tries.begin({place: failures.read(self.state.failures(place)) for place in places})

    def failed(self, standing: Mapping[Place, Progress]) -> dict[Place, dict[int, Failed]]:
        """The failed records of every partition that is stuck."""
        found = {place: self._failed(place, each) for place, each in standing.items() if each.is_stuck}
        return {place: own for place, own in found.items() if own}

    def to_read_again(self, standing: Mapping[Place, Progress]) -> dict[Place, int]:
        """The lowest record of each partition that waits and that neither we have nor a step holds."""
        lowest: dict[Place, int] = {}
        for place, progress in standing.items():
            waiting = set(progress.unsettled()) if progress.is_stuck else set()
            waiting -= self._failed(place, progress).keys() if waiting else set()
            waiting -= self.held[place].offsets if place in self.held else set()
            if waiting:
                lowest[place] = min(waiting)
        return lowest

    def due_places(self, now: float) -> frozenset[Place]:
        """Partitions whose held records the clock lets go."""
        return frozenset(p for p, held in self.held.items() if held.due_at is not None and held.due_at <= now)

    def held_offsets(self) -> dict[Place, frozenset[int]]:
        return {place: held.offsets for place, held in self.held.items()}

    def carried_from(self) -> dict[Place, int]:
        """The turns in which the steps' state was kept."""
        return {place: held.number for place, held in self.held.items()}

    def next_due_at(self, standing: Mapping[Place, Progress]) -> float | None:
        """When there is something to do though nothing new comes."""
        again = self.tries.next_due_at(self.failed(standing))
        clocks = [held.due_at for held in self.held.values() if held.due_at is not None]
        return min([*clocks, *([] if again is None else [again])], default=None)

    def _failed(self, place: Place, progress: Progress) -> dict[int, Failed]:
        found = failures.read(self.state.failures(place))
        return {o: each for o, each in found.items() if o < progress.reached and not progress.is_settled(o)}

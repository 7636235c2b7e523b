"""Which failed records run again, and when: the policy of a stream applied to its log of failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from floodmark.probes.kafka import Place
from floodmark.streams.failures import Failed
from floodmark.streams.policy import OnError

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

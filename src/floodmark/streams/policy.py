"""What becomes of a record that fails: the stream stops at it, tries it again, or puts it aside as a dead letter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from floodmark.errors import ConfigError, UnknownKind
from floodmark.hwm.parsing import seconds_in
from floodmark.patience import doubling_pause

if TYPE_CHECKING:
    from floodmark.probes.kafka import Place
    from floodmark.streams.task.journal import FailedRecord

Then = Literal["stop", "dead_letter"]
LONGEST_PAUSE_SECONDS = 300.0
FailedRecords: TypeAlias = "Mapping[Place, Mapping[int, FailedRecord]]"


@dataclass(frozen=True)
class OnError:
    """How often a record runs, how long the pauses are (each twice the last), and what is done when all have failed.

    >>> policy = fm.streams.retry(3, "1s")
    >>> policy.attempts, [policy.pause_seconds(n) for n in (1, 2)], policy.then
    (4, [1.0, 2.0], 'stop')
    """

    attempts: int = 1
    backoff_seconds: float = 0.0
    then: Then = "stop"

    @property
    def puts_aside(self) -> bool:
        """Whether a record that has failed for good becomes a dead letter; else the run ends with an error."""
        return self.then == "dead_letter"

    def pause_seconds(self, attempts: int) -> float:
        """How long to wait after so many failed attempts."""
        return doubling_pause(self.backoff_seconds, attempts, LONGEST_PAUSE_SECONDS)


stop = OnError()
"""The others of the batch finish, the mark stops at the failed record, and the run ends with an error."""

dead_letter = OnError(then="dead_letter")
"""A failed record is put aside at once, and the mark goes on."""


def retry(times: int, backoff: str | float = 1.0, *, then: Then = "stop") -> OnError:
    """Try a failed record so many times again, after `backoff` (seconds, or text like '1s'), twice that, and so on.

    >>> retry(3, "1s", then="dead_letter")
    OnError(attempts=4, backoff_seconds=1.0, then='dead_letter')
    """
    if times < 1:
        raise ConfigError(f"retry({times}) tries nothing again.", hint="retry(3, backoff='1s'), or on_error='stop'")
    return on_error_of(OnError(times + 1, seconds_in(backoff, field="backoff"), then))


def on_error_of(policy: str | OnError) -> OnError:
    """The policy, however it was written."""
    if isinstance(policy, OnError):
        if policy.then not in get_args(Then):
            raise UnknownKind("end of on_error", str(policy.then), known=get_args(Then))
        return policy
    words = {"stop": stop, "dead_letter": dead_letter}
    if policy not in words:
        raise UnknownKind("on_error", str(policy), known=[*words, "retry(n, backoff)"])
    return words[policy]


@dataclass
class RetryBudget:
    """The attempts that this run may make; those of earlier runs do not count, so every run tries at least once."""

    policy: OnError
    earlier_attempts: dict[tuple[Place, int], int] = field(default_factory=dict)

    def begin(self, failed: FailedRecords) -> None:
        """A run begins, with these records failed already."""
        self.earlier_attempts = {(p, each.offset): each.attempts for p, own in failed.items() for each in own.values()}

    def attempts(self, place: Place, failed: FailedRecord) -> int:
        """How often this run has tried the record."""
        return failed.attempts - self.earlier_attempts.get((place, failed.offset), 0)

    def is_spent(self, place: Place, failed: FailedRecord) -> bool:
        return self.attempts(place, failed) >= self.policy.attempts

    def due_at(self, place: Place, failed: FailedRecord) -> float:
        """When the record may run again, in seconds of the epoch; at once, if this run has not tried it."""
        attempts = self.attempts(place, failed)
        return failed.last_at + self.policy.pause_seconds(attempts) if attempts else 0.0

    def due_records(self, failed: FailedRecords, now: float) -> dict[Place, dict[int, FailedRecord]]:
        """The records that run again now."""
        chosen = {p: {o: each for o, each in own.items() if self._is_due(p, each, now)} for p, own in failed.items()}
        return {place: own for place, own in chosen.items() if own}

    def next_due_at(self, failed: FailedRecords) -> float | None:
        """When the next record runs again; None if none will."""
        records = [(place, each) for place, own in failed.items() for each in own.values()]
        return min((self.due_at(*each) for each in records if not self.is_spent(*each)), default=None)

    def spent_records(self, failed: FailedRecords) -> dict[Place, list[FailedRecord]]:
        """The records that this run tries no more."""
        chosen = {p: [each for each in own.values() if self.is_spent(p, each)] for p, own in failed.items()}
        return {place: own for place, own in chosen.items() if own}

    def _is_due(self, place: Place, failed: FailedRecord, now: float) -> bool:
        return not self.is_spent(place, failed) and self.due_at(place, failed) <= now

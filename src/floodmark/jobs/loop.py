"""Running jobs again and again: ticks never overlap, late ones are not made up for, a failure is tried again."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, DecisionNeeded, LeaseHeld
from floodmark.jobs.running import Outcome, Runnable, exit_code
from floodmark.logs import get_logger
from floodmark.probes.durations import seconds_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from floodmark.jobs.stopping import Stopping

log = get_logger(__name__)
DEFAULT_EVERY = "5s"
NEEDS_A_PERSON = (DecisionNeeded, ConfigError)


@dataclass
class Turn:
    """A job in the loop: when it is due, how often it has failed in a row, and the outcome that ended it."""

    job: Runnable
    every_seconds: float
    due: float
    failures: int = 0
    ended: Outcome | None = None

    def after(self, now: float) -> float:
        """The next tick of its beat that lies ahead; those that passed meanwhile are one."""
        missed = max(0, math.floor((now - self.due) / self.every_seconds))
        return self.due + (missed + 1) * self.every_seconds

    def backoff_seconds(self) -> float:
        """Twice as long after each failure."""
        return float(self.job.retries.backoff_seconds * 2 ** (self.failures - 1))


@dataclass
class Loop:
    """Runs every job at its own beat until it is asked to stop or no job is left."""

    run: Callable[[Runnable], Outcome]
    stopping: Stopping
    report: Callable[[Outcome], None]
    clock: Callable[[], float] = time.monotonic
    turns: list[Turn] = field(default_factory=list)

    def go(self, jobs: Sequence[Runnable], every: str | None = None) -> int:
        """Loop over the jobs; `every` goes over their own. Returns the exit code."""
        now = self.clock()
        self.turns = [
            Turn(job, seconds_in(every or job.every or DEFAULT_EVERY, field="every"), due=now) for job in jobs
        ]
        while self._waiting() and not self.stopping.requested:
            turn = min(self._waiting(), key=lambda each: each.due)
            if not self.stopping.wait(turn.due - self.clock()):
                self._tick(turn)
        return self._exit_code()

    def _waiting(self) -> list[Turn]:
        return [turn for turn in self.turns if turn.ended is None]

    def _exit_code(self) -> int:
        ended = [turn.ended for turn in self.turns if turn.ended is not None]
        return exit_code(ended) if len(ended) == len(self.turns) else exit_code(ended) and 3

    def _tick(self, turn: Turn) -> None:
        outcome = self.run(turn.job)
        if outcome.error is not None:
            self._failed(turn, outcome, outcome.error)
            return
        turn.failures, turn.due = 0, turn.after(self.clock())
        if outcome.receipt.status == "nothing_new":
            log.debug("nothing new", job=turn.job.name)
            return
        self.report(outcome)

    def _failed(self, turn: Turn, outcome: Outcome, error: Exception) -> None:
        turn.failures += 1
        if isinstance(error, NEEDS_A_PERSON):
            turn.ended = outcome
            self.report(outcome)
        elif turn.failures < turn.job.retries.attempts and not isinstance(error, LeaseHeld):
            turn.due = self.clock() + turn.backoff_seconds()
            log.warning("run failed, trying again", job=turn.job.name, failures=turn.failures, error=str(error))
        else:
            turn.failures, turn.due = 0, turn.after(self.clock())
            self.report(outcome)

"""Running jobs again and again: ticks never overlap, late ones are not made up for, a failure is tried again."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from floodmark.errors import LeaseHeld
from floodmark.jobs.running import NEEDS_A_PERSON, Outcome, Runnable, backoff_seconds, exit_code
from floodmark.logs import get_logger
from floodmark.probes.durations import seconds_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from floodmark.step.stopping import Stopping

log = get_logger(__name__)
DEFAULT_EVERY = "5s"


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

    def retry(self, error: Exception, now: float) -> float:
        """When to try again: soon while attempts are left, then at its beat, or later the longer the trouble lasts."""
        if isinstance(error, LeaseHeld):
            return self.after(now)  # the other run works; at the next tick there is nothing left to do, or more
        soon = now + backoff_seconds(self.job.retries, self.failures)
        return soon if self.failures < self.job.retries.attempts else max(soon, self.after(now))


@dataclass
class Loop:
    """Runs every job at its own beat until it is asked to stop or no job is left."""

    run: Callable[[Runnable], Outcome]
    stopping: Stopping
    report: Callable[[Outcome], None]
    clock: Callable[[], float] = time.monotonic
    status: Callable[[str], None] = lambda _text: None
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
        if turn.failures:
            log.info("works again", job=turn.job.name, failures=turn.failures)
            self.status("")
        turn.failures, turn.due = 0, turn.after(self.clock())
        if outcome.receipt.status == "nothing_new":
            held, notes = outcome.receipt.rows_held_back, outcome.receipt.notes
            log.debug("rows are held back" if held else "nothing new", job=turn.job.name, rows=held, notes=notes)
            return
        self.report(outcome)

    def _failed(self, turn: Turn, outcome: Outcome, error: Exception) -> None:
        """A broker or database that went away is waited for; it is told once, when the attempts are used up."""
        turn.failures += 1
        if isinstance(error, NEEDS_A_PERSON):
            turn.ended = outcome
            self.report(outcome)
            return
        turn.due = turn.retry(error, self.clock())
        pause = round(turn.due - self.clock(), 1)
        self.status(f"{turn.job.name}: failing, trying again in {pause:g} s")
        log.warning(
            "run failed, trying again", job=turn.job.name, failures=turn.failures, seconds=pause, error=str(error)
        )
        if turn.failures == turn.job.retries.attempts:
            self.report(outcome)

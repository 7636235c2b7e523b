"""Running jobs: a whole run of one, several one after the other, and all of them again and again in a loop."""

from __future__ import annotations

import math
import time
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Protocol

from floodmark.errors import (
    ConfigError,
    DecisionNeeded,
    FloodmarkError,
    LeaseHeld,
    RuleBroken,
    StoreError,
    StoreUnreachable,
)
from floodmark.hwm.parsing import seconds_in
from floodmark.logs import get_logger
from floodmark.patience import doubling_pause, raise_interruption_behind, stop_requested
from floodmark.step.engine import Clock
from floodmark.step.listeners import tell
from floodmark.step.work import RunRequest, display_marks
from floodmark.stores.record import Receipt, RuleOutcome
from floodmark.stores.run_logs import begun_run, noting_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from floodmark.patience import StopRequest
    from floodmark.step import Step
    from floodmark.stores.contract import MarkStore


log = get_logger(__name__)
SOME_FAILED = 3
NEEDS_A_PERSON = (DecisionNeeded, ConfigError)
"""Errors that another attempt cannot fix."""
LONGEST_PAUSE_SECONDS = 60.0
DEFAULT_EVERY = "5s"


class RetryRule(Protocol):
    """How often, and with which first pause."""

    @property
    def attempts(self) -> int: ...
    @property
    def backoff_seconds(self) -> float: ...


class Runnable(Protocol):
    """What running needs of a job."""

    @property
    def name(self) -> str: ...
    @property
    def every(self) -> str | None: ...
    @property
    def retries(self) -> RetryRule: ...

    def run_request(
        self,
        request: RunRequest,
        spark: Callable[[], SparkSession] | None = None,
        store: MarkStore | None = None,
    ) -> Receipt:
        """One run; raises a FloodmarkError if it fails."""


@dataclass(frozen=True)
class Outcome:
    """How a job's run ended; `error` is what it raised."""

    receipt: Receipt
    error: Exception | None = None

    @property
    def exit_code(self) -> int:
        """What the command line returns if this is the only job."""
        if self.error is None:
            return 0
        return self.error.exit_code if isinstance(self.error, FloodmarkError) else 1


class LookNotes:
    """When a loop's look at a job has to be noted again: at once, and then every half minute.

    A note is a durable write, and health counts in minutes and hours: with hundreds of idle jobs, a note for each look
    would be most of what a loop does. Jobs are not all due at one tick: their second note comes sooner, each at a
    moment of its own.
    """

    SECONDS = 30.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[str, float] = {}

    def is_due(self, job: str) -> bool:
        """Whether to note it; whoever asks does so then."""
        now, due = self._clock(), self._due.get(job)
        if due is not None and now < due:
            return False
        share = 1.0 if due is not None else zlib.crc32(job.encode()) % 1000 / 1000
        self._due[job] = now + self.SECONDS * share
        return True


@dataclass(frozen=True)
class Runner:
    """Runs jobs with one session and one store, which are reused so that their caches live on."""

    store: MarkStore
    session: Callable[[], SparkSession]
    options: RunRequest = field(default_factory=RunRequest)
    notes_looks: bool = False
    """Whether a look that found nothing is noted in the store, so that health can tell an idle loop from a dead one."""
    _look_notes: LookNotes = field(default_factory=LookNotes, repr=False, compare=False)

    def run(self, job: Runnable) -> Outcome:
        """Run the job once; whatever it raises becomes its outcome."""
        clock = Clock()
        try:
            receipt = job.run_request(self.options, self.session, self.store)
            if self.notes_looks and receipt.status == "nothing_new" and self._look_notes.is_due(job.name):
                self.store.looked(job.name, clock.started)
            return Outcome(receipt)
        except Exception as error:
            raise_interruption_behind(error)
            log.debug("run failed", job=job.name, exc_info=True)
            ended = Receipt(job.name, clock.run, "failed", clock.started, clock.elapsed(), error=str(error))
            is_store = isinstance(error, StoreUnreachable)  # asked again, it would be waited for again
            receipt = ended if is_store else self._with_store_facts(ended)
            if not isinstance(error, LeaseHeld):
                tell(self.options.listeners, lambda each: each.failed(receipt))
            return Outcome(receipt, error)

    def run_patiently(self, job: Runnable, wait: Callable[[float], bool]) -> Outcome:
        """Run the job, and again as its `retries` say while that may help; `wait` is True if somebody asks to stop."""
        outcome = self.run(job)
        for failures in range(1, job.retries.attempts):
            hopeless = outcome.error is None or isinstance(outcome.error, (*NEEDS_A_PERSON, LeaseHeld))
            if hopeless or wait(backoff_seconds(job.retries, failures)):
                break
            log.warning("run failed, trying again", job=job.name, failures=failures, error=str(outcome.error))
            outcome = self.run(job)
        return outcome

    def _with_store_facts(self, failed: Receipt) -> Receipt:
        """The receipt with what the store knows: how far the job itself says it came, and where its mark is now."""
        try:
            newest, record = self.store.runs(failed.job, limit=1), self.store.read(failed.job)
        except StoreError:
            return failed
        # a second's grace: a store may cut fractions off
        ours = [r for r in newest if r.status == "failed" and r.started >= failed.started - timedelta(seconds=1)]
        kept = replace(ours[0], seconds=failed.seconds) if ours else failed
        mark = display_marks(record.marks) if record else None
        return replace(kept, mark_before=mark if kept.mark_before is None else kept.mark_before, mark_after=mark)


def run_each(jobs: Sequence[Runnable], runner: Runner, wait: Callable[[float], bool]) -> Iterator[Outcome]:
    """The outcome of each job in turn; once somebody asked to stop (`wait` says so), the rest is skipped."""
    for job in jobs:
        if wait(0):
            yield Outcome(Receipt(job.name, "", "skipped", datetime.now(timezone.utc), notes=("stopped before it",)))
        else:
            yield runner.run_patiently(job, wait)


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """0 if none failed, 3 if some did, and the error's own code if all did (1 if their codes differ)."""
    codes = [outcome.exit_code for outcome in outcomes]
    failed = {code for code in codes if code}
    if not failed:
        return 0
    if 0 in codes:
        return SOME_FAILED
    return failed.pop() if len(failed) == 1 else 1


def total(earlier: Receipt, later: Receipt) -> Receipt:
    """Two runs of a job as one, for the summary of a loop; a look that found nothing changes nothing."""
    if later.status == "nothing_new" and earlier.status != "nothing_new":
        return replace(earlier, mark_after=later.mark_after)
    return replace(earlier.followed_by(later), notes=later.notes)  # a loop runs for ever, its notes must not grow


def backoff_seconds(retries: RetryRule, failures: int) -> float:
    """Twice as long after each failure in a row, up to a minute."""
    return doubling_pause(retries.backoff_seconds, failures, LONGEST_PAUSE_SECONDS)


@dataclass
class Turn:
    """A job in the loop: when it is due, how often it has failed in a row, and the outcome that ended it."""

    job: Runnable
    every_seconds: float
    due: float
    failures: int = 0
    last_outcome: Outcome | None = None

    def next_tick(self, now: float) -> float:
        """The next tick of its beat that lies ahead; those that passed meanwhile are one."""
        missed = max(0, math.floor((now - self.due) / self.every_seconds))
        return self.due + (missed + 1) * self.every_seconds

    def retry(self, error: Exception, now: float) -> float:
        """When to try again: soon while attempts are left, then at its beat, or later the longer the trouble lasts."""
        if isinstance(error, LeaseHeld):
            return self.next_tick(now)  # the other run works; at the next tick there is nothing left to do, or more
        soon = now + backoff_seconds(self.job.retries, self.failures)
        return soon if self.failures < self.job.retries.attempts else max(soon, self.next_tick(now))


@dataclass
class Loop:
    """Runs every job at its own beat until it is asked to stop or no job is left.

    Ticks of a job never overlap, late ones are not made up for, and a failure is tried again.
    """

    run: Callable[[Runnable], Outcome]
    stopping: StopRequest
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
        while self._turns_left() and not self.stopping.is_requested:
            turn = min(self._turns_left(), key=lambda each: each.due)
            if not self.stopping.wait(turn.due - self.clock()):
                self._tick(turn)
        return self._exit_code()

    def _turns_left(self) -> list[Turn]:
        return [turn for turn in self.turns if turn.last_outcome is None]

    def _exit_code(self) -> int:
        last = [turn.last_outcome for turn in self.turns if turn.last_outcome is not None]
        return exit_code(last) if len(last) == len(self.turns) else exit_code(last) and SOME_FAILED

    def _tick(self, turn: Turn) -> None:
        outcome = self.run(turn.job)
        if outcome.error is not None:
            self._retry_later(turn, outcome, outcome.error)
            return
        if turn.failures:
            log.info("works again", job=turn.job.name, failures=turn.failures)
            self.status("")
        turn.failures, turn.due = 0, turn.next_tick(self.clock())
        if outcome.receipt.status == "nothing_new":
            held, notes = outcome.receipt.rows_held_back, outcome.receipt.notes
            log.debug("rows are held back" if held else "nothing new", job=turn.job.name, rows=held, notes=notes)
            return
        self.report(outcome)

    def _retry_later(self, turn: Turn, outcome: Outcome, error: Exception) -> None:
        """A broker or database that went away is waited for; that is reported once, when the attempts are used up."""
        turn.failures += 1
        if isinstance(error, NEEDS_A_PERSON):
            turn.last_outcome = outcome
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


def run_to_the_end(step: Step) -> Receipt:
    """One batch; where it was an open one, the next as well, so that one run leaves nothing behind."""
    first = step.run()
    if first.status != "done" or not first.recovered:
        return first
    second = replace(step, request=replace(step.request, finish=False, abandon=False)).run()
    return first.followed_by(second) if second.status == "done" else first


@dataclass(frozen=True)
class Chunks:
    """Runs a step in chunks of so many rows; `most` bounds them all together."""

    step: Step
    rows: int
    most: int | None = None
    clock: Callable[[], float] = field(default=time.monotonic)

    def run(self) -> Receipt:
        """One receipt for all chunks; each of them is committed, and stays if the next one fails."""
        begun = self.clock()
        whole = last = self._step(0, is_first=True).run()
        while self._goes_on(whole, last) and not stop_requested():
            self._log(Pace(whole.rows_read, self.clock() - begun, last.rows_read, self.step.last_seen.ahead))
            last = self._step(whole.rows_read, is_first=False).run()
            if last.status != "done":
                break
            whole = whole.followed_by(last)
        return whole

    def _goes_on(self, whole: Receipt, last: Receipt) -> bool:
        is_full = last.recovered or last.rows_read >= self.rows
        return last.status == "done" and is_full and (self.most is None or whole.rows_read < self.most)

    def _step(self, read: int, *, is_first: bool) -> Step:
        """What a person asked for, as --from, is of the first chunk; the others go on from the mark."""
        limit = self.rows if self.most is None else min(self.rows, self.most - read)
        asked = self.step.request
        later = replace(asked, start=None, full_refresh=False, finish=False, abandon=False)
        return replace(self.step, request=replace(asked if is_first else later, max_rows=limit))

    def _log(self, pace: Pace) -> None:
        left = pace.seconds_left
        log.info(
            "chunk done",
            job=self.step.work.name,
            rows=pace.rows,
            rows_per_second=round(pace.rows_per_second),
            seconds_left=None if left is None else round(left),
        )


@dataclass(frozen=True)
class Pace:
    """How fast rows come, and how long the rest will take at this rate."""

    rows: int
    seconds: float
    last_rows: int = 0
    ahead: float | None = None
    """The share of what lay above the mark that is left for later chunks."""

    @property
    def rows_per_second(self) -> float:
        return self.rows / max(self.seconds, 0.001)

    @property
    def seconds_left(self) -> float | None:
        """By the share that the last chunk was; None where the source cannot tell how far it reaches."""
        if self.ahead is None or self.ahead >= 1:
            return None
        return self.last_rows * self.ahead / (1 - self.ahead) / max(self.rows_per_second, 0.001)


@contextmanager
def noting_failure(step: Step) -> Iterator[None]:
    """Whatever is raised is kept for `floodmark runs`, with an id and how long it took, and goes on."""
    clock = Clock()
    with noting_run():
        try:
            yield
        except Exception as error:
            raise_interruption_behind(error)
            note_failure(step, error, replace(clock, run=begun_run() or clock.run))  # the run that failed has a log
            raise


def note_failure(step: Step, error: Exception, clock: Clock) -> None:
    """Keep the failure for `floodmark runs`; a store that is itself the trouble cannot, and the error says so."""
    if isinstance(error, LeaseHeld | StoreUnreachable):
        return
    results = error.results if isinstance(error, RuleBroken) else ()
    rules = tuple(RuleOutcome.deserialize(result) for result in results)
    with suppress(FloodmarkError):
        step.store.add_run(failed(step.work.name, step.store, str(error), clock, rules))


def failed(job: str, store: MarkStore, error: str, clock: Clock, rules: tuple[RuleOutcome, ...] = ()) -> Receipt:
    """A run that ended badly: it has an id as any other, and the mark stands where the store has it."""
    record = store.read(job)
    mark = display_marks(record.marks) if record else None
    ended = Receipt(job, clock.run, "failed", clock.started, clock.elapsed(), error=error, rules=rules)
    return replace(ended, mark_before=mark, mark_after=mark)

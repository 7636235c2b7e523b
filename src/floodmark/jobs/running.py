"""Running jobs one after the other: a job that fails is an outcome, not the end of the others."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Protocol

from floodmark.errors import ConfigError, DecisionNeeded, FloodmarkError, LeaseHeld, StoreError
from floodmark.logs import get_logger
from floodmark.step.work import RunRequest, shown
from floodmark.stores.record import Receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from floodmark.stores.contract import MarkStore

log = get_logger(__name__)
SOME_FAILED = 3
NEEDS_A_PERSON = (DecisionNeeded, ConfigError)
"""Errors that trying again cannot mend."""
LONGEST_PAUSE_SECONDS = 60.0


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

    def run(
        self,
        spark: Callable[[], SparkSession] | None = None,
        store: MarkStore | None = None,
        *,
        start: str | None = None,
        full_refresh: bool = False,
        max_rows: int | None = None,
        finish: bool = False,
        abandon: bool = False,
        waits_for_settling: bool = True,
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


@dataclass(frozen=True)
class Runner:
    """Runs jobs with one session and one store, which are reused so that their caches live on."""

    store: MarkStore
    session: Callable[[], SparkSession]
    options: RunRequest = field(default_factory=RunRequest)
    notes_looks: bool = False
    """Whether a look that found nothing is noted in the store, so that health can tell an idle loop from a dead one."""

    def run(self, job: Runnable) -> Outcome:
        """Run the job once; whatever it raises becomes its outcome."""
        started, clock = datetime.now(timezone.utc), time.monotonic()
        try:
            receipt = job.run(self.session, self.store, **vars(self.options))
            if self.notes_looks and receipt.status == "nothing_new":
                self.store.looked(job.name, started)
            return Outcome(receipt)
        except Exception as error:
            log.debug("run failed", job=job.name, exc_info=True)
            failed = Receipt(job.name, "", "failed", started, time.monotonic() - clock, error=str(error))
            return Outcome(self._told_by_the_store(failed), error)

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

    def _told_by_the_store(self, failed: Receipt) -> Receipt:
        """The receipt with what the store knows: how far the job itself says it came, and where its mark is now."""
        try:
            newest, record = self.store.runs(failed.job, limit=1), self.store.read(failed.job)
        except StoreError:
            return failed
        # a second's grace: a store may cut fractions off
        ours = [r for r in newest if r.status == "failed" and r.started >= failed.started - timedelta(seconds=1)]
        kept = replace(ours[0], seconds=failed.seconds) if ours else failed
        mark = shown(record.marks) if record else None
        return replace(kept, mark_before=mark if kept.mark_before is None else kept.mark_before, mark_after=mark)


def backoff_seconds(retries: RetryRule, failures: int) -> float:
    """Twice as long after each failure in a row, up to a minute."""
    return float(min(LONGEST_PAUSE_SECONDS, retries.backoff_seconds * 2 ** min(failures - 1, 16)))


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

"""How long a store keeps history and receipts, and when it is cleaned: after a run that did something, now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from floodmark.errors import FloodmarkError
from floodmark.hwm.parsing import seconds_in
from floodmark.logs import get_logger
from floodmark.stores.paged import surplus
from floodmark.stores.run_logs import RunLogs

if TYPE_CHECKING:
    from floodmark.stores.contract import MarkStore
    from floodmark.stores.paged import PruneCounts
    from floodmark.stores.record import Receipt

log = get_logger(__name__)
CLEANED_EVERY_SECONDS = 3600.0
"""In a loop; what is kept for months need not go to the minute."""


@dataclass(frozen=True)
class Retention:
    """What is kept: history, receipts and logs of so long, and the newest `keep_at_least` of each in any case."""

    history: str = "90d"
    keep_at_least: int = 20
    runs: str = "180d"
    logs: str = "30d"

    def surplus(self, store: MarkStore, job: str, now: datetime) -> PruneCounts:
        """How much would go."""
        history, runs = self._limits(now)
        return surplus(store, job, history_before=history, keep_at_least=self.keep_at_least, runs_before=runs)

    def prune(self, store: MarkStore, job: str, now: datetime) -> PruneCounts:
        """How much went."""
        history, runs = self._limits(now)
        return store.prune(job, history_before=history, keep_at_least=self.keep_at_least, runs_before=runs)

    def prune_logs(self, store: MarkStore, job: str, now: datetime) -> int:
        """How many logs of runs went."""
        logs, age = RunLogs.of(store), timedelta(seconds=seconds_in(self.logs, field="retention.logs"))
        return logs.prune(job, before=now - age, keep_at_least=self.keep_at_least) if logs else 0

    def forget_logs(self, store: MarkStore, job: str) -> None:
        """Remove every log of a job that is forgotten."""
        logs = RunLogs.of(store)
        if logs is not None:
            logs.make_room(job, 0)

    def _limits(self, now: datetime) -> tuple[datetime, datetime]:
        history = timedelta(seconds=seconds_in(self.history, field="retention.history"))
        return now - history, now - timedelta(seconds=seconds_in(self.runs, field="retention.runs"))


@dataclass
class Cleaner:
    """Cleans the store behind a job that has run, at most once an hour; one that found nothing new adds nothing."""

    store: MarkStore
    retention: Retention
    clock: Callable[[], float] = time.monotonic
    _cleaned_at: dict[str, float] = field(default_factory=dict)

    def after(self, receipt: Receipt) -> None:
        """Called when a run has ended: it is done, so nothing that goes wrong here may fail it."""
        last = self._cleaned_at.get(receipt.job)
        if receipt.status == "nothing_new" or (last is not None and self.clock() - last < CLEANED_EVERY_SECONDS):
            return
        self._cleaned_at[receipt.job] = self.clock()
        now = datetime.now(timezone.utc)
        try:
            gone = self.retention.prune(self.store, receipt.job, now)
            self.retention.prune_logs(self.store, receipt.job, now)
        except FloodmarkError as error:
            log.info("the store was not cleaned", job=receipt.job, reason=error.message)
            return
        if gone.history or gone.runs:
            log.info("cleaned the store", job=receipt.job, history=gone.history, runs=gone.runs)

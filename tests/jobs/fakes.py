"""Jobs whose runs are written down beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone

from floodmark.jobs.job import Retries
from floodmark.sinks import Console
from floodmark.sources import Files
from floodmark.step import RunRequest
from floodmark.stores.record import Receipt

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def done(job: str = "orders", rows: int = 2, before: int | None = 3, after: int = 5) -> Receipt:
    written = {"lake": rows}
    return Receipt(job, "r1", "done", NOON, 1.5, 1, 7, rows, written, mark_before=before, mark_after=after)


def nothing_new(job: str = "orders") -> Receipt:
    return Receipt(job, "r2", "nothing_new", NOON, 0.01, mark_before=5, mark_after=5)


@dataclass
class ScriptedJob:
    """Runs give these outcomes in order; the last one for ever. `calls` keeps what each run was asked."""

    name: str
    outcomes: list[Receipt | Exception]
    every: str | None = None
    retries: Retries = field(default_factory=Retries)
    calls: list[dict[str, object]] = field(default_factory=list)
    during: Callable[[], None] = lambda: None
    sources: tuple[object, ...] = (Files("in"),)
    transform: None = None
    sinks: tuple[object, ...] = (Console(),)

    def run_request(self, request: RunRequest, spark: object = None, store: object = None) -> Receipt:
        self.during()
        outcome = self.outcomes[min(len(self.calls), len(self.outcomes) - 1)]
        self.calls.append(vars(request))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

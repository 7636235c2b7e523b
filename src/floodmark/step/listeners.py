"""Who is told of runs while they happen: listeners of a run's beginning and end, and the user's own tracing.

Neither can fail a run: what goes wrong with them is logged. Nothing here imports OpenTelemetry: a process that has it
set up has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Protocol

from floodmark.errors import LeaseHeld
from floodmark.logs import get_logger
from floodmark.stores.record import Receipt, new_run_id

log = get_logger(__name__)
TRACER = "floodmark"


class RunListener(Protocol):
    """Told of every run that has something to do."""

    def began(self, job: str, run: str, at: datetime) -> None:
        """A batch is about to be written; called under the job's lease, so it should not take long."""

    def ended(self, receipt: Receipt) -> None:
        """Its mark has moved."""

    def failed(self, receipt: Receipt) -> None:
        """It failed, whether it had begun or not; the receipt has the error. A retry is a run of its own."""


def tell(listeners: Sequence[RunListener], event: Callable[[RunListener], None]) -> None:
    """Tell each of them; one that fails is logged, and keeps nobody from the run."""
    for listener in listeners:
        try:
            event(listener)
        except Exception as error:  # noqa: BLE001 - whoever only listens must not break the pipeline
            log.warning("a listener was not told", listener=type(listener).__name__, error=str(error))


@dataclass
class OpenRun:
    """Knows which run of an act has begun and not ended: if the act fails, that is the one that failed."""

    run: str | None = None
    started: datetime | None = None

    def began(self, _job: str, run: str, at: datetime) -> None:
        self.run, self.started = run, at

    def ended(self, _receipt: Receipt) -> None:
        self.run = self.started = None

    def failed(self, _receipt: Receipt) -> None:
        """Whoever runs the act tells of that."""


@contextmanager
def telling(listeners: Sequence[RunListener], job: str) -> Iterator[tuple[RunListener, ...]]:
    """The listeners for an act that writes beside the runs of a job; if the block fails, they are told of that.

    A job that another run holds is no failure: the act did not begin.
    """
    open_run, begun = OpenRun(), datetime.now(timezone.utc)
    try:
        yield (*listeners, open_run)
    except LeaseHeld:
        raise
    except Exception as error:
        started = open_run.started or begun
        seconds = (datetime.now(timezone.utc) - started).total_seconds()
        receipt = Receipt(job, open_run.run or new_run_id(), "failed", started, seconds, error=str(error))
        tell(listeners, lambda each: each.failed(receipt))
        raise


def span(name: str, **facts: str | int) -> AbstractContextManager[object]:
    """A span of the user's own OpenTelemetry around a block; nothing where this process has none."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return nullcontext()
    attributes = {f"floodmark.{key}": fact for key, fact in facts.items()}
    made: AbstractContextManager[object] = trace.get_tracer(TRACER).start_as_current_span(
        f"floodmark {name}", attributes=attributes
    )
    return made

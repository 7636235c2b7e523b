"""Who is told of runs while they happen: listeners of a run's beginning and end, and the user's own tracing.

Neither can fail a run: what goes wrong with them is logged. Nothing here imports OpenTelemetry: a process that has it
set up has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

from floodmark.logs import get_logger

if TYPE_CHECKING:
    from datetime import datetime

    from floodmark.stores.record import Receipt


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

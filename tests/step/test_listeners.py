"""Who is told of runs: listeners, which cannot fail one, and the user's own tracing."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

import pytest

from floodmark import stores
from floodmark.errors import LeaseHeld
from floodmark.step.listeners import tell, telling
from floodmark.step.work import RunRequest
from floodmark.stores.record import Receipt
from tests.step.unsparked import LedgerSink, step_of

ROOT = Path(__file__).parents[2]
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


@dataclass
class Notebook:
    """Writes down what it is told."""

    lines: list[str] = field(default_factory=list)

    def began(self, job: str, run: str, at: datetime) -> None:
        self.lines.append(f"began {job}")

    def ended(self, receipt: Receipt) -> None:
        self.lines.append(f"ended {receipt.rows_read}")

    def failed(self, receipt: Receipt) -> None:
        self.lines.append("failed")


class Broken(Notebook):
    """Fails at whatever it is told."""

    def began(self, job: str, run: str, at: datetime) -> None:
        raise ConnectionError("nobody there")

    def ended(self, receipt: Receipt) -> None:
        raise ConnectionError("nobody there")


def test_a_listener_is_told_of_a_batch_and_not_of_an_idle_look() -> None:
    """A loop looks every few seconds."""
    store, notes, sink = stores.open("memory"), Notebook(), LedgerSink("list")
    step = step_of(store, [1, 2], sink, request=RunRequest(listeners=(notes,)))
    step.run()
    step.run()
    assert notes.lines == ["began numbers", "ended 2"]


def test_a_listener_that_fails_does_not_fail_the_run() -> None:
    """Whoever only listens must not break the pipeline."""
    store, notes, sink = stores.open("memory"), Notebook(), LedgerSink("list")
    receipt = step_of(store, [1, 2], sink, request=RunRequest(listeners=(Broken(), notes))).run()
    assert (receipt.status, sink.rows, notes.lines) == ("done", [1, 2], ["began numbers", "ended 2"])


def failed_act(notes: Notebook, error: Exception) -> None:
    """An act whose second run began and did not end."""
    with telling((notes,), "numbers") as listeners:
        tell(listeners, lambda each: each.began("numbers", "first", NOON))
        tell(listeners, lambda each: each.ended(Receipt("numbers", "first", "done", NOON, rows_read=2)))
        tell(listeners, lambda each: each.began("numbers", "second", NOON))
        raise error


@dataclass
class Failures(Notebook):
    """Writes down which run failed."""

    def failed(self, receipt: Receipt) -> None:
        self.lines.append(f"failed {receipt.run}: {receipt.error}")


def test_an_act_that_fails_tells_of_the_run_that_had_begun() -> None:
    """Each run has one beginning and one end, also of a backfill or a replay."""
    notes = Failures()
    with pytest.raises(ConnectionError):
        failed_act(notes, ConnectionError("disk full"))
    assert notes.lines == ["began numbers", "ended 2", "began numbers", "failed second: disk full"]


def test_a_job_that_another_run_holds_is_no_failure_of_an_act() -> None:
    """It did not begin."""
    notes = Failures()
    with pytest.raises(LeaseHeld), telling((notes,), "numbers"):
        raise LeaseHeld("numbers", holder="somebody", since="2026-01-01T12:00:00+00:00")
    assert notes.lines == []


TRACED = """
import json
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from floodmark import stores
from tests.step.unsparked import LedgerSink, RunPaused, step_of

kept, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)
run = ""
try:
    run = step_of(stores.open("memory"), [1, 2], LedgerSink("list", pauses={pauses})).run().run
except RunPaused:
    pass
spans = kept.get_finished_spans()
[whole] = [span for span in spans if span.name == "floodmark run"]
beneath = [span for span in spans if span.parent and span.parent.span_id == whole.context.span_id]
phases = {{span.name: span.status.status_code.name for span in beneath}}
print(json.dumps([phases, dict(whole.attributes), run]))
"""
"""A process sets its tracing up once, and for good: so each of these has one of its own."""


def traced(*, pauses: bool) -> tuple[dict[str, str], dict[str, str], str]:
    """The phases of a run with their status, what its own span carries, and the id of its receipt."""
    program = TRACED.format(pauses=pauses)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    phases, attributes, run = json.loads(ran.stdout)
    return phases, attributes, run


def test_every_phase_of_a_run_is_a_span_under_the_run() -> None:
    """With the job and the run's id on it, so that a trace leads to the receipt."""
    phases, attributes, run = traced(pauses=False)
    assert list(phases) == [f"floodmark {name}" for name in ("look", "plan", "intent", "read", "list", "commit")]
    assert attributes == {"floodmark.job": "numbers", "floodmark.run": run}


def test_a_phase_that_fails_says_so_in_its_span() -> None:
    """As tracing tools show it."""
    phases, _, _ = traced(pauses=True)
    assert (phases["floodmark list"], phases["floodmark read"]) == ("ERROR", "UNSET")


def test_a_process_without_tracing_does_not_load_it() -> None:
    """Even where it is installed."""
    program = (
        "import sys; from floodmark.step.listeners import span\n"
        "with span('look'): pass\nprint('opentelemetry' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"

"""A job that has batch 3 in its sink, and in its dead letters and quarantine what a test says."""

from __future__ import annotations

from typing import Any

from floodmark.sinks.contract import Recorded
from floodmark.step.work import Work
from floodmark.testing import ListSink, RowsSource

LEDGER = "floodmark.default.numbers"


def work_of(*, letters: Recorded | None = None, quarantine: Recorded | None = None, **more: Any) -> Work:  # noqa: ANN401
    """A job whose sink has batch 3, as its dead letters and its quarantine have what is given."""
    sink, dead, aside = ListSink("lake"), ListSink("dead_letters"), ListSink("quarantine")
    known = {sink.name: Recorded(3, "digest"), dead.name: letters, aside.name: quarantine}
    for each in (sink, dead, aside):
        each.ledger.update({f"{LEDGER}.{each.name}": entry for entry in (known[each.name],) if entry})
    return Work("numbers", (RowsSource([]),), (sink,), dead_letters=dead, quarantine=aside, **more)

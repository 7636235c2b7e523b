"""Tables of rows that were put aside, as earlier versions wrote them, read without a JVM.

Both were made by the code at eb84c05, with every state that a row could be in; one row of the quarantine was claimed by
a replay that failed between two sinks.
"""

from __future__ import annotations

import json
from pathlib import Path

from floodmark.probes.set_aside import rows_set_aside

TABLES = Path(__file__).parent / "version_1" / "set_aside"


def test_dead_letters_are_read_with_their_states() -> None:
    """One was replayed, one failed again, one was given up."""
    rows = rows_set_aside(str(TABLES / "dead_letters"), "ids")
    assert sorted((json.loads(str(row.text))["v"], row.kind, row.status, row.attempts) for row in rows) == [
        ("eight", "dead_letter", "open", 2),
        ("nine", "dead_letter", "discarded", 1),
        ("seven", "dead_letter", "replayed", 2),
    ]


def test_a_quarantine_is_read_with_its_states() -> None:
    """A row of which a replay had begun says so."""
    rows = rows_set_aside(str(TABLES / "quarantine"), "shop")
    assert sorted((json.loads(str(row.record))["id"], row.kind, row.reasons, row.status) for row in rows) == [
        (2, "quarantine", ("positive",), "replayed"),
        (3, "quarantine", ("positive",), "replaying"),
        (4, "quarantine", ("positive",), "discarded"),
        (9, "quarantine", ("positive", "small id"), "open"),
    ]

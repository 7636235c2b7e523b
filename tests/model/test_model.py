"""The promise, tried in every order of a small world: no row is lost, none is twice, and the numbers add up.

Each case is a job, and what may happen to it: a kill or a pause at any call of store, source or sink, a change between
two runs, a paused run that goes on at any later call. All stories of a case are told, once each. `tests/crash` tells
longer ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.world import Setting, explore

KILLED = {"kills": 1, "pauses": 0, "thaws": 0}

CASES = {
    "killed anywhere": Setting("ap", **KILLED, has_malformed_row=True),
    "killed twice": Setting("a", kills=2, pauses=0, thaws=0, runs=3),
    "paused anywhere": Setting("a", batches_before=1),
    "paused before the first batch": Setting("aa", thaws=0),
    "paused, then other code": Setting("aa", batches_before=1, changes=("other code",)),
    "paused by pieces, then other code": Setting("p", thaws=0, changes=("other code",)),
    "paused, then given up by a person": Setting("a", batches_before=1, thaws=0, changes=("--abandon",)),
    "killed, then finished by a person": Setting("ap", **KILLED, changes=("--finish",)),
    "killed, and a table that is changed": Setting("aa", **KILLED, is_immutable=False, changes=("other rows",)),
    "killed, and a small batch of a table that is changed": Setting(
        "s", kills=2, pauses=0, thaws=0, runs=3, is_immutable=False, has_dead_letters=False, changes=("other rows",)
    ),
    "paused, and a small batch of a table": Setting(
        "s", is_immutable=False, has_dead_letters=False, changes=("new rows", "other code")
    ),
    "killed where the mark goes with the rows": Setting("at", **KILLED, has_malformed_row=True),
    "another source": Setting("aa", **KILLED, changes=("another source",)),
    "a sink is renamed": Setting("aa", **KILLED, batches_before=1, changes=("a sink is renamed",)),
    "a sink is renamed and restored": Setting(
        "a", kills=0, pauses=0, runs=3, changes=("a sink is renamed", "a sink is restored")
    ),
    "a sink is restored": Setting("ap", **KILLED, batches_before=1, changes=("a sink is restored",)),
    "a sink is restored under a paused run": Setting("a", batches_before=1, changes=("a sink is restored",)),
    "a sink that loses rows": Setting("aa", **KILLED, loses_rows=True, is_immutable=False),
    "dead letters": Setting("a", has_malformed_row=True, thaws=0),
    "dead letters that are moved": Setting(
        "a",
        has_malformed_row=True,
        kills=1,
        changes=("the dead letters are moved",),
        thaws=0,
        points=("guard", "after its commit", "store: commit"),
    ),
    "dead letters of a table that is corrected": Setting(
        "a", **KILLED, has_malformed_row=True, is_immutable=False, changes=("malformed rows are corrected",)
    ),
    "dead letters of a frozen table that is corrected": Setting(
        "aa", **KILLED, has_malformed_row=True, is_immutable=False, changes=("malformed rows are corrected",)
    ),
    "dead letters and a mark that goes with the rows": Setting(
        "t", **KILLED, has_malformed_row=True, changes=("other code",)
    ),
}


LONG = (
    *("killed twice", "paused anywhere", "paused, then other code", "a sink is restored under a paused run"),
    "paused, and a small batch of a table",
)
"""Cases of thousands of stories."""


@pytest.mark.parametrize("case", [pytest.param(c, marks=[pytest.mark.slow] if c in LONG else []) for c in CASES])
def test_no_row_is_lost_or_twice(case: str, tmp_path: Path) -> None:
    """Whatever happens between two calls; a story that ends otherwise is printed with its calls."""
    assert explore(CASES[case], tmp_path / "spool") > 3

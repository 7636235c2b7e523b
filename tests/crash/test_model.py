"""The model of the protocol with more in one story than `make test` has time for: see `tests/model`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.world import Setting, explore

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

EXHAUSTIVE = {
    "a kill and a pause": Setting("a", kills=1, batches_before=1),
    "a kill and a pause, and other code": Setting(
        "a", kills=1, thaws=0, runs=3, changes=("other code", "the code as it was")
    ),
    "two pauses, and other code": Setting("a", pauses=2, thaws=0, changes=("nothing", "other code")),
    "three sinks, and other code": Setting("aap", changes=("nothing", "other code")),
    "a table that changes": Setting("ap", is_immutable=False, changes=("nothing", "other rows", "other code")),
    "a person": Setting("aa", batches_before=1, changes=("--abandon", "--finish")),
}


@pytest.mark.parametrize("case", EXHAUSTIVE)
def test_every_story_is_exact(case: str, tmp_path: Path) -> None:
    """All of them, depth first."""
    assert explore(EXHAUSTIVE[case], tmp_path / "spool") > 100

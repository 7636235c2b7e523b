"""The model of the protocol, told by dice: thousands of random stories, longer than all of them could be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.scheduling import random_tapes
from tests.model.world import CHANGES, ROW_CHANGES, Setting, explore

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

STORIES = 2_000
LONG = {"kills": 2, "pauses": 2, "thaws": 2, "runs": 4}
OF_A_TABLE = tuple(CHANGES)
OF_A_LOG = tuple(name for name in CHANGES if name not in ROW_CHANGES)

RANDOM = {
    "one sink": Setting("a", **LONG, changes=OF_A_LOG),
    "two sinks of a table": Setting("aa", **LONG, changes=OF_A_TABLE, is_immutable=False),
    "by pieces": Setting("pa", **LONG, changes=OF_A_LOG, batches_before=1, has_malformed_row=True),
    "a table by pieces": Setting("ap", **LONG, changes=OF_A_TABLE, batches_before=1, is_immutable=False),
    "three sinks": Setting("apt", **LONG, changes=OF_A_LOG, batches_before=1, has_malformed_row=True),
}


@pytest.mark.parametrize("case", RANDOM)
def test_stories_by_dice_are_exact(case: str, tmp_path: Path) -> None:
    """Too many to tell them all: these are always the same ones."""
    assert explore(RANDOM[case], tmp_path / "spool", random_tapes(1, STORIES)) == STORIES

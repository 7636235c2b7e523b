"""Every law of the Delta sink is judged for large batches and for small ones, which take other ways into the table."""

from __future__ import annotations

from functools import partial

import pytest

from tests.sinks.batches import SMALL, UNKNOWN, BatchMaker
from tests.sinks.batches import batch as make_batch


@pytest.fixture(params=[UNKNOWN, SMALL], ids=["large", "small"])
def batch(request: pytest.FixtureRequest) -> BatchMaker:
    """Batches of unknown size, and small ones."""
    return partial(make_batch, size=request.param)

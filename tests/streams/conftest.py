"""What the tests of streams share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.streams.harness import StreamHarness

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from floodmark.testing.servers import Broker


@pytest.fixture
def harness(kafka: Broker, spark: SparkSession, tmp_path: Path) -> StreamHarness:
    """Streams of this test alone: a group, a store and a file of calls."""
    return StreamHarness(kafka, spark, tmp_path)

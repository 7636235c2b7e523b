"""What the tests of streams share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.streams.healing_streams import Clinic

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from floodmark.testing.servers import Broker


@pytest.fixture
def clinic(kafka: Broker, spark: SparkSession, tmp_path: Path) -> Clinic:
    """Streams of this test alone: a group, a store and a file of calls."""
    return Clinic(kafka, spark, tmp_path)

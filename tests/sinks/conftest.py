"""What tests of sinks write first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sinks.batches import ID_V, frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def ab(spark: SparkSession) -> DataFrame:
    return frame(spark, ID_V, (1, "a"), (2, "b"))

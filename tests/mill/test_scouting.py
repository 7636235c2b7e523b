"""What a look finds in a stream without keys, asked of Spark alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from floodmark.mill.columns import IS_END
from floodmark.mill.horizon import KeyRange
from floodmark.mill.pending import ScanResult, ends_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_a_stream_without_keys_is_one_piece_before_its_first_end(spark: SparkSession) -> None:
    """Each partition by itself: one goes on, one ends, one goes on behind its end, one begins with it; with holes."""
    rows = [
        *[(0, 0, False), (0, 2, False)],
        *[(1, 5, False), (1, 7, True)],
        *[(2, 0, False), (2, 1, False), (2, 3, True), (2, 4, False), (2, 5, True)],
        *[(3, 9, True), (3, 10, False)],
        *[(4, 1, True)],
    ]
    messages = spark.createDataFrame(rows, f"partition int, offset bigint, {IS_END} boolean")
    assert ends_in(messages) == {
        0: ScanResult((KeyRange(0, 3, 2, (), ()),)),
        1: ScanResult((KeyRange(5, 6, 1, (), ()),), end=7),
        2: ScanResult((KeyRange(0, 2, 2, (), ()),), end=3, has_rest=True),
        3: ScanResult((), end=9, has_rest=True),
        4: ScanResult((), end=1),
    }

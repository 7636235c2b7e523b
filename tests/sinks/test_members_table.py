"""The table of a dimension: a surrogate key stands for one member, and never for two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.errors import SinkFailed
from floodmark.sinks.delta import members_table
from tests.sinks.batches import batch, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMBERS = "sk long, id string, size int, _fm_gone boolean"


def members(spark: SparkSession, table: Path) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.read.format("delta").load(str(table)).orderBy("sk").collect()]


@pytest.mark.spark
def test_a_key_that_the_table_has_for_another_member_stops_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    """The merge would take two members for one, whether it changes or deletes; what has a partner or none is merged."""
    sink = members_table(str(tmp_path), key=("sk",), name="dim").refusing_others(("id",))
    sink.write(frame(spark, MEMBERS, (-1, None, None, False), (1, "a", 1, False), (2, "b", 1, False)), batch(1))
    news = [(-1, None, None, False), (1, "a", 9, False), (2, "b", 1, True), (3, "c", 1, False)]
    sink.write(frame(spark, MEMBERS, *news), batch(2))
    assert members(spark, tmp_path) == [(-1, None, None), (1, "a", 9), (3, "c", 1)]
    with pytest.raises(SinkFailed, match="two members have the sk 1"):
        sink.write(frame(spark, MEMBERS, (1, "z", 5, False)), batch(3))
    with pytest.raises(SinkFailed, match="two members have the sk 3"):
        sink.write(frame(spark, MEMBERS, (3, "z", 5, True)), batch(3))
    assert members(spark, tmp_path) == [(-1, None, None), (1, "a", 9), (3, "c", 1)]

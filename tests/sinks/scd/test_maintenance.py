"""Pruned logs: what is open at the floor goes on, and nothing comes in below it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark.errors import ConfigError
from tests.sinks.batches import batch
from tests.sinks.scd.histories import events, history, version_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.crash
def test_a_pruned_log_keeps_the_open_version_and_refuses_what_is_below(spark: SparkSession, tmp_path: Path) -> None:
    """Versions that ended before the floor stay in the table; the open one keeps its start; the rest goes on."""
    sink = history(tmp_path)
    sink.write(events(spark, x="a@1 b@5 b@8/last c@20", y="a@2 D@6", z="a@30"), batch(1))
    assert sink.prune(spark, 10) == 3
    assert sink.prune(spark, 10) == 0
    sink.write(events(spark, x="d@25 a@9", y="b@12 a@7", z="b@3"), batch(2))
    refused = sink.refused(spark)
    assert version_lines(tmp_path) == {
        "x": "a[1,5) b/last[5,20) c[20,25) d[25,)",
        "y": "a[2,6) b[12,)",
        "z": "b[3,30) a[30,)",
    }
    assert refused is not None
    assert sorted((row.k, row.at, row._event_refused) for row in refused.collect()) == [
        ("x", 9, "older than the floor 10 to which the log was pruned"),
        ("y", 7, "older than the floor 10 to which the log was pruned"),
    ]


def test_a_floor_needs_a_zone_and_a_log(spark: SparkSession, tmp_path: Path) -> None:
    """Neither is guessed."""
    with pytest.raises(ConfigError, match="does not exist"):
        history(tmp_path).prune(spark, 1)
    history(tmp_path).write(events(spark, x="a@1"), batch(1))
    with pytest.raises(ConfigError, match="no time zone"):
        history(tmp_path).prune(spark, datetime(2024, 5, 6))  # noqa: DTZ001 - that is the mistake

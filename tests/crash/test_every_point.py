"""A run killed at any point is finished by the next one: every row once in every sink, and the mark at the last row."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash import shop
from tests.crash.killing import held, run_until_killed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINTS = (
    "after_intent",
    "after_read",
    *(f"{when}_sink:{place}" for place in range(1, 5) for when in ("during", "after")),
    "before_commit",
    "after_commit",
)
EVERY_SINK_HOLDS = {name: list(range(300)) for name in shop.SINKS}


IN_EVERY_BUILD = ("during_sink:2",)


@pytest.mark.parametrize(
    "point", [point if point in IN_EVERY_BUILD else pytest.param(point, marks=pytest.mark.crash) for point in POINTS]
)
def test_a_kill_at_any_point_is_finished_by_the_next_run_even_if_new_rows_came(
    spark: SparkSession, tmp_path: Path, point: str
) -> None:
    """The open batch is finished as it was intended, then the new rows are read as a batch of their own."""
    shop.deliver(tmp_path, "day1", range(100))
    shop.shop(tmp_path).run(spark, shop.open_store(tmp_path))
    shop.deliver(tmp_path, "day2", range(100, 200))
    assert run_until_killed(tmp_path, point) == -signal.SIGKILL
    shop.deliver(tmp_path, "day3", range(200, 300))
    shop.shop(tmp_path).run(spark, shop.open_store(tmp_path))
    record = shop.open_store(tmp_path).read("shop")
    assert held(spark, tmp_path) == EVERY_SINK_HOLDS
    assert record is not None
    assert [Path(path).name for path in record.marks["files"].value] == ["day1.jsonl", "day2.jsonl", "day3.jsonl"]
    assert (record.number, record.intent) == (3, None)


@pytest.mark.crash
@pytest.mark.parametrize("point", [point for point in POINTS if not point.endswith((":2", ":3", ":4"))])
@pytest.mark.parametrize("sink", shop.SINKS)
def test_a_job_with_one_sink_is_finished_too(spark: SparkSession, tmp_path: Path, point: str, sink: str) -> None:
    """Without a spool the same span is read again."""
    shop.deliver(tmp_path, "day1", range(100))
    assert run_until_killed(tmp_path, point, [sink]) == -signal.SIGKILL
    shop.shop(tmp_path, [sink]).run(spark, shop.open_store(tmp_path))
    assert held(spark, tmp_path, [sink]) == {sink: list(range(100))}

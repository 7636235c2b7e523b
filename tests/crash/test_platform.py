"""kill -9 between the commits of the platform example's workflow, again and again: the tables of a clean run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from observability.arrivals import Arrivals
from observability.lake import Lake
from observability.reckoning import cost_by_date
from observability.tasks import tables_of
from tests.crash.platform_days import run_killed
from tests.examples.story import Story

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from observability.inventory import Rows

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(3600)]
EVERY = 9
SEEN_AT = ("_ingest_version", "snapshot_at")
SEEN_THEN = {"node_type_scd": ("valid_from",), "dim_node_type": ("valid_from", "node_type_sk")}
"""A table without a time of change has its versions from when they were seen."""


def rows_of(spark: SparkSession, lake: Lake) -> dict[str, list[str]]:
    """All rows of all tables as text, without moments at which they were seen, and the order of their columns."""
    read = {name: spark.read.format("delta").load(path) for name, path in tables_of(lake).items()}
    rows = {name: frame.drop(*SEEN_AT, *SEEN_THEN.get(name, ())).collect() for name, frame in read.items()}
    return {name: sorted(str(sorted(row.asDict().items())) for row in each) for name, each in rows.items()}


def test_killed_between_its_commits_the_workflow_ends_with_the_tables_of_a_clean_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Day by day, killed every few commits until it is through; the clean run is killed never."""
    arrivals = Arrivals(size=3)
    killed, clean = Lake.at(tmp_path / "killed"), Lake.at(tmp_path / "clean")
    assert run_killed(Path(killed.home), EVERY, arrivals.day(0)) >= 3
    assert run_killed(Path(killed.home), EVERY, arrivals.day(1)) >= 1
    assert run_killed(Path(killed.home), EVERY, arrivals.late(0)) >= 1
    story = Story(clean, spark, clean.store(), arrivals)
    assert clean_day(story, arrivals.day(0)) | clean_day(story, arrivals.day(1)) == {"SUCCESS"}
    assert clean_day(story, arrivals.late(0)) == {"SUCCESS"}
    assert rows_of(spark, killed) == rows_of(spark, clean)
    fact = spark.read.format("delta").load(killed.gold("fact_usage_priced_day"))
    assert {row[0]: row[1] for row in fact.groupBy("date_sk").sum("list_cost").collect()} == cost_by_date(killed)


def clean_day(story: Story, rows: Rows) -> set[str]:
    story.arrive(rows)
    return set(story.run().values())

"""The platform example as a whole: one run of its workflow, late rows, a second run, and what they leave behind."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from floodmark.errors import TaskFailed
from floodmark.medallion.layers import Layer
from observability import bronze, dimensions, facts, silver
from observability.arrivals import Arrivals
from observability.lake import Lake
from observability.reckoning import cost_by_date
from observability.tasks import tables_of
from observability.views import register, view_names
from tests.examples.documented import columns_in
from tests.examples.story import PLATFORM, Story

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
TASKS = ["bronze_ingest", "silver_build", "gold_build", "performance_optimization", "health_check"]
FACTS_OF_COST = ["fact_billing_usage", "fact_usage_priced_day", "fact_entity_cost"]
VIEWS_OF_COST = [
    *(name for name in view_names() if name.startswith("chargeback_by_")),
    "cost_by_entity", "cost_trend", "cost_anomaly", "runtime_versions", "tag_coverage",
]  # fmt: skip
OF_RUNS = ["fact_run_cost", "fact_run_status_cost", "cost_by_run", "cost_by_run_status"]


@dataclass(frozen=True)
class FinishedStory:
    """The story after its end, and what was seen on the way."""

    story: Story
    first: dict[str, str]
    second: dict[str, str]
    files_before: dict[str, dict[str, tuple[tuple[str, int], ...]]]
    idle: tuple[set[str], set[str]]


@pytest.fixture(scope="module")
def ended(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FinishedStory]:
    """Two days arrive, the workflow runs; rows of the first day come late, it runs again; and once with nothing new."""
    lake = Lake.at(tmp_path_factory.mktemp("platform"))
    story = Story(lake, spark, lake.store(), Arrivals())
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PLATFORM_HOME", str(lake.home))
        story.arrive("day-0", story.arrivals.day(0))
        story.arrive("day-1", story.arrivals.day(1))
        first = story.run()
        files = {fact: story.files_of(fact) for fact in ("fact_usage_priced_day", "fact_runs_finished_day")}
        story.arrive("late-0", story.arrivals.late(0))
        second = story.run()
        before = story.on_disk()
        story.run()
        yield FinishedStory(story, first, second, files, (before, story.on_disk()))
    for view in spark.catalog.listTables():  # a session outlives its tests, and the views would hide tables of others
        spark.catalog.dropTempView(view.name)


def test_the_workflow_runs_all_its_tasks_both_times(ended: FinishedStory) -> None:
    """In the order of the file."""
    assert list(ended.first) == TASKS
    assert set(ended.first.values()) | set(ended.second.values()) == {"SUCCESS"}


def test_the_cost_of_each_date_is_the_one_that_the_files_add_up_to(ended: FinishedStory) -> None:
    """Updates, a retraction, duplicates, bad rows and a price that changed at noon included."""
    found = ended.story.spark.read.format("delta").load(ended.story.lake.gold("fact_usage_priced_day"))
    assert {row[0]: row[1] for row in found.groupBy("date_sk").sum("list_cost").collect()} == cost_by_date(
        ended.story.lake
    )


def test_the_sums_of_the_views_are_the_sums_of_the_facts(ended: FinishedStory) -> None:
    """Each view of cost adds up to the facts, and each view of runs to the cost of runs."""
    register(ended.story.spark, ended.story.lake)
    sums = [f"select '{name}' as name, sum(list_cost) as cost from {name}" for name in FACTS_OF_COST + VIEWS_OF_COST]
    sums += [f"select '{name}', sum(list_cost) from {name}" for name in OF_RUNS]
    sums += ["select 'of runs', sum(list_cost) from fact_billing_usage where job_run_id is not null"]
    found = {row.name: row.cost for row in ended.story.spark.sql(" union all ".join(sums)).collect()}
    assert {found[name] for name in FACTS_OF_COST + VIEWS_OF_COST} == {sum(cost_by_date(ended.story.lake).values())}
    assert {found[name] for name in OF_RUNS} == {found["of runs"]}


def test_late_rows_rebuild_the_files_of_their_date_alone(ended: FinishedStory) -> None:
    """Names and times of the other dates' files are what they were; a fact that has no late rows keeps all."""
    before, after = ended.files_before["fact_usage_priced_day"], ended.story.files_of("fact_usage_priced_day")
    assert {date for date in after if after[date] != before.get(date)} == {"date_sk=20261102"}
    assert ended.story.files_of("fact_runs_finished_day") == ended.files_before["fact_runs_finished_day"]


def test_a_run_with_nothing_new_leaves_every_file_as_it_is(ended: FinishedStory) -> None:
    """Not one commit in any of the tables."""
    before, after = ended.idle
    assert after - before == set()


def test_bad_rows_wait_in_the_quarantine_with_their_reasons(ended: FinishedStory) -> None:
    """Two days brought a record without a name and a negative one each, and a run that ends before it begins."""
    folders = ("silver_usage_txn", "silver_job_run_timeline")
    tables = [DeltaTable(ended.story.lake.quarantine(folder)).to_pyarrow_table() for folder in folders]
    assert sorted(reasons for table in tables for reasons in table.column("reasons").to_pylist()) == [
        *(["not_null_record_id"] for _ in range(2)),
        *(["run_ends_after_its_start"] for _ in range(2)),
        *(["usage_not_negative"] for _ in range(2)),
    ]


def test_a_column_that_comes_on_the_second_day_reaches_silver(ended: FinishedStory) -> None:
    """Without inventing versions: the one that is closed has none of it."""
    found = ended.story.spark.read.format("delta").load(ended.story.lake.silver("warehouses_scd"))
    rows = found.where("warehouse_id = 'wh-0'").orderBy("valid_from").select("warehouse_channel", "is_current")
    assert [tuple(row) for row in rows.collect()] == [(None, False), ("PREVIEW", True)]


def test_the_first_version_of_a_cluster_holds_since_it_was_created(ended: FinishedStory) -> None:
    """Later ones since their change."""
    found = ended.story.spark.read.format("delta").load(ended.story.lake.silver("clusters_scd"))
    changed = found.where("cluster_id = 'cl-1'").orderBy("valid_from").collect()
    assert [row.valid_from for row in changed] == [changed[0].created_time, changed[1].updated_time]


def test_the_pages_name_every_table_and_view_with_its_columns(ended: FinishedStory) -> None:
    """TABLES.md is compared with what is really there."""
    register(ended.story.spark, ended.story.lake)
    read, paths = ended.story.spark.read.format("delta"), tables_of(ended.story.lake)
    tables = {name: read.load(path).columns for name, path in paths.items()}
    views = {name: ended.story.spark.table(name).columns for name in view_names()}
    assert columns_in(PLATFORM / "TABLES.md") == {**tables, **views}


@pytest.mark.parametrize("notebook", sorted(file.stem for file in (PLATFORM / "notebooks").glob("*.py")))
def test_every_notebook_runs_alone(notebook: str, ended: FinishedStory) -> None:
    """Its main needs nothing but what it finds."""
    main = runpy.run_path(str(PLATFORM / "notebooks" / f"{notebook}.py"))["main"]
    assert main(ended.story.spark, ended.story.store, str(ended.story.lake.home))


def test_the_health_check_is_a_program_that_needs_no_spark(ended: FinishedStory) -> None:
    """It leaves a report that names every table of the three layers."""
    script, report = PLATFORM / "notebooks" / "health_check_job.py", ended.story.lake.home / "health.json"
    report.unlink(missing_ok=True)
    said = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout
    assert said.startswith("WARNING")
    assert set(json.loads(report.read_text())["checks"]["data_freshness"]["subjects"]) == set(
        tables_of(ended.story.lake)
    )


def test_a_silver_table_that_fails_holds_up_its_own_downstream_only(
    ended: FinishedStory, spark: SparkSession, tmp_path: Path
) -> None:
    """What does not read it is committed, what does is skipped, and the next run does the rest."""
    lake, day = Lake.at(tmp_path), Arrivals(size=3).day(0)
    story = Story(lake, spark, lake.store(), Arrivals(size=3))
    wanted = ("lakeflow_job_run_timeline", "compute_node_types")
    story.arrive("day-0", {table: day[table] for table in wanted})
    arrived = [bronze.ingest(table, lake) for table in wanted]
    broken = replace(silver.NODE_TYPE_SCD, transform="select raise_error('a bug') as node_type, * from source")
    values = (silver.JOB_RUN_TIMELINE, facts.RUNS_FINISHED_DAY, dimensions.NODE_TYPE)
    builds = [value.job(lake) for value in values]
    with pytest.raises(TaskFailed, match=r"silver_node_type_scd: .*; gold_dim_node_type was skipped"):
        Layer("platform", (*arrived, broken.job(lake), *builds)).build(spark, story.store)
    again = Layer("platform", (*arrived, silver.NODE_TYPE_SCD.job(lake), *builds)).build(spark, story.store)
    assert {name: receipt.status for name, receipt in again.items()} == {
        "bronze_lakeflow_job_run_timeline": "nothing_new",
        "bronze_compute_node_types": "nothing_new",
        "silver_job_run_timeline": "nothing_new",
        "gold_fact_runs_finished_day": "nothing_new",
        "silver_node_type_scd": "done",
        "gold_dim_node_type": "done",
    }

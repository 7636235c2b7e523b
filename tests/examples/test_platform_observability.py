"""The platform example as a whole: one run of its workflow, late rows, a second run, and what they leave behind."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from floodmark.errors import TaskFailed
from floodmark.jobs.workflow import Library, Surroundings
from floodmark.jobs.workflow.document import Task
from floodmark.medallion.layers import Layer
from floodmark.stores.record import VIEWS
from observability import bronze, dimensions, facts, silver, system
from observability.arrivals import Arrivals
from observability.columns import COLUMNS
from observability.lake import Lake
from observability.quality import validate_silver_data
from observability.reckoning import cost_by_date
from observability.tasks import tables_of
from observability.views import attach, view_names
from tests.examples.documented import columns_in
from tests.examples.story import PLATFORM, Story

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # the whole story is told before the first test
TASKS = ["bronze_ingest", "silver_build", "gold_build", "performance_optimization", "health_check"]
OF_COST = [
    "fact_billing_usage", "fact_usage_priced_day", "fact_entity_cost",
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
    lake = Lake.at(tmp_path_factory.mktemp("platform"), schema="platform_story")
    story = Story(lake, spark, lake.store(), Arrivals(size=3))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PLATFORM_HOME", lake.home)
        patched.setenv("PLATFORM_SCHEMA", lake.schema)
        story.arrive(story.arrivals.day(0))
        story.arrive(story.arrivals.day(1))
        first = story.run()
        files = {fact: story.files_of(fact) for fact in ("fact_usage_priced_day", "fact_runs_finished_day")}
        story.arrive(story.arrivals.late(0))
        second = story.run()
        before = story.on_disk()
        story.run()
        yield FinishedStory(story, first, second, files, (before, story.on_disk()))
    for schema in (lake.schema, *{name.split(".")[0] for name in COLUMNS}):  # a session outlives its tests
        spark.sql(f"drop schema if exists {schema} cascade")


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
    spark, lake = ended.story.spark, ended.story.lake
    attach(spark, lake)
    sums = [f"select '{name}' as name, sum(list_cost) as cost from {lake.schema}.{name}" for name in OF_COST + OF_RUNS]
    billing = f"{lake.schema}.fact_billing_usage"
    sums += [f"select 'of runs', sum(list_cost) from {billing} where job_run_id is not null"]
    found = {row.name: row.cost for row in spark.sql(" union all ".join(sums)).collect()}
    assert {found[name] for name in OF_COST} == {sum(cost_by_date(lake).values())}
    assert {found[name] for name in OF_RUNS} == {found["of runs"]}


def test_the_views_are_there_without_the_session_that_made_them(ended: FinishedStory) -> None:
    """As Delta tables, since no catalog of this session outlives it; the seconds of each are kept."""
    folder = Path(ended.story.lake.views())
    assert sorted(each.name for each in folder.iterdir()) == view_names()
    days = DeltaTable(folder / "cost_trend").to_pyarrow_table().sort_by("date_sk").to_pylist()
    assert {day["date_sk"]: day["list_cost"] for day in days} == cost_by_date(ended.story.lake)
    latest, first = ended.story.store.runs(VIEWS)
    assert (set(first.durations), "cost_trend" in latest.durations) == (set(view_names()), True)


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
    rows = found.where("warehouse_id = 'wh-0'").orderBy("valid_from").select("created_by", "is_current")
    assert [tuple(row) for row in rows.collect()] == [(None, False), ("bob", True)]


def test_the_latest_row_of_a_thing_that_changed_twice_in_a_batch_is_the_last_one(ended: FinishedStory) -> None:
    """The order of ingestion goes on within a batch; the rows came the other way round."""
    attach(ended.story.spark, ended.story.lake)
    table = f"{ended.story.lake.schema}.brz_lakeflow_jobs"
    [latest] = ended.story.spark.sql(f"select * from {table}_latest where job_id = 'job-0'").collect()
    assert (latest.name, latest.tags["sub_project"]) == ("load_first", "moved")
    numbers = ended.story.spark.sql(f"select _ingest_version from {table} where job_id = 'job-0'").collect()
    assert len(set(numbers)) == 3


def test_the_first_version_of_a_cluster_holds_since_it_was_created(ended: FinishedStory) -> None:
    """Later ones since their change."""
    found = ended.story.spark.read.format("delta").load(ended.story.lake.silver("clusters_scd"))
    changed = found.where("cluster_id = 'cl-1'").orderBy("valid_from").collect()
    assert [row.valid_from for row in changed] == [changed[0].created_time, changed[1].updated_time]


def test_the_pages_name_every_table_and_view_with_its_columns(ended: FinishedStory) -> None:
    """TABLES.md is compared with what is really there."""
    read = ended.story.spark.read.format("delta")
    paths = tables_of(ended.story.lake) | {name: f"{ended.story.lake.views()}/{name}" for name in view_names()}
    assert columns_in(PLATFORM / "TABLES.md") == {name: read.load(path).columns for name, path in paths.items()}


@pytest.mark.parametrize("notebook", sorted(file.stem for file in (PLATFORM / "notebooks").glob("*_job.py")))
def test_every_notebook_runs_alone(notebook: str, ended: FinishedStory) -> None:
    """Its main needs nothing but what it finds."""
    main = runpy.run_path(str(PLATFORM / "notebooks" / f"{notebook}.py"))["main"]
    assert main(ended.story.spark, ended.story.store, home=ended.story.lake.home)


def test_the_health_check_is_a_program_that_needs_no_spark(ended: FinishedStory) -> None:
    """It leaves a report that names every table of the three layers."""
    script, report = PLATFORM / "notebooks" / "health_check_job.py", Path(ended.story.lake.home, "health.json")
    report.unlink(missing_ok=True)
    said = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout
    assert said.startswith("WARNING")
    checks = json.loads(report.read_text())["checks"]
    assert set(checks["data_freshness"]["subjects"]) == set(tables_of(ended.story.lake))
    assert VIEWS in checks["performance_metrics"]["subjects"]
    alerts = [json.loads(line) for line in Path(ended.story.lake.home, "alerts.jsonl").read_text().splitlines()]
    assert [each["kind"] for each in alerts].count("summary") >= 3


def test_a_silver_table_that_fails_holds_up_its_own_downstream_only(
    ended: FinishedStory, spark: SparkSession, tmp_path: Path
) -> None:
    """What does not read it is committed, what does is skipped, and the next run does the rest."""
    lake, day = Lake.at(tmp_path), Arrivals(size=3).day(0)
    story = Story(lake, spark, lake.store(), Arrivals(size=3))
    wanted = ("lakeflow.job_run_timeline", "compute.node_types")
    story.arrive({table: day[table] for table in wanted})
    system.attach(spark, lake)
    arrived = [bronze.ingest(table.replace(".", "_"), lake) for table in wanted]
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


def test_usage_that_is_nobodys_is_sound_and_an_entity_without_a_name_is_not(spark: SparkSession) -> None:
    """Warehouses and storage cost something, and are no job's."""
    rows = spark.sql("select 'ws-1' as workspace_id, cast(null as string) as entity_type, 'x' as entity_id")
    assert (validate_silver_data(rows, "usage_txn"), validate_silver_data(rows, "entity_latest")) == (True, False)


def test_the_three_functions_and_the_job_move_the_same_mark(spark: SparkSession, tmp_path: Path) -> None:
    """A notebook with the migration guide's own lines does the job's work once; the job has nothing left to do."""
    lake, things = Lake.at(tmp_path, schema="platform_by_hand"), Arrivals(size=3).inventory
    story = Story(lake, spark, lake.store(), Arrivals(size=3))
    story.arrive({"access.workspaces_latest": things.workspaces(0)})
    system.attach(spark, lake)
    ingest, job = bronze.ingest("access_workspaces", lake), silver.WORKSPACE.job(lake)
    ingest.run(spark, story.store)
    job.run(spark, story.store)
    story.arrive({"access.workspaces_latest": [{**row, "status": "BANNED"} for row in things.workspaces(1)]})
    ingest.run(spark, story.store)
    around = Surroundings(spark.newSession, story.store)  # its views end with it
    task = {"notebook_path": "silver_workspace_by_hand", "base_parameters": {"home": lake.home, "schema": lake.schema}}
    action = Library((PLATFORM / "notebooks",)).action(Task.model_validate({"task_key": "t", "notebook_task": task}))
    assert str(action(around)).startswith("processed up to 20")
    rows = spark.read.format("delta").load(lake.silver("workspace")).select("workspace_id", "status").collect()
    assert sorted(map(tuple, rows)) == [
        ("ws-1", "BANNED"),
        ("ws-2", "BANNED"),
        ("ws-3", "BANNED"),
        ("ws-4", "CANCELLED"),
    ]
    assert job.run(spark, story.store).status == "nothing_new"
    spark.sql(f"drop schema {lake.schema} cascade")

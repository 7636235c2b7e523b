"""The platform example as a whole: one run of its workflow, late rows, a second run, and what they leave behind."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
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
from tests.tables import columns_of, rows_of, sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # the whole story is told before the first test
TASKS = ["bronze_ingest", "silver_build", "gold_build", "performance_optimization", "health_check"]
NOTEBOOKS = (
    "bronze_hwm_ingest_job", "silver_hwm_build_job", "gold_hwm_build_job", "performance_optimization_job",
    "health_check_job",
)  # fmt: skip
OF_COST = [
    "fact_billing_usage", "fact_usage_priced_day", "fact_entity_cost",
    *(name for name in view_names() if name.startswith("chargeback_by_")),
    "cost_by_entity", "cost_trend", "cost_anomaly", "runtime_versions", "tag_coverage",
]  # fmt: skip
OF_RUNS = ["fact_run_cost", "fact_run_status_cost", "cost_by_run", "cost_by_run_status"]


@dataclass(frozen=True)
class FirstRun:
    """The story after the first run of its workflow, and how its tasks ended."""

    story: Story
    outcomes: dict[str, str]


@dataclass(frozen=True)
class FinishedStory:
    """The story after its end, and what was seen on the way."""

    story: Story
    second: dict[str, str]
    files_before: dict[str, dict[str, tuple[tuple[str, int], ...]]]
    answers: dict[str, str]
    """What each notebook said that was run alone, with nothing new."""
    idle: tuple[set[str], set[str]]


@pytest.fixture(scope="module")
def first_run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FirstRun]:
    """Two days arrive, and the workflow runs."""
    lake = Lake.at(tmp_path_factory.mktemp("platform"), schema="platform_story")
    story = Story(lake, spark, lake.store(), Arrivals(size=3))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PLATFORM_HOME", lake.home)
        patched.setenv("PLATFORM_SCHEMA", lake.schema)
        story.arrive(story.arrivals.day(0))
        story.arrive(story.arrivals.day(1))
        yield FirstRun(story, story.run())
    for schema in (lake.schema, *{name.split(".")[0] for name in COLUMNS}):  # a session outlives its tests
        spark.sql(f"drop schema if exists {schema} cascade")


@pytest.fixture(scope="module")
def whole_story(first_run: FirstRun) -> FinishedStory:
    """Rows of the first day come late, the workflow runs again; and each notebook alone, with nothing new."""
    story = first_run.story
    files = {fact: story.files_of(fact) for fact in ("fact_usage_priced_day", "fact_runs_finished_day")}
    story.arrive(story.arrivals.late(0))
    second = story.run()
    before = story.on_disk()
    answers = {notebook: run_alone(notebook, story) for notebook in NOTEBOOKS}
    return FinishedStory(story, second, files, answers, (before, story.on_disk()))


def run_alone(notebook: str, story: Story) -> str:
    """What the main of a notebook says."""
    main = runpy.run_path(str(PLATFORM / "notebooks" / f"{notebook}.py"))["main"]
    answer: str = main(story.spark, story.store, home=story.lake.home)
    return answer


def test_the_workflow_runs_all_its_tasks(first_run: FirstRun) -> None:
    """In the order of the file."""
    assert first_run.outcomes == dict.fromkeys(TASKS, "SUCCESS")
    assert list(first_run.outcomes) == TASKS


def test_the_cost_of_each_date_is_the_one_that_the_files_add_up_to(first_run: FirstRun) -> None:
    """Updates, a retraction, duplicates, bad rows and a price that changed at noon included."""
    found = first_run.story.spark.read.format("delta").load(first_run.story.lake.gold("fact_usage_priced_day"))
    assert {row[0]: row[1] for row in found.groupBy("date_sk").sum("list_cost").collect()} == cost_by_date(
        first_run.story.lake
    )


def test_the_sums_of_the_views_are_the_sums_of_the_facts(first_run: FirstRun) -> None:
    """Each view of cost adds up to the facts, and each view of runs to the cost of runs."""
    lake = first_run.story.lake
    of_runs = sum_in(lake.gold("fact_billing_usage"), "job_run_id")
    found = {name: sum_in(place_of(name, lake)) for name in OF_COST + OF_RUNS}
    whole = sum(cost_by_date(lake).values())
    assert found == dict.fromkeys(OF_COST, whole) | dict.fromkeys(OF_RUNS, of_runs)


def sum_in(place: str, known: str = "list_cost") -> Decimal:
    """What the rows have cost in which a column is known; one without a price has no cost."""
    rows = [row for row in rows_of(place) if row[known] is not None and row.list_cost is not None]
    return sum((row.list_cost for row in rows), Decimal(0))


def place_of(name: str, lake: Lake) -> str:
    """Of a fact, or of what a view has published."""
    return lake.gold(name) if name.startswith("fact_") else f"{lake.views()}/{name}"


def test_a_notebook_finds_every_table_and_view_by_name(first_run: FirstRun) -> None:
    """In a session that knew none of them."""
    spark, lake = first_run.story.spark, first_run.story.lake
    attach(spark, lake)
    names = {row.tableName for row in spark.sql(f"show tables in {lake.schema}").collect()}
    assert {*OF_COST, *OF_RUNS, *view_names(), "dim_date", "brz_billing_usage", "brz_billing_usage_latest"} <= names
    [cost] = spark.sql(f"select sum(list_cost) as cost from {lake.schema}.cost_trend").collect()
    assert cost[0] == sum(cost_by_date(lake).values())


def test_the_views_are_there_without_the_session_that_made_them(first_run: FirstRun) -> None:
    """As Delta tables, since no catalog of this session outlives it; the seconds of each are kept."""
    folder = Path(first_run.story.lake.views())
    assert sorted(each.name for each in folder.iterdir()) == view_names()
    days = DeltaTable(folder / "cost_trend").to_pyarrow_table().sort_by("date_sk").to_pylist()
    assert {day["date_sk"]: day["list_cost"] for day in days} == cost_by_date(first_run.story.lake)
    [published] = first_run.story.store.runs(VIEWS)
    assert set(published.durations) == set(view_names())


def test_bad_rows_wait_in_the_quarantine_with_their_reasons(first_run: FirstRun) -> None:
    """Two days brought a record without a name and a negative one each, and a run that ends before it begins."""
    folders = ("silver_usage_txn", "silver_job_run_timeline")
    tables = [DeltaTable(first_run.story.lake.quarantine(folder)).to_pyarrow_table() for folder in folders]
    assert sorted(reasons for table in tables for reasons in table.column("reasons").to_pylist()) == [
        *(["not_null_record_id"] for _ in range(2)),
        *(["run_ends_after_its_start"] for _ in range(2)),
        *(["usage_not_negative"] for _ in range(2)),
    ]


def test_a_column_that_comes_on_the_second_day_reaches_silver(first_run: FirstRun) -> None:
    """Without inventing versions: the one that is closed has none of it."""
    found = rows_of(first_run.story.lake.silver("warehouses_scd"))
    rows = sorted((row for row in found if row.warehouse_id == "wh-0"), key=lambda row: row.valid_from)
    assert [(row.created_by, row.is_current) for row in rows] == [(None, False), ("bob", True)]


def test_the_latest_row_of_a_thing_that_changed_twice_in_a_batch_is_the_last_one(first_run: FirstRun) -> None:
    """The order of ingestion goes on within a batch; the rows came the other way round."""
    attach(first_run.story.spark, first_run.story.lake)
    table = f"{first_run.story.lake.schema}.brz_lakeflow_jobs"
    [latest] = first_run.story.spark.sql(f"select * from {table}_latest where job_id = 'job-0'").collect()
    assert (latest.name, latest.tags["sub_project"]) == ("load_first", "moved")
    numbers = first_run.story.spark.sql(f"select _ingest_version from {table} where job_id = 'job-0'").collect()
    assert len(set(numbers)) == 3


def test_the_first_version_of_a_cluster_holds_since_it_was_created(first_run: FirstRun) -> None:
    """Later ones since their change."""
    found = rows_of(first_run.story.lake.silver("clusters_scd"))
    changed = sorted((row for row in found if row.cluster_id == "cl-1"), key=lambda row: row.valid_from)
    assert [row.valid_from for row in changed] == [changed[0].created_time, changed[1].updated_time]


def test_the_pages_name_every_table_and_view_with_its_columns(first_run: FirstRun) -> None:
    """TABLES.md is compared with what is really there."""
    paths = tables_of(first_run.story.lake) | {name: f"{first_run.story.lake.views()}/{name}" for name in view_names()}
    assert columns_in(PLATFORM / "TABLES.md") == {name: columns_of(path) for name, path in paths.items()}


def test_the_health_check_is_a_program_that_needs_no_spark(first_run: FirstRun) -> None:
    """It leaves a report that names every table of the three layers."""
    script, report = PLATFORM / "notebooks" / "health_check_job.py", Path(first_run.story.lake.home, "health.json")
    report.unlink(missing_ok=True)
    said = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout
    assert said.startswith("WARNING")
    checks = json.loads(report.read_text())["checks"]
    assert set(checks["data_freshness"]["subjects"]) == set(tables_of(first_run.story.lake))
    assert VIEWS in checks["performance_metrics"]["subjects"]
    alerts = [json.loads(line) for line in Path(first_run.story.lake.home, "alerts.jsonl").read_text().splitlines()]
    assert [each["kind"] for each in alerts].count("summary") == 2


def test_a_silver_table_that_fails_holds_up_its_own_downstream_only(
    first_run: FirstRun, spark: SparkSession, tmp_path: Path
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
    assert sorted_rows(lake.silver("workspace"), "workspace_id", "status") == [
        ("ws-1", "BANNED"),
        ("ws-2", "BANNED"),
        ("ws-3", "BANNED"),
        ("ws-4", "CANCELLED"),
    ]
    assert job.run(spark, story.store).status == "nothing_new"
    spark.sql(f"drop schema {lake.schema} cascade")


@pytest.mark.crash
def test_the_second_run_does_all_its_tasks_and_publishes_what_changed(whole_story: FinishedStory) -> None:
    """The cost of the late rows is in the facts, and in the views that read them."""
    assert whole_story.second == dict.fromkeys(TASKS, "SUCCESS")
    spark, lake = whole_story.story.spark, whole_story.story.lake
    facts_now = spark.read.format("delta").load(lake.gold("fact_usage_priced_day"))
    assert {row[0]: row[1] for row in facts_now.groupBy("date_sk").sum("list_cost").collect()} == cost_by_date(lake)
    latest, _ = whole_story.story.store.runs(VIEWS)
    assert "cost_trend" in latest.durations


@pytest.mark.crash
def test_late_rows_rebuild_the_files_of_their_date_alone(whole_story: FinishedStory) -> None:
    """Names and times of the other dates' files are what they were; a fact that has no late rows keeps all."""
    story, files_before = whole_story.story, whole_story.files_before
    before, after = files_before["fact_usage_priced_day"], story.files_of("fact_usage_priced_day")
    assert {date for date in after if after[date] != before.get(date)} == {"date_sk=20261102"}
    assert story.files_of("fact_runs_finished_day") == files_before["fact_runs_finished_day"]


@pytest.mark.crash
def test_a_run_with_nothing_new_leaves_every_file_as_it_is(whole_story: FinishedStory) -> None:
    """Not one commit in any of the tables."""
    before, after = whole_story.idle
    assert after - before == set()


@pytest.mark.crash
def test_every_notebook_runs_alone(whole_story: FinishedStory) -> None:
    """Its main needs nothing but what it finds."""
    assert sorted(NOTEBOOKS) == sorted(file.stem for file in (PLATFORM / "notebooks").glob("*_job.py"))
    assert all(whole_story.answers.values())

"""The generator of the platform example, and what is declared there, without Spark."""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable

from floodmark.errors import ConfigError, TaskFailed
from observability.arrivals import Arrivals, deliver
from observability.columns import COLUMNS, columns_of
from observability.lake import Lake
from observability.quality import declared, rules_of
from observability.reckoning import cost_by_date
from observability.tasks import check_health, tables_of
from tests.examples.story import PLATFORM


def test_the_same_seed_gives_the_same_rows() -> None:
    """And another one gives others."""
    assert Arrivals(seed=1).day(0) == Arrivals(seed=1).day(0)
    assert Arrivals(seed=1).day(0) != Arrivals(seed=2).day(0)


def test_a_bigger_platform_has_more_jobs_and_a_later_day_only_what_changed() -> None:
    """The inventory comes once."""
    assert len(Arrivals(size=30).day(0)["lakeflow.jobs"]) == 30
    assert len(Arrivals(size=30).day(1)["lakeflow.jobs"]) == 3


def test_every_system_table_is_there_on_the_first_day_with_its_own_columns(tmp_path: Path) -> None:
    """In Databricks' types, nested ones included, but for a column that is yet to come."""
    lake = Lake.at(tmp_path)
    deliver(lake, Arrivals(size=3).day(0))
    found = {table: DeltaTable(lake.system(table)).schema() for table in COLUMNS}
    names = {table: [field.name for field in schema.fields] for table, schema in found.items()}
    wanted = {table: [name for name in columns_of(table) if name != "created_by"] for table in COLUMNS}
    wanted["lakeflow.pipelines"] = list(columns_of("lakeflow.pipelines"))
    assert names == wanted
    pricing = next(field for field in found["billing.list_prices"].fields if field.name == "pricing")
    assert '"type":"decimal(38,18)"' in pricing.to_json().replace(" ", "")


def test_each_day_has_bad_rows_and_one_that_comes_twice() -> None:
    """A record without a name, a negative one, a run that ends before it begins."""
    day = Arrivals(size=3).day(1)
    usage = Counter(row["record_id"] for row in day["billing.usage"])
    assert (usage[None], usage["negative-03"], max(usage.values())) == (1, 1, 2)
    runs = day["lakeflow.job_run_timeline"]
    backwards = [row["run_id"] for row in runs if row["period_end_time"] < row["period_start_time"]]
    assert backwards == ["backwards-03"]


def test_a_run_over_several_hours_has_a_slice_for_each_and_one_outcome() -> None:
    """As Databricks cuts them."""
    slices = [row for row in Arrivals(size=3).day(0)["lakeflow.job_run_timeline"] if row["run_id"].startswith("job")]
    of_run = Counter(row["run_id"] for row in slices)
    outcomes = Counter(row["run_id"] for row in slices if row.get("result_state"))
    assert (max(of_run.values()) > 1, set(outcomes.values()), set(outcomes) == set(of_run)) == (True, {1}, True)


def test_the_second_day_brings_a_column_that_the_first_did_not_have(tmp_path: Path) -> None:
    """Databricks adds columns without notice."""
    lake, arrivals = Lake.at(tmp_path), Arrivals(size=3)
    deliver(lake, arrivals.day(0))
    deliver(lake, arrivals.day(1))
    table = DeltaTable(lake.system("compute.warehouses"))
    assert sorted(row["created_by"] or "" for row in table.to_pyarrow_table().to_pylist()) == ["", "", "bob"]


def test_late_rows_change_the_bill_of_their_day_alone(tmp_path: Path) -> None:
    """One is new, one is corrected by a retraction and a restatement, one is taken back."""
    lake, arrivals = Lake.at(tmp_path), Arrivals(size=3)
    deliver(lake, arrivals.day(0))
    deliver(lake, arrivals.day(1))
    before = cost_by_date(lake)
    deliver(lake, arrivals.late(0))
    after = cost_by_date(lake)
    assert {date for date in after if after[date] != before[date]} == {20261102}


def test_every_table_of_the_three_layers_has_a_rule(tmp_path: Path) -> None:
    """In rules.yaml, and readable."""
    tables = tables_of(Lake.at(tmp_path))
    assert set(declared()) == set(tables)
    assert all(rules_of(table) for table in tables)


def test_there_are_views_for_all_that_the_domain_asks() -> None:
    """At least seventeen, each with a sentence in front of it."""
    views = sorted((PLATFORM / "views").glob("*.sql"))
    assert len(views) >= 17
    assert all(view.read_text().startswith("-- ") for view in views)


def test_marks_are_never_kept_on_the_disk_of_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home that is an external location has no place for them: where they are has to be said."""
    monkeypatch.chdir(tmp_path)
    for home in ("s3://bucket/observability", "dbfs:/observability"):
        with pytest.raises(ConfigError, match="marks cannot lie in"):
            Lake.at(home).store()
    assert Lake.at("s3://bucket/observability", marks="memory").store() is not None
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_is_no_disk_has_its_health_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The task fails by what it finds, and not because it cannot write a file."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TaskFailed, match="health_check"):
        check_health(lake=Lake.at("file:" + str(tmp_path / "lake"), marks="memory"))
    assert json.loads(capsys.readouterr().out)["overall_status"] == "CRITICAL"
    assert list(tmp_path.iterdir()) == []


def test_the_bundle_deploys_the_job_of_the_workflow_file() -> None:
    """Task by task, but for where the notebooks lie and what a variable says."""
    bundle = yaml.safe_load((PLATFORM / "databricks.yml").read_text())
    deployed = bundle["resources"]["jobs"]["daily_observability_workflow"]
    shipped = json.loads((PLATFORM / "jobs" / "daily_observability_workflow.json").read_text())
    assert [_without_path(task) for task in deployed["tasks"]] == [_without_path(task) for task in shipped["tasks"]]
    assert [each["name"] for each in deployed["parameters"]] == [each["name"] for each in shipped["parameters"]]
    assert deployed["schedule"] == shipped["schedule"]


def _without_path(task: dict[str, Any]) -> dict[str, Any]:
    notebook = task["notebook_task"]
    return {**task, "notebook_task": {**notebook, "notebook_path": Path(notebook["notebook_path"]).stem}}


def test_a_silver_table_is_declared_in_under_fifteen_lines() -> None:
    """And the one that the documentation shows is the one of the example."""
    source = (PLATFORM / "observability" / "silver.py").read_text()
    tables = [
        node for node in ast.parse(source).body if isinstance(node, ast.Assign) and "Silver(" in ast.unparse(node)
    ]
    shown = next(
        ast.get_source_segment(source, node) for node in tables if ast.unparse(node).startswith("CLUSTERS_SCD")
    )
    assert len(tables) == 12
    assert max((node.end_lineno or 0) - node.lineno + 1 for node in tables) < 18
    assert shown is not None
    assert len(shown.splitlines()) < 15
    assert shown in (PLATFORM.parents[1] / "docs" / "medallion.md").read_text()

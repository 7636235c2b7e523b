"""The generator of the platform example, and what is declared there, without Spark."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

from observability.arrivals import Arrivals, deliver
from observability.bronze import KEYS
from observability.lake import Lake
from observability.quality import declared, rules_of
from observability.reckoning import cost_by_date
from observability.tasks import tables_of
from tests.examples.story import PLATFORM


def test_the_same_seed_gives_the_same_rows() -> None:
    """And another one gives others."""
    assert Arrivals(seed=1).day(0) == Arrivals(seed=1).day(0)
    assert Arrivals(seed=1).day(0) != Arrivals(seed=2).day(0)


def test_a_bigger_platform_has_more_runs_and_a_later_day_only_what_changed() -> None:
    """The inventory comes once."""
    assert len(Arrivals(size=30).day(0)["lakeflow_jobs"]) == 30
    assert len(Arrivals(size=30).day(1)["lakeflow_jobs"]) == 2


def test_every_table_arrives_on_the_first_day(tmp_path: Path) -> None:
    """As a Parquet file each."""
    deliver(Lake.at(tmp_path), "day-0", Arrivals(size=3).day(0))
    assert {folder.parent.name for folder in tmp_path.glob("incoming/*/day-0.parquet")} == set(KEYS)


def test_each_day_has_bad_rows_and_one_that_comes_twice() -> None:
    """A record without a name, a negative one, a run that ends before it begins."""
    day = Arrivals(size=3).day(1)
    usage = Counter(row["record_id"] for row in day["billing_usage"])
    assert (usage[None], usage["negative-03"], max(usage.values())) == (1, 1, 2)
    runs = day["lakeflow_job_run_timeline"]
    backwards = [row["run_id"] for row in runs if row["period_end_time"] < row["period_start_time"]]
    assert backwards == ["backwards-03"]


def test_the_second_day_brings_a_column_that_the_first_did_not_have(tmp_path: Path) -> None:
    """Files of one folder may differ."""
    lake, arrivals = Lake.at(tmp_path), Arrivals(size=3)
    deliver(lake, "day-0", arrivals.day(0))
    deliver(lake, "day-1", arrivals.day(1))
    files = [Path(lake.incoming("compute_warehouses")) / f"day-{number}.parquet" for number in (0, 1)]
    assert ["warehouse_channel" in pq.read_schema(file).names for file in files] == [False, True]


def test_late_rows_change_the_bill_of_their_day_alone(tmp_path: Path) -> None:
    """One is new, one is corrected, one is taken back."""
    lake, arrivals = Lake.at(tmp_path), Arrivals(size=3)
    deliver(lake, "day-0", arrivals.day(0))
    deliver(lake, "day-1", arrivals.day(1))
    before = cost_by_date(lake)
    deliver(lake, "late-0", arrivals.late(0))
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

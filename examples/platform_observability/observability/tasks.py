"""The five tasks of the daily workflow; the notebooks call them, and so may anyone else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import floodmark as fm
from floodmark.errors import TaskFailed
from floodmark.health import (
    AlertFile,
    HealthMemory,
    JobWatch,
    Subscription,
    TableWatch,
    Watch,
    examine,
    judge,
    recall,
    remember,
    row_counts,
    send,
)
from floodmark.jobs import fills
from floodmark.medallion import Layer, Upkeep, optimize
from observability import bronze, dimensions, facts, silver
from observability.lake import Lake
from observability.views import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.health import Report
    from floodmark.stores.contract import MarkStore

UPKEEP = {
    "brz_billing_usage": (),
    "brz_lakeflow_job_run_timeline": (),
    "usage_txn": ("workspace_id", "record_id"),
    "job_run_timeline": ("workspace_id", "run_id"),
    "fact_billing_usage": (),
    "fact_usage_priced_day": (),
}
"""The tables that grow by the day, and the columns by which their rows are looked up."""
SMALL_FILES = 16
"""A table is compacted once it has so many files that are far too small."""


def ingest_bronze(spark: SparkSession | None = None, store: MarkStore | None = None, home: str | None = None) -> str:
    """Add the files that arrived to bronze. A table whose first file has not come yet waits for it."""
    lake = Lake.at(home)
    arrived = [job for table, job in zip(bronze.KEYS, bronze.jobs(lake), strict=True) if lake.has_arrived(table)]
    return _built("bronze_ingest", arrived, spark, store or lake.store())


def build_silver(spark: SparkSession | None = None, store: MarkStore | None = None, home: str | None = None) -> str:
    """Bring every silver table up to bronze; one that fails is no reason to leave out the others."""
    lake = Lake.at(home)
    return _built("silver_build", silver.jobs(lake), spark, store or lake.store())


def build_gold(spark: SparkSession | None = None, store: MarkStore | None = None, home: str | None = None) -> str:
    """Bring dimensions up to silver, then the facts for the dates that changed, and make the views."""
    lake = Lake.at(home)
    session = spark or fm.spark_session()
    told = _built("gold_build", [*dimensions.jobs(lake), *facts.jobs(lake)], session, store or lake.store())
    return f"{told}, {len(register(session, lake))} views"


def optimize_tables(spark: SparkSession | None = None, store: MarkStore | None = None, home: str | None = None) -> str:
    """Compact what is in too many files and order what is looked up by key; raises if a table could not be."""
    lake = Lake.at(home)
    paths = tables_of(lake)
    tables = [Upkeep(name, paths[name], zorder=by, after_small_files=SMALL_FILES) for name, by in UPKEEP.items()]
    reports = optimize(spark or fm.spark_session(), tables, store or lake.store())
    failed = [f"{each.table}: {each.error}" for each in reports if each.error]
    if failed:
        raise TaskFailed("performance_optimization", reason="; ".join(failed))
    touched = sum(bool(each.done) for each in reports)
    return f"{len(reports)} tables looked at, {touched} worked on"


def check_health(store: MarkStore | None = None, home: str | None = None) -> str:
    """Write `health.json`, tell what is new in `alerts.jsonl`; raises if something is CRITICAL."""
    lake = Lake.at(home)
    report = health_report(lake, store or lake.store())
    (lake.home / "health.json").write_text(json.dumps(report.serialize(), indent=2), encoding="utf-8")
    if report.overall == "CRITICAL":
        worst = [f"{each.subject}: {each.message}" for each in report.findings if each.status == "CRITICAL"]
        raise TaskFailed("health_check", reason="; ".join(worst))
    return f"{report.overall}, {len(report.findings)} findings"


def health_report(lake: Lake, store: MarkStore) -> Report:
    """Every table and every job of the three layers, judged now."""
    tables = tuple(TableWatch(name, path) for name, path in tables_of(lake).items())
    jobs = tuple(JobWatch(job.name) for job in all_jobs(lake))
    before = recall(store)
    report = examine(Watch(tables, jobs), store, datetime.now(timezone.utc), before.counts)
    alerts, known = judge(report, before.alerts)
    send(alerts, [Subscription(AlertFile(str(lake.home / "alerts.jsonl")))])
    remember(store, HealthMemory(row_counts(report), known))
    return report


def all_jobs(lake: Lake) -> list[fm.Job]:
    return [*bronze.jobs(lake), *silver.jobs(lake), *dimensions.jobs(lake), *facts.jobs(lake)]


def tables_of(lake: Lake) -> dict[str, str]:
    """The Delta tables of the three layers, by name; the logs behind tables with history are not among them."""
    paths = sorted({path for job in all_jobs(lake) for path in fills(job) if not path.endswith("__events")})
    return {path.rpartition("/")[2]: path for path in paths}


def _built(layer: str, jobs: Sequence[fm.Job], spark: SparkSession | None, store: MarkStore) -> str:
    receipts = Layer(layer, tuple(jobs)).build(spark, store)
    done = [receipt for receipt in receipts.values() if receipt.status == "done"]
    return f"{len(done)} of {len(receipts)} tables had something new"

"""The five tasks of the daily workflow; the notebooks call them, and so may anyone else."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import floodmark as fm
from floodmark.errors import TaskFailed
from floodmark.health import (
    AlertFile,
    AlertLog,
    JobWatch,
    Limits,
    Subscription,
    TableWatch,
    Watch,
    announce,
    examine,
    recall,
    remember,
    send,
    summary,
)
from floodmark.jobs import fills
from floodmark.medallion import Layer, Upkeep, optimize
from observability import bronze, dimensions, facts, silver
from observability.lake import Lake
from observability.system import SYSTEM, attach
from observability.views import publish

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.health import Report
    from floodmark.stores.contract import MarkStore

SMALL_FILES = 16
"""A table is compacted or ordered once it has so many files."""
SELDOM = Limits(freshness_seconds=400 * 24 * 3600.0, min_rows=0)
"""Prices, workspaces, node types, versions of things: they may stand still for a year."""
DAILY = (
    "brz_billing_usage", "brz_lakeflow_job_run_timeline", "brz_lakeflow_job_task_run_timeline", "usage_txn",
    "job_run_timeline", "job_task_run_timeline",
)  # fmt: skip
"""With the facts, the tables that get new rows every day."""


@dataclass(frozen=True)
class BuiltLayer:
    """What a run did to a layer: a sentence, and the tables that it changed."""

    spark: SparkSession
    text: str
    changed: tuple[str, ...]

    def judged_by(self, judge_rows: Callable[[DataFrame, str], bool]) -> str:
        """The sentence, and how many of the changed tables are sound; the log of the function names every rule."""
        tables = {path.rpartition("/")[2]: fm.sinks.Delta(path).read(lambda: self.spark) for path in self.changed}
        sound = [judge_rows(rows, name) for name, rows in tables.items() if rows is not None]
        return f"{self.text}, {sum(sound)} of {len(sound)} are sound"


def ingest_bronze(
    spark: SparkSession | None = None, store: MarkStore | None = None, lake: Lake | None = None
) -> BuiltLayer:
    """Add what is new in the system tables to bronze."""
    lake, session = lake or Lake.at(), spark or fm.spark_session()
    attach(session, lake)
    return _built("bronze_ingest", bronze.jobs(lake), session, lake.store(store))


def build_silver(
    spark: SparkSession | None = None, store: MarkStore | None = None, lake: Lake | None = None
) -> BuiltLayer:
    """Bring every silver table up to bronze; one that fails is no reason to leave out the others."""
    lake = lake or Lake.at()
    return _built("silver_build", silver.jobs(lake), spark or fm.spark_session(), lake.store(store))


def build_gold(
    spark: SparkSession | None = None, store: MarkStore | None = None, lake: Lake | None = None
) -> BuiltLayer:
    """Bring dimensions up to silver, then the facts for the dates that changed, and publish the views."""
    lake, session = lake or Lake.at(), spark or fm.spark_session()
    store = lake.store(store)
    built = _built("gold_build", [*dimensions.jobs(lake), *facts.jobs(lake)], session, store)
    views = publish(session, lake, store)
    failed = [f"{each.name}: {each.error}" for each in views if each.error]
    if failed:
        raise TaskFailed("gold_build", reason="; ".join(failed))
    asked = sum(each.seconds is not None for each in views)
    return replace(built, text=f"{built.text}, {asked} of {len(views)} views were published anew")


def optimize_tables(spark: SparkSession | None = None, store: MarkStore | None = None, lake: Lake | None = None) -> str:
    """Look after every table of all layers; raises if one could not be."""
    lake = lake or Lake.at()
    reports = optimize(spark or fm.spark_session(), upkeep(lake), lake.store(store))
    failed = [f"{each.table}: {each.error}" for each in reports if each.error]
    if failed:
        raise TaskFailed("performance_optimization", reason="; ".join(failed))
    touched = sum(bool(each.done) for each in reports)
    return f"{len(reports)} tables looked at, {touched} worked on"


def upkeep(lake: Lake) -> list[Upkeep]:
    """What is done to each table: ordered by the columns that its readers look rows up by, logs compacted."""
    patterns = lookup_columns()
    paths = sorted({path for job in all_jobs(lake) for path in fills(job)})
    return [
        Upkeep(
            name,
            path,
            zorder=patterns.get(name, ()),
            statistics=patterns.get(name, ()),
            after_small_files=SMALL_FILES,
            analyze=True,
        )
        for name, path in ((path.rpartition("/")[2], path) for path in paths)
    ]


def lookup_columns() -> dict[str, tuple[str, ...]]:
    """By table: bronze is read by thing, silver merged by key, dimensions joined by theirs, facts summed by some."""
    columns = {f"brz_{table.bronze}": table.thing[:3] for table in SYSTEM}
    columns |= {table.name: table.key for table in silver.TABLES}
    columns |= {each.name: (f"{each.name.removeprefix('dim_')}_sk",) for each in dimensions.DIMENSIONS}
    columns |= {each.name: each.looked_up_by for each in facts.FACTS}
    return columns


def check_health(store: MarkStore | None = None, lake: Lake | None = None) -> str:
    """Write `health.json`, send the summary and what is new; raises if something is CRITICAL.

    Where the home is no disk, the report is printed, and alerts go to the log.
    """
    lake = lake or Lake.at()
    report = health_report(lake, lake.store(store))
    document = json.dumps(report.serialize(), indent=2)
    if lake.disk is None:
        print(document)
    else:
        Path(lake.disk, "health.json").write_text(document, encoding="utf-8")
    if report.overall == "CRITICAL":
        worst = [f"{each.subject}: {each.message}" for each in report.findings if each.status == "CRITICAL"]
        raise TaskFailed("health_check", reason="; ".join(worst))
    return f"{report.overall}, {len(report.findings)} findings"


def health_report(lake: Lake, store: MarkStore) -> Report:
    """Every table and every job of the three layers and the pace of the views, judged now and sent."""
    tables = tuple(TableWatch(name, path, _limits(name)) for name, path in tables_of(lake).items())
    jobs = tuple(JobWatch(job.name) for job in all_jobs(lake))
    before = recall(store)
    report = examine(Watch(tables, jobs), store, datetime.now(timezone.utc), before.counts)
    channel = AlertFile(str(Path(lake.disk, "alerts.jsonl"))) if lake.disk else AlertLog()
    after = announce(report, before, [Subscription(channel)])
    send([summary(report)], [Subscription(channel, on=("summary",))])
    remember(store, after)
    return report


def _limits(table: str) -> Limits:
    return Limits() if table in DAILY or table.startswith("fact_") else SELDOM


def project_jobs() -> list[fm.Job]:
    """The jobs as the command line of this folder knows them."""
    return all_jobs(Lake.at())


def ready(spark: SparkSession) -> None:
    """What a session needs before bronze can be read: the made-up system tables under their names."""
    attach(spark, Lake.at())


def all_jobs(lake: Lake) -> list[fm.Job]:
    return [*bronze.jobs(lake), *silver.jobs(lake), *dimensions.jobs(lake), *facts.jobs(lake)]


def tables_of(lake: Lake) -> dict[str, str]:
    """The Delta tables of the three layers, by name; the logs behind tables with history are not among them."""
    paths = sorted({path for job in all_jobs(lake) for path in fills(job) if not path.endswith("__events")})
    return {path.rpartition("/")[2]: path for path in paths}


def _built(layer: str, jobs: Sequence[fm.Job], spark: SparkSession, store: MarkStore) -> BuiltLayer:
    receipts = Layer(layer, tuple(jobs)).build(spark, store)
    done = [job for job in jobs if receipts[job.name].status == "done"]
    paths = sorted({path for job in done for path in fills(job) if not path.endswith("__events")})
    return BuiltLayer(spark, f"{len(done)} of {len(receipts)} tables had something new", tuple(paths))

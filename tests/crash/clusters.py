"""A workflow of a table with history and a fact over it, to be killed. As a program: python clusters.py FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import floodmark as fm
from floodmark.jobs.workflow import Library, Surroundings, Workflow, WorkflowRun
from floodmark.medallion.facts import FactRows, fact
from tests.crash.shop import SETTINGS, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "k int, date_sk int, at int, v string"


def deliver(spark: SparkSession, home: Path, *rows: tuple[int, int, int, str]) -> None:
    writer = spark.createDataFrame(list(rows), SCHEMA).write.format("delta").mode("append")
    writer.option("delta.enableChangeDataFeed", "true").save(str(home / "bronze"))


def silver(home: Path) -> fm.Job:
    sink = fm.sinks.Scd2(str(home / "silver"), key=("k",), sequence=("at",), track=("v",), delete_when="v = 'D'")
    return fm.Job("silver", fm.sources.Delta(str(home / "bronze")), [sink])


def gold(home: Path) -> fm.Job:
    build = "SELECT date_sk, CAST(count(*) AS int) AS n FROM source GROUP BY date_sk"
    return fact("gold", rows=FactRows("silver", str(home / "silver")), build=build, path=str(home / "gold"))


def run_workflow(spark: SparkSession, home: Path) -> int:
    """Both, the fact after the history; gives the exit code."""
    store = open_store(home)
    functions = {name: lambda job=job: job(home).run(spark, store) for name, job in JOBS.items()}
    tasks = [{"task_key": "silver"}, {"task_key": "gold", "depends_on": ["silver"]}]
    workflow = Workflow.model_validate({"name": "nightly", "tasks": tasks})
    run = WorkflowRun(workflow, Library((), functions=functions), Surroundings(lambda: spark, store))
    return run.go().exit_code


JOBS = {"silver": silver, "gold": gold}


if __name__ == "__main__":
    run_workflow(fm.spark_session(SETTINGS), Path(sys.argv[1]))

"""What `plan --restated` says before anything is written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import floodmark as fm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
LONG_AGO = 1_700_000_000


class Orders:
    """A folder of orders, and a job that writes them to a table."""

    def __init__(self, spark: SparkSession, home: Path, **sink: Any) -> None:  # noqa: ANN401 - the sink's own
        self.spark, self.home, self.store = spark, home, fm.stores.open("memory")
        (home / "in").mkdir()
        source = fm.sources.Files(home / "in", schema="id long, due date")
        self.job = fm.Job("orders", source, [fm.sinks.Delta(str(home / "lake"), name="lake", **sink)])

    def deliver(self, name: str, *lines: str) -> Orders:
        file = self.home / "in" / name
        file.write_text("".join(f"{line}\n" for line in lines))
        os.utime(file, (LONG_AGO, LONG_AGO))  # a plan does not wait until a file has settled
        return self

    def restated(self) -> tuple[str, ...]:
        return self.job.plan(self.spark, self.store, restated=True).restated


def test_the_keys_that_the_table_has_already(spark: SparkSession, tmp_path: Path) -> None:
    """A merge changes those, and adds the others; the table stays as it is."""
    orders = Orders(spark, tmp_path, mode="merge", key=["id"]).deliver("a.jsonl", '{"id": 1}', '{"id": 2}')
    assert orders.restated() == ()
    orders.job.run(spark, orders.store)
    orders.deliver("b.jsonl", '{"id": 2}', '{"id": 3}')
    assert orders.restated() == ("lake: changes rows that are there: 1 id (2)",)
    assert spark.read.format("delta").load(str(tmp_path / "lake")).count() == 2


def test_the_dates_whose_rows_are_replaced(spark: SparkSession, tmp_path: Path) -> None:
    """All rows of them go, and those of the batch come."""
    orders = Orders(spark, tmp_path, mode="replace", by=["due"])
    orders.deliver("a.jsonl", '{"id": 1, "due": "2024-05-01"}', '{"id": 2, "due": "2024-05-02"}')
    assert orders.restated() == ("lake: replaces all rows of 2 due (2024-05-01; 2024-05-02)",)


def test_a_plan_that_was_not_asked_reads_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Reading may take long."""
    orders = Orders(spark, tmp_path, mode="replace", by=["due"]).deliver("a.jsonl", '{"id": 1, "due": "2024-05-01"}')
    assert orders.job.plan(spark, orders.store).restated == ()

"""A loop of small merges, with Spark: what the JVM keeps comes to an end, however many batches follow."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import floodmark as fm
from floodmark.spark.session import MOST_STAGES
from floodmark.stores.memory import MemoryMarkStore
from floodmark.testing import RowsSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WARM_UP, BATCHES = 16, 8
CLASSES_PER_BATCH = 20
"""A merge is a hundred compiled classes: one of them that differs from batch to batch is a few, all are far more."""


def merge(spark: SparkSession, home: Path, store: MemoryMarkStore, batches: range) -> None:
    """Ten new rows each."""
    sink = fm.sinks.Delta(str(home / "table"), mode="merge", key=["id"])
    for number in batches:
        rows = [{"id": each, "v": f"row {each}"} for each in range(10 * (number + 1))]
        receipt = fm.Job("numbers", RowsSource(rows, "id long, v string"), [sink]).run(spark, store)
        assert receipt.rows_written == {"delta": 10}


def jvm(spark: SparkSession) -> Any:  # noqa: ANN401 - of Py4J
    return spark.sparkContext._jvm


def loaded_classes(spark: SparkSession) -> int:
    beans = jvm(spark).java.lang.management.ManagementFactory
    return int(beans.getClassLoadingMXBean().getTotalLoadedClassCount())


def threads(spark: SparkSession) -> Counter[str]:
    """Of the JVM, by their names without numbers."""
    names = [thread.getName() for thread in jvm(spark).java.lang.Thread.getAllStackTraces().keySet()]
    return Counter(re.sub(r"\d+$", "", name) for name in names)


@pytest.mark.crash
def test_a_loop_of_merges_compiles_nothing_anew_and_keeps_few_threads(spark: SparkSession, tmp_path: Path) -> None:
    """What differs between two batches is data, and no code; a stage that is done leaves its thread to others."""
    store = MemoryMarkStore()
    merge(spark, tmp_path, store, range(WARM_UP))
    before = loaded_classes(spark)
    merge(spark, tmp_path, store, range(WARM_UP, WARM_UP + BATCHES))
    assert loaded_classes(spark) - before <= BATCHES * CLASSES_PER_BATCH
    kept = threads(spark)
    assert max(kept["shuffle-exchange-"], kept["ResultQueryStageExecution-"]) <= int(MOST_STAGES)

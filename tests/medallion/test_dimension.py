"""Dimensions that follow the changes of a silver table, and layers that are built in the order of their tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import floodmark as fm
from floodmark.medallion.dimensions import dimension
from floodmark.medallion.facts import FactRows, Lookup, fact
from floodmark.medallion.layers import Layer
from floodmark.testing import RowsSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLUSTER = "id string, size int, at int"


def silver(tmp_path: Path, source: RowsSource) -> fm.Job:
    return fm.Job("silver", source, [fm.sinks.Scd2(str(tmp_path / "silver"), key=("id",), sequence=("at",))])


def gold(tmp_path: Path, *, versions: bool = True) -> fm.Job:
    return dimension(
        "gold",
        source=str(tmp_path / "silver"),
        path=str(tmp_path / "gold"),
        key="cluster_sk",
        natural=["cluster_id"],
        columns={"cluster_id": "id", "cores": "size * 4"},
        versions=versions,
    )


def members(spark: SparkSession, tmp_path: Path) -> list[tuple[Any, ...]]:
    rows = spark.read.format("delta").load(str(tmp_path / "gold")).drop("cluster_sk").collect()
    return sorted((tuple(row) for row in rows), key=str)


@pytest.mark.spark
def test_a_version_that_a_late_event_moves_leaves_the_dimension_and_comes_back_under_its_new_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The same value was known before: one version since 5 takes the place of the one since 10."""
    rows: list[Any] = [{"id": "c1", "size": 2, "at": 10}]
    store, layer = (
        fm.stores.open("memory"),
        Layer("build", (gold(tmp_path), silver(tmp_path, RowsSource(rows, CLUSTER)))),
    )
    layer.build(spark, store)
    before = members(spark, tmp_path)
    rows.append({"id": "c1", "size": 2, "at": 5})
    layer.build(spark, store)
    assert before == [("c1", 8, 10, None, True), (None, None, None, None, None)]
    assert members(spark, tmp_path) == [("c1", 8, 5, None, True), (None, None, None, None, None)]


def test_a_layer_knows_from_its_tables_who_waits_for_whom(tmp_path: Path) -> None:
    """Whatever the order in which the jobs are named."""
    rows, lookup = FactRows("rows", str(tmp_path / "rows")), Lookup("gold", str(tmp_path / "gold"), on={"a": "b"})
    cost = fact("cost", rows=rows, lookups=[lookup], build="select 1", path=str(tmp_path / "cost"))
    layer = Layer("build", (cost, gold(tmp_path), silver(tmp_path, RowsSource([], CLUSTER))))
    assert layer.needs() == {"cost": ("gold",), "gold": ("silver",), "silver": ()}

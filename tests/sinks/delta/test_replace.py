"""Replacing and refreshing a Delta table: in one commit, with the layout that was asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from deltalake import DeltaTable

from floodmark.sinks import Delta
from tests.sinks.batches import ID_V, BatchMaker, frame
from tests.tables import rows_of, sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def test_replace_exchanges_exactly_the_rows_with_the_batchs_values(
    batch: BatchMaker, spark: SparkSession, tmp_path: Path
) -> None:
    """Days that the batch does not have stay as they are; NULL is a value here."""
    sink = Delta(str(tmp_path), mode="replace", by=("day",))
    sink.write(frame(spark, "day string, n int", ("mon", 1), ("mon", 2), ("tue", 3), (None, 4)), batch(1))
    assert sink.write(frame(spark, "day string, n int", ("mon", 7), ("mon", 7), (None, 8)), batch(2)) == 3
    assert rows_by_n(tmp_path) == [(3, "tue"), (7, "mon"), (7, "mon"), (8, None)]


def rows_by_n(folder: Path) -> list[tuple[int, str | None]]:
    return sorted(((row.n, row.day) for row in rows_of(folder)), key=lambda row: row[0])


def test_replace_without_by_replaces_everything(
    batch: BatchMaker, spark: SparkSession, ab: DataFrame, tmp_path: Path
) -> None:
    """In one commit, so a reader sees the old rows or the new."""
    sink = Delta(str(tmp_path), mode="replace")
    sink.write(ab, batch(1))
    sink.write(frame(spark, ID_V, (3, "c")), batch(2))
    assert (sorted_rows(tmp_path), DeltaTable(tmp_path).version()) == ([(3, "c")], 1)


@pytest.mark.parametrize(
    "sink",
    [Delta("t"), Delta("t", mode="replace", by=("id",)), Delta("t", mode="merge", key=("id",))],
    ids=["append", "replace by", "merge"],
)
def test_a_refresh_replaces_the_whole_table_in_one_commit(
    batch: BatchMaker, spark: SparkSession, ab: DataFrame, tmp_path: Path, sink: Delta
) -> None:
    """Whatever the mode, and also with other columns; the number goes on."""
    there = replace(sink, path=str(tmp_path))
    there.write(ab, batch(1))
    version = DeltaTable(tmp_path).version()
    assert there.write(frame(spark, "id long, w int", (7, 70)), batch(2, kind="refresh")) == 1
    assert there.write(frame(spark, "id long, w int", (8, 80)), batch(2, kind="refresh")) == 1
    assert (sorted_rows(tmp_path), DeltaTable(tmp_path).version()) == ([(7, 70)], version + 1)


def test_a_refresh_of_a_merge_keeps_one_row_per_key_and_no_deleted_one(
    batch: BatchMaker, spark: SparkSession, tmp_path: Path
) -> None:
    """The table is what merging everything from the start would have made."""
    sink = Delta(str(tmp_path), mode="merge", key=("id",), sequence=("n",), delete_when="v = 'D'")
    rows = frame(spark, "id long, n int, v string", (1, 1, "a"), (1, 2, "b"), (2, 1, "a"), (2, 2, "D"))
    sink.write(rows, batch(1, kind="refresh"))
    assert sorted_rows(tmp_path) == [(1, 2, "b")]


@pytest.mark.parametrize(
    "sink",
    [Delta("t"), Delta("t", mode="replace", by=("id",)), Delta("t", mode="merge", key=("id",))],
    ids=["append", "replace by", "merge"],
)
def test_evolve_adds_new_columns(
    batch: BatchMaker, spark: SparkSession, ab: DataFrame, tmp_path: Path, sink: Delta
) -> None:
    """Rows that were there have NULL in them."""
    there = replace(sink, path=str(tmp_path), evolve=True)
    there.write(ab, batch(1))
    there.write(frame(spark, "id long, v string, extra int", (3, "c", 30)), batch(2))
    assert {row.id: row for row in rows_of(tmp_path)}[3].asDict() == {
        "id": 3,
        "v": "c",
        "extra": 30,
    }


def test_partitions_are_kept_through_a_refresh(
    batch: BatchMaker, spark: SparkSession, ab: DataFrame, tmp_path: Path
) -> None:
    """The layout belongs to the sink and not to the first batch."""
    sink = Delta(str(tmp_path), partition_by=("v",))
    sink.write(ab, batch(1))
    sink.write(ab, batch(2))
    sink.write(ab, batch(3, kind="refresh"))
    assert DeltaTable(tmp_path).metadata().partition_columns == ["v"]


@pytest.mark.parametrize("kind", ["batch", "refresh"])
def test_clustering_is_kept_through_a_refresh(
    batch: BatchMaker, spark: SparkSession, ab: DataFrame, tmp_path: Path, kind: Literal["batch", "refresh"]
) -> None:
    """A path that Spark makes by itself would have none."""
    sink = Delta(str(tmp_path), cluster_by=("id",))
    sink.write(ab, batch(1))
    sink.write(frame(spark, "id long, v string", (3, "c")), batch(2, kind=kind))
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{tmp_path}`").collect()[0]
    assert detail.clusteringColumns == ["id"]

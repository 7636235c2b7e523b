"""How tables with history lie on the disk: partitions, clusters, and readers without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from floodmark.errors import ConfigError
from floodmark.sinks import Scd1, Scd2
from tests.sinks.batches import batch
from tests.sinks.scd.histories import events, history, version_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_a_history_is_read_without_spark_after_it_has_changed(spark: SparkSession, tmp_path: Path) -> None:
    """Its files hold what counts and nothing else: no deletion vectors, which not every reader knows."""
    sink = history(tmp_path)
    sink.write(events(spark, x="a@1", y="a@1"), batch(1))
    sink.write(events(spark, x="b@5", y="D@7"), batch(2))
    table = DeltaTable(tmp_path / "t")
    found = QueryBuilder().register("t", table).execute("SELECT k, v, valid_from, valid_to FROM t ORDER BY k, v")
    rows = [tuple(row.values()) for row in pa.table(found.read_all()).to_pylist()]
    assert rows == [("x", "a", 1, 5), ("x", "b", 5, None), ("y", "a", 1, 7)]
    assert "deletionVectors" not in (table.protocol().reader_features or [])
    assert table.metadata().configuration["delta.enableDeletionVectors"] == "false"


@pytest.mark.spark
def test_deletion_vectors_can_be_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    """For large tables whose readers all know them."""
    history(tmp_path, deletion_vectors=True).write(events(spark, x="a@1"), batch(1))
    assert DeltaTable(tmp_path / "t").metadata().configuration["delta.enableDeletionVectors"] == "true"


@pytest.mark.spark
def test_a_history_is_partitioned_and_its_log_is_not(spark: SparkSession, tmp_path: Path) -> None:
    """A version that changes its partition moves there."""
    sink = history(tmp_path, partition_by=("v",))
    sink.write(events(spark, x="a@1"), batch(1))
    sink.write(events(spark, x="b@5"), batch(2))
    assert version_lines(tmp_path) == {"x": "a[1,5) b[5,)"}
    partitions = [DeltaTable(tmp_path / name).metadata().partition_columns for name in ("t", "t__events")]
    assert partitions == [["v"], []]


@pytest.mark.spark
def test_a_history_is_clustered(spark: SparkSession, tmp_path: Path) -> None:
    """From its first batch on, after a fence as well."""
    sink = Scd1(str(tmp_path / "t"), key="k", sequence="at", cluster_by="k")
    sink.write(events(spark, x="a@1"), batch(1))
    sink.write(events(spark, x="b@5"), batch(2))
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{tmp_path / 't'}`").collect()[0]
    assert (list(detail.clusteringColumns), detail.numFiles) == (["k"], 1)


def test_partitions_and_clusters_exclude_each_other() -> None:
    """As in any Delta table."""
    with pytest.raises(ConfigError, match="partitions and clusters"):
        Scd2("t", key="k", sequence="at", partition_by="k", cluster_by="k")

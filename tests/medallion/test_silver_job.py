"""Tables with history inside of jobs: read, fitted, frozen, counted, and read on by the next job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import floodmark as fm
from floodmark.errors import ConfigError, LeaseHeld, SchemaChanged
from floodmark.medallion import prune_events
from floodmark.stores.lease import hold
from floodmark.testing import ListSink, RowsSource
from floodmark.testing.doubles import Accident
from tests.sinks.batches import delta_rows, on_disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Rows = list[Mapping[str, Any] | Accident]


def test_a_narrowed_type_fails_before_any_write(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing of the batch is in the log, nor in the table."""
    sink, store = fm.sinks.Scd2(str(tmp_path / "t"), key=("k",), sequence=("at",)), fm.stores.open("memory")
    first: Rows = [{"k": 1, "at": 1, "v": 2**40}]
    fm.Job("j", RowsSource([*first], "k int, at int, v long"), [sink]).run(spark, store)
    before = on_disk(tmp_path)
    with pytest.raises(SchemaChanged) as found:
        fm.Job("j", RowsSource([*first, {"k": 1, "at": 2, "v": "x"}], "k int, at int, v string"), [sink]).run(
            spark, store
        )
    assert found.value.differences == ("column v is string, the target has bigint",)
    assert on_disk(tmp_path) == before


def test_a_feed_flows_through_versions_into_the_latest_rows(spark: SparkSession, tmp_path: Path) -> None:
    """A Delta table, its history, and the latest rows of that history by its own feed: each with a mark of its own."""
    store, bronze = fm.stores.open("memory"), str(tmp_path / "bronze")
    spark.createDataFrame([(1, "a"), (2, "a")], "k int, v string").write.format("delta").option(
        "delta.enableChangeDataFeed", "true"
    ).save(bronze)
    history = fm.Job(
        "history",
        fm.sources.Delta(bronze, changes="feed"),
        [fm.sinks.Scd2(str(tmp_path / "history"), key=("k",), changes="feed")],
    )
    latest = fm.Job(
        "latest",
        fm.sources.Delta(str(tmp_path / "history"), changes="feed"),
        [fm.sinks.Delta(str(tmp_path / "latest"), mode="merge", key=("k",), sequence=("valid_from",))],
        transform="SELECT k, v, valid_from FROM source WHERE is_current AND _change_type <> 'update_preimage'",
    )
    history.run(spark, store)
    latest.run(spark, store)
    spark.sql(f"UPDATE delta.`{bronze}` SET v = 'b' WHERE k = 1")
    spark.sql(f"DELETE FROM delta.`{bronze}` WHERE k = 2")
    receipt = history.run(spark, store)
    latest.run(spark, store)
    found = spark.read.format("delta").load(str(tmp_path / "history")).orderBy("k", "committed_version")
    assert (receipt.status, receipt.rows_read) == ("done", 3)
    assert [(row.k, row.v, row.is_current) for row in found.collect()] == [
        (1, "a", False),
        (1, "b", True),
        (2, "a", False),
    ]
    assert [row[:2] for row in delta_rows(spark, tmp_path / "latest")] == [(1, "b"), (2, "a")]


def test_a_job_prunes_its_logs_under_its_lease(spark: SparkSession, tmp_path: Path) -> None:
    """Not while a run holds it, and only where there is a log."""
    source = RowsSource([{"k": 1, "at": 1, "v": 1}, {"k": 1, "at": 2, "v": 2}], "k int, at int, v int")
    store, sink = fm.stores.open("memory"), fm.sinks.Scd1(str(tmp_path / "t"), key=("k",), sequence=("at",))
    job = fm.Job("j", source, [sink])
    job.run(spark, store)
    with hold(store, "j"), pytest.raises(LeaseHeld):
        prune_events(job, 9, spark, store)
    assert prune_events(job, 9, spark, store) == {"scd1": 1}
    assert delta_rows(spark, tmp_path / "t") == [(1, 2, 2)]
    with pytest.raises(ConfigError, match="no sink with history"):
        prune_events(fm.Job("k", source, [ListSink()]), 9, spark, store)

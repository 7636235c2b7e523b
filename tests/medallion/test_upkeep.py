"""The upkeep of tables: fewer files, the same rows, and nothing taken from a reader."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from floodmark.hwm import TableVersionsHWM, VersionHWM
from floodmark.jobs.table_readers import Reader, readers_of, safe_retention
from floodmark.medallion import Processed, Upkeep, commit_processing_state, optimize
from floodmark.medallion.facts import FactRows, Lookup, TouchedDates
from floodmark.probes.delta import DeltaProbe
from floodmark.stores.lease import hold
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import UPKEEP, JobRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime.now(timezone.utc)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three versions, a file each."""
    folder = tmp_path / "orders"
    for first in (0, 10, 20):
        rows = pa.table({"id": list(range(first, first + 10)), "k": [each % 3 for each in range(10)]})
        write_deltalake(folder, rows, mode="append")
    return folder


def reading(table: Path, version: int) -> MemoryMarkStore:
    """A store in which a job has read the table up to this version."""
    fingerprint = f"delta {table} (table id {DeltaProbe(str(table)).table_id()})"
    mark = VersionHWM("bronze", version, entity=str(table))
    return storing(JobRecord("silver_orders", 1, {"bronze": mark}, {"bronze": fingerprint}))


def storing(record: JobRecord) -> MemoryMarkStore:
    """A store with this record alone."""
    store = MemoryMarkStore()
    with hold(store, record.job) as held:
        store.commit(record, expected=0, lease=held.lease)
    return store


def test_readers_are_found_by_the_id_of_the_table(table: Path) -> None:
    """A table that was dropped and made anew has none."""
    store = reading(table, 1)
    assert readers_of(DeltaProbe(str(table)).table_id(), store) == [Reader("silver_orders", 1)]
    assert readers_of("another", store) == []


def test_a_fact_reads_each_of_its_inputs(table: Path) -> None:
    """Its mark has a version for every table, and each counts for its own table alone."""
    usage, prices = FactRows("usage", str(table)), Lookup("prices", "elsewhere", on={"k": "k"})
    fingerprint = TouchedDates(usage).fingerprint(lambda: None)  # type: ignore[arg-type, return-value]
    mark = TableVersionsHWM("inputs", {"usage": 1, prices.name: 0})
    store = storing(
        JobRecord("gold_cost", 1, {"inputs": mark}, {"inputs": f"{fingerprint}, 'prices' (table id p) at q"})
    )
    assert readers_of(DeltaProbe(str(table)).table_id(), store) == [Reader("gold_cost", 1)]
    assert readers_of("p", store) == [Reader("gold_cost", 0)]


def test_a_task_of_the_three_functions_reads_its_bronze(table: Path) -> None:
    """What it committed names the version and the very table."""
    store, table_id = MemoryMarkStore(), DeltaProbe(str(table)).table_id()
    reached = Processed.at(NOW, "brz_orders", 1, f"delta brz_orders (table id {table_id})")
    commit_processing_state(None, "silver_orders", reached, store=store)  # type: ignore[arg-type]
    assert readers_of(table_id, store) == [Reader("silver_orders", 1)]


def test_nothing_is_kept_for_a_reader_that_has_read_everything(table: Path) -> None:
    """What is asked for is enough."""
    found = safe_retention(DeltaProbe(str(table)), [Reader("silver", 2)], timedelta(hours=1), NOW)
    assert found.properties()["delta.deletedFileRetentionDuration"] == "interval 1 hours"


def test_files_are_kept_as_long_as_the_slowest_reader_needs_them(table: Path) -> None:
    """It has not read for ten days: eleven are kept, although one hour was asked for."""
    later = datetime.now(timezone.utc) + timedelta(days=10)
    found = safe_retention(DeltaProbe(str(table)), [Reader("silver", 0)], timedelta(hours=1), later)
    assert found.files >= timedelta(days=10, hours=23)
    assert found.log == timedelta(days=30)


@pytest.mark.spark
def test_compaction_leaves_the_rows_and_gives_a_reader_nothing_new(spark: SparkSession, table: Path) -> None:
    """One file instead of three; a second time there is nothing to do; a bad table does not stop the others."""
    store = reading(table, 2)
    log = table.parent / "broken" / "_delta_log" / "00000000000000000000.json"
    log.parent.mkdir(parents=True)
    log.write_text("{ not json")
    broken = Upkeep("broken", str(table.parent / "broken"))
    report, bad = optimize(spark, [Upkeep("orders", str(table), vacuum=timedelta(hours=168)), broken], store)
    assert (report.error, report.files_before, report.files_after) == (None, 3, 1)
    assert report.done == ("retention and statistics", "compaction", "vacuum")
    assert bad.error is not None
    assert sorted(DeltaTable(table).to_pyarrow_table().column("id").to_pylist()) == list(range(30))
    probe = DeltaProbe(str(table))
    assert [commit.changes_rows for commit in probe.commits(2, probe.latest())].count(True) == 0
    again = optimize(spark, [Upkeep("orders", str(table))], store)[0]
    assert (again.done, again.files_after) == ((), 1)
    [kept] = store.runs(UPKEEP)
    assert (kept.status, kept.durations, kept.error) == ("failed", {"orders": report.seconds}, f"broken: {bad.error}")


@pytest.mark.spark
def test_rows_are_ordered_once_after_each_change(spark: SparkSession, table: Path) -> None:
    """Z-order writes the whole table, so it is left out while nothing changed; a dry run writes nothing."""
    wish = Upkeep("orders", str(table), zorder=("k",), statistics=("id", "k"))
    store = MemoryMarkStore()
    dry = optimize(spark, [wish], store, dry_run=True)[0]
    assert (dry.done, DeltaTable(table).version()) == (("retention and statistics", "z-order"), 2)
    assert optimize(spark, [wish], store)[0].done == ("retention and statistics", "z-order")
    assert optimize(spark, [wish], store)[0].done == ()
    write_deltalake(table, pa.table({"id": [99], "k": [0]}), mode="append")
    assert optimize(spark, [wish], store)[0].done == ("z-order",)
    assert DeltaTable(table).metadata().configuration["delta.dataSkippingStatsColumns"] == "id,k"


@pytest.mark.spark
def test_a_table_with_few_files_is_not_ordered_and_statistics_are_the_engines(spark: SparkSession, table: Path) -> None:
    """What has nothing to skip is not rewritten; an engine without ANALYZE for Delta is no error."""
    wish = Upkeep("orders", str(table), zorder=("k",), after_small_files=16, analyze=True)
    report = optimize(spark, [wish], MemoryMarkStore())[0]
    assert (report.error, report.done) == (None, ("retention and statistics",))


@pytest.mark.spark
def test_a_table_that_no_run_has_written_to_is_no_failure(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    """A new job has none yet: that is told, and the other tables are looked after; nothing is kept as a run."""
    store, missing = MemoryMarkStore(), Upkeep("new", str(tmp_path / "new"))
    absent, named, there = optimize(spark, [missing, Upkeep("named", table="shop.new"), Upkeep("t", str(table))], store)
    assert (absent.error, absent.note, absent.done) == (None, "no run has written to it yet", ())
    assert (named.error, named.note) == (None, "no run has written to it yet")
    assert "compaction" in there.done
    optimize(spark, [missing], silent := MemoryMarkStore())
    assert silent.runs() == []


def no_session() -> SparkSession:
    """Where Spark must not be asked."""
    raise AssertionError("Spark was started")


def test_properties_are_set_without_spark(table: Path) -> None:
    """Spark would build the whole state of the table to note two words; a second time there is nothing to do."""
    wish, store = Upkeep("orders", str(table), statistics=("id",), after_small_files=16), MemoryMarkStore()
    assert optimize(no_session, [wish], store)[0].done == ("retention and statistics",)
    assert optimize(no_session, [wish], store)[0].done == ()
    assert DeltaTable(table).metadata().configuration == {
        "delta.dataSkippingStatsColumns": "id",
        "delta.deletedFileRetentionDuration": "interval 168 hours",
        "delta.logRetentionDuration": "interval 720 hours",
    }


@pytest.mark.spark
def test_properties_are_set_by_spark_where_a_table_is_not_plain(spark: SparkSession, tmp_path: Path) -> None:
    """Deletion vectors are a feature that `deltalake` has its own way with: Spark notes the same properties."""
    where = f"{tmp_path}/orders"
    spark.sql(f"create table delta.`{where}` (id int) using delta tblproperties (delta.enableDeletionVectors = true)")
    assert optimize(spark, [Upkeep("orders", where)], MemoryMarkStore())[0].done == ("retention and statistics",)
    assert DeltaProbe(where).properties()["delta.deletedFileRetentionDuration"] == "interval 168 hours"
    [newest] = spark.sql(f"describe history delta.`{where}` limit 1").collect()
    assert (newest["operation"], newest["engineInfo"].split("/")[0]) == ("SET TBLPROPERTIES", "Apache-Spark")


@pytest.mark.spark
def test_spark_reads_a_table_whose_properties_were_set_without_it(spark: SparkSession, table: Path) -> None:
    """The same rows and properties, an append that keeps them, and a checkpoint where Spark makes one."""
    for columns in ("id", "k") * 4:
        wish = Upkeep("t", str(table), statistics=(columns,), after_small_files=16)
        assert optimize(no_session, [wish], MemoryMarkStore())[0].error is None
    spark.range(1).selectExpr("100L as id", "0L as k").write.format("delta").mode("append").save(str(table))
    shown = {row["key"]: row["value"] for row in spark.sql(f"show tblproperties delta.`{table}`").collect()}
    assert (shown["delta.dataSkippingStatsColumns"], shown["delta.logRetentionDuration"]) == ("k", "interval 720 hours")
    assert spark.read.format("delta").load(str(table)).count() == 31
    assert [file.name for file in (table / "_delta_log").glob("*.checkpoint.parquet")] == [
        f"{10:020d}.checkpoint.parquet"
    ]

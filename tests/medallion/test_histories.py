"""Tables with history inside of jobs: read, fitted, frozen, counted, and read on by the next job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import floodmark as fm
from floodmark.errors import ConfigError, FloodmarkError, LeaseHeld, SchemaChanged
from floodmark.jobs.quarantine import Selection, replay
from floodmark.medallion import prune_events, settle_conflicts
from floodmark.probes.set_aside import rows_set_aside
from floodmark.sinks.scd.events import CONTRADICTED
from floodmark.stores.lease import hold
from floodmark.testing import ListSink, RowsSource
from floodmark.testing.doubles import Accident
from tests.sinks.batches import on_disk
from tests.tables import rows_of, sorted_rows

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
    found = sorted(rows_of(tmp_path / "history"), key=lambda row: (row.k, row.committed_version))
    assert (receipt.status, receipt.rows_read) == ("done", 3)
    assert [(row.k, row.v, row.is_current) for row in found] == [
        (1, "a", False),
        (1, "b", True),
        (2, "a", False),
    ]
    assert [row[:2] for row in sorted_rows(tmp_path / "latest")] == [(1, "b"), (2, "a")]


def test_a_job_prunes_its_logs_under_its_lease(spark: SparkSession, tmp_path: Path) -> None:
    """Not while a run holds it, and only where there is a log."""
    source = RowsSource([{"k": 1, "at": 1, "v": 1}, {"k": 1, "at": 2, "v": 2}], "k int, at int, v int")
    store, sink = fm.stores.open("memory"), fm.sinks.Scd1(str(tmp_path / "t"), key=("k",), sequence=("at",))
    job = fm.Job("j", source, [sink])
    job.run(spark, store)
    with hold(store, "j"), pytest.raises(LeaseHeld):
        prune_events(job, 9, spark, store)
    assert prune_events(job, 9, spark, store) == {"scd1": 1}
    assert sorted_rows(tmp_path / "t") == [(1, 2, 2)]
    with pytest.raises(ConfigError, match="no sink with history"):
        prune_events(fm.Job("k", source, [ListSink()]), 9, spark, store)


def test_rows_without_a_key_or_a_moment_are_refused_and_counted(spark: SparkSession, tmp_path: Path) -> None:
    """They are in the quarantine with the reason, not among what was written; repaired, they are replayed."""
    rows: Rows = [{"k": 1, "at": 1}, {"k": None, "at": 2}, {"k": 3, "at": None}, {"k": None, "at": None}]
    store, sink = fm.stores.open("memory"), fm.sinks.Scd2(str(tmp_path / "t"), key=("k",), sequence=("at",))
    job = fm.Job("j", RowsSource(rows, "k int, at int"), [sink], quarantine=str(tmp_path / "aside"))
    receipt = job.run(spark, store)
    counted = (receipt.rows_read, receipt.rows_written, receipt.rows_refused, receipt.rows_quarantined)
    assert counted == (4, {"scd2": 1}, 3, 3)
    assert sorted(reasons_of(tmp_path)) == [
        ("key column k is NULL",),
        ("sequence column at is NULL",),
        ("sequence column at is NULL", "key column k is NULL"),
    ]
    assert [row.k for row in rows_of(tmp_path / "t__events")] == [1]
    replay(job, Selection(rule="key column k is NULL"), {"k": "7", "at": "coalesce(at, 9)"}, lambda: spark, store)
    assert [row[:2] for row in sorted_rows(tmp_path / "t")] == [(1, 1), (7, 9)]


def test_contradictions_wait_in_the_quarantine_until_they_are_decided(spark: SparkSession, tmp_path: Path) -> None:
    """Both are there, under the batch that met them; its receipt counts its own, and tells of what came before."""
    sink = fm.sinks.Scd2(str(tmp_path / "t"), key=("k",), sequence=("at",), on_conflict="quarantine")
    store, rows = fm.stores.open("memory"), [{"k": 1, "at": 5, "v": "shop"}]
    source: Rows = [*rows]
    job = fm.Job("j", RowsSource(source, "k int, at int, v string"), [sink], quarantine=str(tmp_path / "aside"))
    assert job.run(spark, store).rows_refused == 0
    source += [{"k": 1, "at": 5, "v": "erp"}, {"k": 2, "at": 1, "v": "a"}]
    receipt = job.run(spark, store)
    assert (receipt.rows_read, receipt.rows_written, receipt.rows_refused) == (2, {"scd2": 1}, 1)
    assert receipt.notes == ("scd2: 1 rows of earlier batches are put aside with those that they contradict",)
    assert reasons_of(tmp_path) == [(CONTRADICTED,), (CONTRADICTED,)]
    with pytest.raises(ConfigError, match="was refused by its sink"):
        replay(job, Selection(), {}, lambda: spark, store)
    assert settle_conflicts(job, "v = 'erp'", spark, store) == {"scd2": 1}
    states = [row.status for row in rows_set_aside(str(tmp_path / "aside"), "j", "quarantine")]
    assert sorted(states) == ["discarded", "replayed"]
    assert sorted_rows(tmp_path / "t") == [(1, 5, "erp", 5, None, True), (2, 1, "a", 1, None, True)]
    assert job.run(spark, store).status == "nothing_new"


def test_nothing_is_decided_while_a_batch_is_open(spark: SparkSession, tmp_path: Path) -> None:
    """The decision takes a number of the job, which would give the batch up unseen."""
    sink = fm.sinks.Scd2(str(tmp_path / "t"), key=("k",), sequence=("at",), on_conflict="quarantine")
    store, source = fm.stores.open("memory"), RowsSource([{"k": 1, "at": 5}], "k int, at int")
    job = fm.Job("j", source, [sink, ListSink(fail_times=1)])
    with pytest.raises(FloodmarkError):
        job.run(spark, store)
    with pytest.raises(ConfigError, match="is not finished"):
        settle_conflicts(job, "true", spark, store)
    assert job.run(spark, store).recovered


def test_an_event_below_the_floor_is_in_the_quarantine(spark: SparkSession, tmp_path: Path) -> None:
    """The log was pruned, so nobody can say any more where it belongs."""
    sink, store = fm.sinks.Scd2(str(tmp_path / "t"), key=("k",), sequence=("at",)), fm.stores.open("memory")
    rows: Rows = [{"k": 1, "at": 1, "v": "a"}, {"k": 1, "at": 9, "v": "b"}]
    job = fm.Job("j", RowsSource(rows, "k int, at int, v string"), [sink], quarantine=str(tmp_path / "aside"))
    job.run(spark, store)
    prune_events(job, 8, spark, store)
    rows += [{"k": 1, "at": 3, "v": "late"}, {"k": 1, "at": 12, "v": "c"}]
    receipt = job.run(spark, store)
    assert (receipt.rows_read, receipt.rows_written, receipt.rows_refused) == (2, {"scd2": 1}, 1)
    assert reasons_of(tmp_path) == [("older than the floor 8 to which the log was pruned",)]


def reasons_of(home: Path) -> list[tuple[str, ...]]:
    return [row.reasons for row in rows_set_aside(str(home / "aside"), "j", "quarantine")]


@pytest.mark.crash
def test_a_contradiction_is_decided_under_the_job_s_lease_and_stays_so(spark: SparkSession, tmp_path: Path) -> None:
    """The table is what it would be had the other event never come, also when that one comes once more."""
    sink = fm.sinks.Scd2(str(tmp_path / "t"), key=("k",), sequence=("at",), on_conflict="quarantine")
    store, schema = fm.stores.open("memory"), "k int, at int, v string"
    events: Rows = [{"k": 1, "at": 1, "v": "a"}, {"k": 1, "at": 5, "v": "shop"}, {"k": 1, "at": 5, "v": "erp"}]
    job = fm.Job("j", RowsSource(events, schema), [sink])
    job.run(spark, store)
    assert sorted_rows(tmp_path / "t") == [(1, 1, "a", 1, None, True)]
    with hold(store, "j"), pytest.raises(LeaseHeld):
        settle_conflicts(job, "v = 'erp'", spark, store)
    assert settle_conflicts(job, "v = 'erp'", spark, store) == {"scd2": 1}
    decided = [(1, 1, "a", 1, 5, False), (1, 5, "erp", 5, None, True)]
    assert sorted_rows(tmp_path / "t") == decided
    fm.Job("j", RowsSource([*events, events[1]], schema), [sink]).run(spark, store)
    assert sorted_rows(tmp_path / "t") == decided
    assert settle_conflicts(job, "v = 'erp'", spark, store) == {"scd2": 0}


def test_only_a_sink_that_puts_contradictions_aside_has_something_to_decide(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Where they are errors, or the last arrival wins, none is left; a job without history has none at all."""
    store, source = fm.stores.open("memory"), RowsSource([{"k": 1, "at": 1}], "k int, at int")
    job = fm.Job("j", source, [fm.sinks.Scd1(str(tmp_path / "t"), key=("k",), sequence=("at",))])
    job.run(spark, store)
    with pytest.raises(ConfigError, match="nothing to decide between"):
        settle_conflicts(job, "at = 1", spark, store)
    with pytest.raises(ConfigError, match="no sink with history"):
        settle_conflicts(fm.Job("k", source, [ListSink()]), "at = 1", spark, store)

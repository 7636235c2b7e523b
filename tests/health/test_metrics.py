"""The numbers for Prometheus: what was recorded, under its labels, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from prometheus_client import generate_latest

from floodmark.health.metrics import LoopMetrics, Sample, StoredNumbers, count_retries, exposition, metrics
from floodmark.health.report import JobWatch, TableWatch, Watch
from floodmark.stores.lease import hold
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import UPKEEP, JobRecord, Receipt, RuleOutcome
from floodmark.testing import FailingStore

NOON = datetime(2026, 11, 15, 12, tzinfo=timezone.utc)


def store() -> MemoryMarkStore:
    """A job that failed once and then read three rows, of which a rule held two back."""
    opened = MemoryMarkStore()
    opened.add_run(Receipt("orders", "r1", "failed", NOON - timedelta(minutes=9)))
    rules = (RuleOutcome("not_null(id)", "quarantine", 2, 3),)
    done = Receipt("orders", "r2", "done", NOON - timedelta(minutes=2), 1.5, 1, 1, 3, rows_dead=1, rules=rules)
    with hold(opened, "orders") as held:
        record = JobRecord("orders", 1, modified_time=NOON - timedelta(minutes=2))
        opened.commit(record, expected=0, lease=held.lease, receipt=done)
    return opened


def test_a_job_is_told_by_its_receipts_and_its_mark() -> None:
    """Every number has its labels, and a rule its name and action."""
    found = metrics(Watch(jobs=(JobWatch("orders"),)), store(), NOON)
    of_job = {"job": "orders"}
    assert found == [
        Sample("dead_letter_count", of_job, 1),
        Sample("mark_lag_seconds", of_job, 120.0),
        Sample("pipeline_duration_seconds", of_job, 1.5),
        Sample("pipeline_error_count", of_job, 1),
        Sample("pipeline_records_processed", of_job, 3),
        Sample("pipeline_retry_count", of_job, 1),
        Sample("pipeline_start_count", of_job, 2),
        Sample("rows_held_back", of_job, 0),
        Sample("validation_failure_count", {**of_job, "rule": "not_null(id)", "action": "quarantine"}, 2),
    ]


def test_what_nobody_recorded_is_absent() -> None:
    """A job that never ran has no duration, a table that is not there has no files."""
    watch = Watch((TableWatch("gone", "nowhere/gone"),), (JobWatch("new"),))
    assert [each.name for each in metrics(watch, MemoryMarkStore(), NOON)] == [
        "pipeline_error_count",
        "pipeline_retry_count",
        "pipeline_start_count",
    ]


def test_the_text_is_what_prometheus_reads() -> None:
    """Help and type once for each name; quotes in a label are escaped."""
    text = exposition([Sample("table_files", {"table": 'a"b'}, 3), Sample("table_files", {"table": "c"}, 1.5)])
    assert text.splitlines() == [
        "# HELP table_files files that the table is made of",
        "# TYPE table_files gauge",
        'table_files{table="a\\"b"} 3.0',
        'table_files{table="c"} 1.5',
    ]


def test_rows_behind_the_mark_are_told_where_the_source_was_asked() -> None:
    """A job whose source cannot tell is absent."""
    watch = Watch(jobs=(JobWatch("new"), JobWatch("silent")))
    found = metrics(watch, MemoryMarkStore(), NOON, {"new": 12})
    assert [each for each in found if each.name == "mark_lag_rows"] == [Sample("mark_lag_rows", {"job": "new"}, 12)]


def test_the_upkeep_of_a_table_is_told_by_its_last_run_that_did_something() -> None:
    """A later run that left the table alone does not hide it; a table that nobody looked after is absent."""
    opened = MemoryMarkStore()
    opened.add_run(Receipt(UPKEEP, "o1", "done", NOON - timedelta(hours=3), durations={"orders": 9.0}))
    opened.add_run(Receipt(UPKEEP, "o2", "done", NOON - timedelta(hours=2), durations={"orders": 4.5}))
    opened.add_run(Receipt(UPKEEP, "o3", "failed", NOON - timedelta(hours=1), error="prices: gone"))
    watch = Watch((TableWatch("orders", "nowhere/orders"), TableWatch("prices", "nowhere/prices")))
    assert metrics(watch, opened, NOON) == [Sample("optimize_duration_seconds", {"table": "orders"}, 4.5)]


def counted(*receipts: Receipt) -> LoopMetrics:
    """A loop that saw these runs end."""
    loop = LoopMetrics()
    for receipt in receipts:
        loop.count(receipt)
    return loop


def value(loop: LoopMetrics, name: str, **labels: str) -> float | None:
    return loop.registry.get_sample_value(name, {"job": "orders", **labels})


def test_a_loop_counts_what_was_committed() -> None:
    """Under the names of the client library: counters end in _total, a histogram has a sum and a count."""
    rules = (RuleOutcome("positive", "drop", 2, 3),)
    run = Receipt("orders", "r", "done", NOON, 1.5, 1, 1, 3, rows_dead=1, rules=rules)
    loop = counted(run, run)
    assert value(loop, "pipeline_records_processed_total") == 6
    assert value(loop, "dead_letter_count_total") == 2
    assert value(loop, "validation_failure_count_total", rule="positive", action="drop") == 4
    assert (value(loop, "pipeline_duration_seconds_sum"), value(loop, "pipeline_duration_seconds_count")) == (3.0, 2)


def test_a_look_that_found_nothing_is_no_run_but_shows_that_the_job_is_up_to_date() -> None:
    """An idle loop is not a dead one."""
    loop = counted(Receipt("orders", "", "nothing_new", NOON, rows_held_back=7))
    assert value(loop, "pipeline_start_count_total") is None
    assert value(loop, "rows_held_back") == 7
    assert value(loop, "pipeline_last_success_timestamp_seconds") == NOON.timestamp()


def test_a_run_after_a_failed_one_is_a_retry() -> None:
    """And so is one that finishes the batch of a run that was killed."""
    failed, done = Receipt("orders", "", "failed", NOON, rows_read=5), Receipt("orders", "r", "done", NOON)
    loop = counted(failed, failed, done, done)
    assert value(loop, "pipeline_error_count_total") == 2
    assert value(loop, "pipeline_retry_count_total") == 2
    assert value(loop, "pipeline_records_processed_total") == 0


def test_what_spark_used_is_told_where_it_is_known() -> None:
    """Under the names of the specification; what is not known is absent."""
    opened = MemoryMarkStore()
    used = {"cpu_seconds": 1.25, "peak_memory_bytes": 4096.0}
    opened.add_run(Receipt("orders", "r1", "done", NOON, resources=used))
    found = {each.name: each.value for each in metrics(Watch(jobs=(JobWatch("orders"),)), opened, NOON)}
    assert {name: value for name, value in found.items() if name.startswith("step_")} == {
        "step_cpu_seconds": 1.25,
        "step_peak_memory_bytes": 4096.0,
    }


def test_a_loop_shows_what_spark_used_for_the_last_batch() -> None:
    """Beside what it counts."""
    counted = LoopMetrics()
    counted.count(Receipt("orders", "r1", "done", NOON, resources={"shuffle_bytes": 10.0}))
    assert counted.registry.get_sample_value("step_shuffle_bytes", {"job": "orders"}) == 10.0
    assert counted.registry.get_sample_value("step_spill_bytes", {"job": "orders"}) is None


def test_a_retry_is_a_run_after_a_failed_one_or_one_that_finishes_its_batch() -> None:
    """Each is counted once."""
    failed, done = Receipt("o", "a", "failed", NOON), Receipt("o", "b", "done", NOON)
    assert count_retries([done, failed, failed, done]) == 2
    assert count_retries([replace(done, recovered=True), failed]) == 1
    assert count_retries([]) == 0


def bronze(folder: Path) -> TableWatch:
    """A table with one file."""
    write_deltalake(folder / "bronze", pa.table({"id": [1]}))
    return TableWatch("bronze", str(folder / "bronze"))


def beside(watch: Watch, opened: MemoryMarkStore) -> LoopMetrics:
    """A loop of the job orders, which fills all tables; two minutes ago it committed, and 12 rows wait."""
    return LoopMetrics(StoredNumbers(watch, opened, {"orders": watch.tables}, lambda: {"orders": 12}, lambda: NOON))


def test_a_loop_shows_how_far_marks_are_behind_and_what_tables_are_made_of(tmp_path: Path) -> None:
    """As `health --metrics` and `serve` do, in the same families."""
    opened = store()
    opened.add_run(Receipt(UPKEEP, "o1", "done", NOON, durations={"bronze": 9.0}))
    loop = beside(Watch((bronze(tmp_path),), (JobWatch("orders"),)), opened)
    assert (value(loop, "mark_lag_seconds"), value(loop, "mark_lag_rows")) == (120.0, 12)
    of_table = {"table": "bronze"}
    assert loop.registry.get_sample_value("table_files", of_table) == 1
    assert loop.registry.get_sample_value("table_bytes", of_table) == file_bytes(tmp_path / "bronze")
    assert loop.registry.get_sample_value("data_age_hours", of_table) is not None
    assert loop.registry.get_sample_value("optimize_duration_seconds", of_table) == 9.0


def file_bytes(table: Path) -> int:
    """What its only file has."""
    (file,) = table.glob("*.parquet")
    return file.stat().st_size


def test_the_numbers_of_a_table_move_only_after_the_commit(tmp_path: Path) -> None:
    """Its sink has the rows of a batch before the mark has moved; a batch that fails there changes no number."""
    table = bronze(tmp_path)
    loop = beside(Watch((table,), (JobWatch("orders"),)), store())
    write_deltalake(table.where, pa.table({"id": [2]}), mode="append")
    loop.count(Receipt("orders", "r", "failed", NOON))
    assert loop.registry.get_sample_value("table_files", {"table": "bronze"}) == 1
    loop.count(Receipt("orders", "r", "done", NOON))
    assert loop.registry.get_sample_value("table_files", {"table": "bronze"}) == 2


def test_a_store_that_is_lost_hides_no_number_of_the_loop() -> None:
    """What nobody can look at is absent."""
    lost = FailingStore(MemoryMarkStore(), {"read": 1})
    loop = LoopMetrics(StoredNumbers(Watch(jobs=(JobWatch("orders"),)), lost, {}))
    loop.count(Receipt("orders", "r", "done", NOON, rows_read=3))
    assert b"mark_lag_seconds{" not in generate_latest(loop.registry)
    assert value(loop, "pipeline_records_processed_total") == 3

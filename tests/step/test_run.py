"""The step: exactly once, in order, and nothing at all where there is nothing new."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import floodmark as fm
from floodmark.errors import (
    CodeChanged,
    ConfigError,
    MarkMissing,
    SinkAhead,
    SinkFailed,
    SourceChanged,
    SourceEmpty,
    SourceUnreadable,
    StoreUnreachable,
    TransformFailed,
)
from floodmark.hwm import ColumnIntHWM
from floodmark.stores.contract import MarkStore
from floodmark.testing import FAIL, FailingStore, ListSink, RowsSource
from tests.tables import rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id long"
ONE, TWO, THREE = {"id": 1}, {"id": 2}, {"id": 3}


@pytest.fixture
def store(tmp_path: Path) -> MarkStore:
    return fm.stores.open("sqlite:///marks.db", folder=tmp_path)


def job_of(rows: list, *sinks: ListSink, **more: object) -> fm.Job:
    return fm.Job(name="numbers", source=RowsSource(rows, SCHEMA), sinks=sinks, **more)


def never() -> SparkSession:
    raise AssertionError("Spark was asked for although there is nothing to do")


def mark_of(store: MarkStore) -> object:
    record = store.read("numbers")
    return record.marks["rows"].value if record and record.marks else None


def test_only_what_lies_above_the_mark_is_read(spark: SparkSession, store: MarkStore) -> None:
    """The second run reads the rows that came since, and the mark follows."""
    rows, sink = [ONE, TWO], ListSink()
    first = job_of(rows, sink).run(spark, store)
    rows.append(THREE)
    second = job_of(rows, sink).run(spark, store)
    assert sink.rows == [ONE, TWO, THREE]
    assert (first.rows_read, second.rows_read, second.mark_before, second.mark_after) == (2, 1, 2, 3)


def test_nothing_new_asks_for_no_spark_and_changes_no_byte(
    spark: SparkSession, store: MarkStore, tmp_path: Path
) -> None:
    """A look is one probe of the source and one read of the record."""
    job = job_of([ONE], ListSink())
    job.run(spark, store)
    before = (tmp_path / "marks.db").read_bytes()
    assert job.run(never, store).status == "nothing_new"
    assert (tmp_path / "marks.db").read_bytes() == before


def test_an_empty_source_is_nothing_new_and_leaves_no_record(store: MarkStore) -> None:
    """No mark is a state of its own: nothing was read, so nothing is remembered."""
    assert job_of([], ListSink()).run(never, store).status == "nothing_new"
    assert store.read("numbers") is None


def test_a_failing_sink_leaves_the_mark_and_the_rerun_writes_the_others_nothing_twice(
    spark: SparkSession, store: MarkStore
) -> None:
    """The batch stays open; the sink that had it is skipped."""
    first, second = ListSink("first"), ListSink("second", fail_times=1)
    job = job_of([ONE, TWO], first, second)
    with pytest.raises(SinkFailed) as failure:
        job.run(spark, store)
    assert (failure.value.sink, mark_of(store), first.rows) == ("second", None, [ONE, TWO])
    receipt = job.run(spark, store)
    assert (first.rows, second.rows, mark_of(store)) == ([ONE, TWO], [ONE, TWO], 2)
    assert (receipt.rows_read, receipt.rows_written, receipt.recovered) == (2, {"first": 2, "second": 2}, True)


def test_the_rerun_finishes_the_open_batch_before_it_reads_new_rows(spark: SparkSession, store: MarkStore) -> None:
    """Same span, same number; what came since is a batch of its own."""
    rows, sink = [ONE], ListSink(fail_times=1)
    with pytest.raises(SinkFailed):
        job_of(rows, sink).run(spark, store)
    rows.append(TWO)
    receipt = job_of(rows, sink).run(spark, store)
    assert (sink.rows, receipt.batches, receipt.rows_read, receipt.number) == ([ONE, TWO], 2, 2, 2)


def test_a_source_that_fails_is_read_again(spark: SparkSession, store: MarkStore) -> None:
    """A failed read writes nothing and moves nothing."""
    source, sink = RowsSource([ONE, FAIL, TWO], SCHEMA), ListSink()
    job = fm.Job(name="numbers", source=source, sinks=[sink])
    with pytest.raises(SourceUnreadable):
        job.run(spark, store)
    source.heal()
    job.run(spark, store)
    assert (sink.rows, mark_of(store)) == ([ONE, TWO], 2)


def test_a_failed_run_is_kept_for_the_history(spark: SparkSession, store: MarkStore) -> None:
    """`floodmark runs` shows what went wrong."""
    with pytest.raises(SinkFailed):
        job_of([ONE], ListSink(fail_times=1)).run(spark, store)
    [failed] = store.runs("numbers")
    assert (failed.status, "was told to fail" in (failed.error or "")) == ("failed", True)


def test_the_commit_saves_mark_and_receipt_together(spark: SparkSession, store: MarkStore) -> None:
    """A kill cannot lose the receipt of a batch that counts."""
    receipt = job_of([ONE], ListSink()).run(spark, store)
    assert list(store.runs("numbers")) == [receipt]


def test_a_commit_whose_answer_was_lost_repeats_nothing(spark: SparkSession, store: MarkStore) -> None:
    """The commit was durable although the run failed: the next one sees the mark and has nothing to do."""
    sink = ListSink()
    job = job_of([ONE], sink)
    with pytest.raises(StoreUnreachable):
        job.run(spark, FailingStore(store, fail_on={"commit": 1}, when="after"))
    assert (job.run(spark, store).status, sink.rows) == ("nothing_new", [ONE])


def test_a_store_that_cannot_be_read_is_never_a_first_run(spark: SparkSession, store: MarkStore) -> None:
    """It stops; it does not start from the beginning."""
    sink = ListSink()
    with pytest.raises(StoreUnreachable):
        job_of([ONE], sink).run(spark, FailingStore(store, fail_on={"read": 1}))
    assert sink.rows == []


def test_a_lost_store_and_a_full_target_is_a_decision(spark: SparkSession, store: MarkStore, tmp_path: Path) -> None:
    """Without a mark the rows would be written twice."""
    sink = ListSink()
    job_of([ONE], sink).run(spark, store)
    (tmp_path / "empty").mkdir()
    blank = fm.stores.open("sqlite:///marks.db", folder=tmp_path / "empty")
    with pytest.raises(MarkMissing) as stop:
        job_of([ONE], sink).run(spark, blank)
    assert (stop.value.exit_code, stop.value.sink, sink.rows) == (5, "list", [ONE])


def test_a_full_refresh_rebuilds_the_target(spark: SparkSession, store: MarkStore, tmp_path: Path) -> None:
    """It holds exactly the source afterwards, also where the store was lost."""
    rows, sink = [ONE, TWO], ListSink()
    job_of(rows, sink).run(spark, store)
    rows[:] = [THREE]
    receipt = job_of(rows, sink).run(spark, store, full_refresh=True)
    assert (sink.rows, receipt.mark_after, receipt.number) == ([THREE], 1, 2)


def test_a_full_refresh_of_an_empty_source_is_refused(spark: SparkSession, store: MarkStore) -> None:
    """Emptying every target is hardly what was meant."""
    sink = ListSink()
    job_of([ONE], sink).run(spark, store)
    with pytest.raises(SourceEmpty):
        job_of([], sink).run(spark, store, full_refresh=True)
    assert sink.rows == [ONE]


def test_a_store_restored_from_an_older_copy_is_a_decision(
    spark: SparkSession, store: MarkStore, tmp_path: Path
) -> None:
    """The sink knows a higher number than the store, so the store is not the newest."""
    rows, sink = [ONE], ListSink()
    job_of(rows, sink).run(spark, store)
    copy = (tmp_path / "marks.db").read_bytes()
    rows.append(TWO)
    job_of(rows, sink).run(spark, store)
    rows.append(THREE)
    job_of(rows, sink).run(spark, store)
    store.close()
    (tmp_path / "marks.db").write_bytes(copy)
    restored = fm.stores.open("sqlite:///marks.db", folder=tmp_path)
    with pytest.raises(SinkAhead) as stop:
        job_of(rows, sink).run(spark, restored)
    assert (stop.value.recorded, stop.value.stored, sink.rows) == (3, 1, [ONE, TWO, THREE])


def test_a_mark_of_another_source_stops_the_run(spark: SparkSession, store: MarkStore, tmp_path: Path) -> None:
    """A mark says nothing about rows of another place; both are shown."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "1.jsonl").write_text('{"id": 1}\n')
    job = fm.Job("numbers", fm.sources.Files(tmp_path / "a", schema=SCHEMA, settle=0), [ListSink()])
    job.run(spark, store)
    moved = replace(job, source=fm.sources.Files(tmp_path / "b", schema=SCHEMA, settle=0))
    with pytest.raises(SourceChanged) as stop:
        moved.run(spark, store)
    assert (str(tmp_path / "a") in stop.value.stored, str(tmp_path / "b") in stop.value.found) == (True, True)


def test_reset_delivers_everything_again_under_a_new_number(spark: SparkSession, store: MarkStore) -> None:
    """An old batch number must not swallow what was asked for again."""
    sink = ListSink()
    job = job_of([ONE, TWO], sink)
    job.run(spark, store)
    job.reset(spark, store)
    receipt = job.run(spark, store)
    assert (sink.rows, receipt.number) == ([ONE, TWO, ONE, TWO], 3)


def test_a_mark_that_was_set_decides_what_is_read_next(spark: SparkSession, store: MarkStore) -> None:
    """`marks set` may lower it; the rows above it come again."""
    sink = ListSink()
    job = job_of([ONE, TWO, THREE], sink)
    job.run(spark, store)
    assert job.set_mark("2", spark, store) == ColumnIntHWM("rows", 2)
    job.run(spark, store)
    assert sink.rows == [ONE, TWO, THREE, THREE]


def test_from_reads_a_place_again_and_never_lowers_the_mark(spark: SparkSession, store: MarkStore) -> None:
    """`--from` is for once; the mark stays the highest."""
    sink = ListSink()
    job = job_of([ONE, TWO, THREE], sink)
    job.run(spark, store)
    receipt = job.run(spark, store, start="1", max_rows=1)
    assert (sink.rows[3:], receipt.mark_after) == ([TWO], 3)


def test_max_rows_bounds_one_run(spark: SparkSession, store: MarkStore) -> None:
    """The rest waits for the next one."""
    sink = ListSink()
    job = job_of([ONE, TWO, THREE], sink)
    assert [job.run(spark, store, max_rows=2).rows_read, job.run(spark, store, max_rows=2).rows_read] == [2, 1]
    assert sink.rows == [ONE, TWO, THREE]


def test_a_fixed_transform_plans_again_if_no_sink_has_the_batch(spark: SparkSession, store: MarkStore) -> None:
    """The usual crash is a bug that was then fixed."""
    sink = ListSink()
    with pytest.raises(TransformFailed):
        job_of([ONE], sink, transform="select nonsense from source").run(spark, store)
    job_of([ONE], sink, transform="select id * 2 as id from source").run(spark, store)
    assert sink.rows == [{"id": 2}]


def first_try(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("id + 100 as id")


def second_try(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("id + 200 as id")


def half_written(spark: SparkSession, store: MarkStore, transform: str | Callable) -> tuple[ListSink, ListSink, fm.Job]:
    """A batch that the first sink has and the second has not."""
    first, second = ListSink("first"), ListSink("second", fail_times=1)
    job = job_of([ONE], first, second, transform=transform)
    with pytest.raises(SinkFailed):
        job.run(spark, store)
    return first, second, job


def test_a_half_written_batch_is_finished_from_its_spool_with_the_old_rows(
    spark: SparkSession, store: MarkStore
) -> None:
    """A function may not give the same rows twice, so they were frozen: the sinks agree whatever the code is now."""
    first, second, job = half_written(spark, store, first_try)
    replace(job, transform=second_try).run(spark, store)
    assert (first.rows, second.rows) == ([{"id": 101}], [{"id": 101}])


def test_a_half_written_batch_without_a_spool_asks_when_the_code_changed(spark: SparkSession, store: MarkStore) -> None:
    """Known SQL over an immutable source is not spooled; other SQL would give the second sink other rows."""
    _, second, job = half_written(spark, store, "select id + 100 as id from source")
    changed = replace(job, transform="select id + 200 as id from source")
    with pytest.raises(CodeChanged) as stop:
        changed.run(spark, store)
    assert (stop.value.exit_code, stop.value.changed, stop.value.confirmed) == (5, ("the transform",), ("first",))
    assert second.rows == []


def test_finish_writes_the_rest_with_the_new_code(spark: SparkSession, store: MarkStore) -> None:
    """The sinks differ for this batch: that is what `--finish` costs."""
    first, second, job = half_written(spark, store, "select id + 100 as id from source")
    replace(job, transform="select id + 200 as id from source").run(spark, store, finish=True)
    assert (first.rows, second.rows) == ([{"id": 101}], [{"id": 201}])


def test_abandon_reads_the_span_again_as_a_new_batch(spark: SparkSession, store: MarkStore) -> None:
    """The sink that had it gets the rows a second time: that is what `--abandon` costs."""
    first, second, job = half_written(spark, store, "select id + 100 as id from source")
    receipt = replace(job, transform="select id + 200 as id from source").run(spark, store, abandon=True)
    assert (first.rows, second.rows, receipt.number) == ([{"id": 101}, {"id": 201}], [{"id": 201}], 2)


def test_a_plan_shows_the_way_and_touches_nothing(spark: SparkSession, store: MarkStore) -> None:
    """Low, high and count, before anything happens."""
    sink = ListSink()
    plan = job_of([ONE, TWO], sink).plan(spark, store)
    assert (plan.mark_before, plan.mark_after, plan.expected_rows, plan.has_work) == (None, 2, 2, True)
    assert (sink.rows, store.read("numbers")) == ([], None)


def test_a_plan_names_an_open_batch(spark: SparkSession, store: MarkStore) -> None:
    """What will be finished first, and who has it already."""
    _, _, job = half_written(spark, store, "select id + 100 as id from source")
    plan = job.plan(spark, store)
    assert (plan.open_batch, plan.mark_after, "first has it" in plan.notes[0]) == (1, 1, True)


def test_a_transform_that_cannot_be_described_fails_before_any_write(spark: SparkSession, store: MarkStore) -> None:
    """The message names the column; the sink saw nothing."""
    sink = ListSink()
    with pytest.raises(TransformFailed, match="nonsense"):
        job_of([ONE], sink, transform="select nonsense from source").run(spark, store)
    assert sink.rows == []


def test_two_sinks_of_one_name_are_refused() -> None:
    """A ledger is known by its sink's name."""
    with pytest.raises(ConfigError, match="two sinks named 'list'"):
        job_of([ONE], ListSink(), ListSink())


def test_the_same_job_in_two_namespaces_has_two_marks(spark: SparkSession, tmp_path: Path) -> None:
    """Marks and ledgers carry the namespace."""
    sink = ListSink()
    dev = fm.stores.open("sqlite:///marks.db", folder=tmp_path, namespace="dev")
    prod = fm.stores.open("sqlite:///marks.db", folder=tmp_path, namespace="prod")
    job_of([ONE], sink).run(spark, dev)
    assert prod.read("numbers") is None
    assert sorted(sink.ledger) == ["floodmark.dev.numbers.list"]


def test_batch_time_stands_for_the_clock(spark: SparkSession, store: MarkStore) -> None:
    """A rerun of the same batch sees the same time."""
    sink = ListSink(fail_times=1)
    job = job_of([ONE], sink, transform="select id, :batch_time as seen_at from source")
    with pytest.raises(SinkFailed):
        job.run(spark, store)
    intent = store.read("numbers").intent
    job.run(spark, store)
    assert sink.rows[0]["seen_at"].timestamp() == pytest.approx(intent.batch_time.timestamp(), abs=1e-5)


def test_a_narrow_select_keeps_the_sources_order_for_a_merge(
    spark: SparkSession, store: MarkStore, tmp_path: Path
) -> None:
    """Two changes of a key in one batch: the later one stays, although nobody selected a sequence."""
    rows = [{"id": 1, "v": "old"}, {"id": 1, "v": "new"}]
    job = fm.Job(
        name="numbers",
        source=RowsSource(rows, "id long, v string"),
        transform="select id, v from source",
        sinks=[fm.sinks.Delta(str(tmp_path / "lake"), mode="merge", key=("id",))],
    )
    job.run(spark, store)
    assert [row.asDict() for row in rows_of(tmp_path / "lake")] == [{"id": 1, "v": "new"}]

"""Bad input gets a clear error with a next step, and nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import floodmark as fm
from floodmark.errors import MarkUnreadable, RecordMalformed, SchemaChanged, SinkFailed, SourceUnreadable
from floodmark.probes.set_aside import rows_set_aside
from floodmark.step.set_aside import json_text, parse_rows
from floodmark.stores.contract import MarkStore
from floodmark.testing import ListSink
from tests.tables import rows_of, sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id long, name string"


@pytest.fixture
def store(tmp_path: Path) -> MarkStore:
    return fm.stores.open("file:marks", folder=tmp_path)


def put(home: Path, name: str, *lines: str) -> None:
    (home / "in").mkdir(exist_ok=True)
    (home / "in" / name).write_text("".join(f"{line}\n" for line in lines))


def job_of(home: Path, schema: str | None = SCHEMA, **more: object) -> fm.Job:
    source = fm.sources.Files(home / "in", schema=schema, settle=0)
    return fm.Job("people", source, [fm.sinks.Delta(str(home / "lake"))], **more)


def records(folder: Path) -> list[dict]:
    return sorted((row.asDict() for row in rows_of(folder)), key=json.dumps)


def test_a_malformed_line_goes_to_the_dead_letters_with_file_and_line(
    spark: SparkSession, store: MarkStore, tmp_path: Path
) -> None:
    """The others go on; read = written + dead; a rerun adds no second letter."""
    put(tmp_path, "a.jsonl", '{"id": 1, "name": "x"}', '{"id": 2, "na', '{"id": "three", "name": "y"}')
    job = job_of(tmp_path, dead_letters=str(tmp_path / "dead"))
    receipt = job.run(spark, store)
    job.run(spark, store)
    assert records(tmp_path / "lake") == [{"id": 1, "name": "x"}]
    assert (receipt.rows_read, receipt.rows_written, receipt.rows_dead) == (3, {"delta": 1}, 2)
    assert sorted_rows(tmp_path / "dead", "job", "file", "line", "text") == [
        ("people", str(tmp_path / "in" / "a.jsonl"), 2, '{"id": 2, "na'),
        ("people", str(tmp_path / "in" / "a.jsonl"), 3, '{"id": "three", "name": "y"}'),
    ]


class ChangingFiles(fm.sources.Files):
    """Files that may be others when they are read again, as a compacted topic is."""

    def gives_same_rows(self) -> bool:
        return False


def test_what_could_not_be_parsed_is_kept_where_the_source_may_change(
    spark: SparkSession, store: MarkStore, tmp_path: Path
) -> None:
    """The batch is finished without the source, which does not have the record any more."""
    put(tmp_path, "a.jsonl", '{"id": 1, "name": "x"}', '{"id": 2, "na')
    source = ChangingFiles(tmp_path / "in", schema=SCHEMA, settle=0)
    job = fm.Job(
        "people", source, [ListSink("lake"), ListSink("copy", fail_times=1)], dead_letters=str(tmp_path / "dead")
    )
    with pytest.raises(SinkFailed):
        job.run(spark, store)
    (tmp_path / "in" / "a.jsonl").unlink()
    receipt = job.run(spark, store)
    letters = [(each.text, each.status) for each in rows_set_aside(str(tmp_path / "dead"), "people")]
    assert (receipt.rows_read, receipt.rows_written, receipt.rows_dead) == (2, {"lake": 1, "copy": 1}, 1)
    assert letters == [('{"id": 2, "na', "open")]


def test_a_malformed_line_fails_the_run_where_nothing_keeps_it(
    spark: SparkSession, store: MarkStore, tmp_path: Path
) -> None:
    """File, line and text are named; nothing was written and the mark did not move."""
    put(tmp_path, "a.jsonl", '{"id": 1, "name": "x"}', "not json")
    with pytest.raises(RecordMalformed) as failure:
        job_of(tmp_path).run(spark, store)
    assert (failure.value.file, failure.value.line, failure.value.exit_code) == (str(tmp_path / "in" / "a.jsonl"), 2, 1)
    assert list((tmp_path / "lake" / "_delta_log").glob("*.json")) == []
    assert store.read("people").marks == {}


def test_a_fixed_file_is_read_after_a_malformed_one_failed(
    spark: SparkSession, store: MarkStore, tmp_path: Path
) -> None:
    """The usual way on: fix the line and drop the open batch."""
    put(tmp_path, "a.jsonl", '{"id": 1, "name": "x"}', "not json")
    with pytest.raises(RecordMalformed):
        job_of(tmp_path).run(spark, store)
    put(tmp_path, "a.jsonl", '{"id": 1, "name": "x"}', '{"id": 2, "name": "y"}')
    job_of(tmp_path).run(spark, store, abandon=True)
    assert records(tmp_path / "lake") == [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]


def with_a_new_column(spark: SparkSession, store: MarkStore, home: Path) -> None:
    put(home, "a.jsonl", '{"id": 1, "name": "x"}')
    job_of(home, schema=None).run(spark, store)
    put(home, "b.jsonl", '{"id": 2, "name": "y", "age": 7}')


def test_a_row_that_is_put_aside_keeps_its_moments_in_every_zone(spark: SparkSession) -> None:
    """Before 1920 the time of Kathmandu was off by seconds, which no offset in a text shows."""
    there = spark.newSession()
    there.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    rows = there.sql("select timestamp'1500-02-28 00:00:00.000001Z' as at")
    kept = rows.select(F.lit(1).alias("id"), json_text(F.struct("at")).alias("record"))
    back = parse_rows(kept, "record", rows.schema.json(), beside="id")
    assert kept.collect()[0]["record"] == '{"at":"1500-02-28T00:00:00.000001Z"}'
    assert back.select(F.unix_micros("at")).collect() == rows.select(F.unix_micros("at")).collect()


def test_a_new_column_stops_the_run_before_any_write(spark: SparkSession, store: MarkStore, tmp_path: Path) -> None:
    """The difference is printed; the choice is the user's."""
    with_a_new_column(spark, store, tmp_path)
    with pytest.raises(SchemaChanged) as stop:
        job_of(tmp_path, schema=None).run(spark, store)
    assert (stop.value.exit_code, stop.value.differences) == (5, ("new column age bigint",))
    assert records(tmp_path / "lake") == [{"id": 1, "name": "x"}]


def test_a_plan_names_a_new_column(spark: SparkSession, store: MarkStore, tmp_path: Path) -> None:
    """Before the run stops because of it."""
    with_a_new_column(spark, store, tmp_path)
    assert job_of(tmp_path, schema=None).plan(spark, store).schema_changes == ("delta: new column age bigint",)


def test_evolve_takes_the_new_column_in(spark: SparkSession, store: MarkStore, tmp_path: Path) -> None:
    """Old rows have NULL there."""
    with_a_new_column(spark, store, tmp_path)
    job_of(tmp_path, schema=None, on_schema_change="evolve").run(spark, store)
    assert {row["id"]: row["age"] for row in records(tmp_path / "lake")} == {1: None, 2: 7}


def test_ignore_leaves_the_new_column_out(spark: SparkSession, store: MarkStore, tmp_path: Path) -> None:
    """The row comes without it."""
    with_a_new_column(spark, store, tmp_path)
    job_of(tmp_path, schema=None, on_schema_change="ignore").run(spark, store)
    assert records(tmp_path / "lake") == [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]


@pytest.mark.parametrize("policy", ["fail", "evolve", "ignore"])
def test_a_type_that_does_not_fit_stops_under_every_policy(
    spark: SparkSession, store: MarkStore, tmp_path: Path, policy: str
) -> None:
    """A text is never squeezed into a number."""
    put(tmp_path, "a.jsonl", '{"id": 1, "name": "x"}')
    job_of(tmp_path, schema=None).run(spark, store)
    put(tmp_path, "b.jsonl", '{"id": "two", "name": "y"}')
    with pytest.raises(SchemaChanged) as stop:
        job_of(tmp_path, schema=None, on_schema_change=policy).run(spark, store)
    assert stop.value.differences == ("column id is string, the target has bigint",)


def test_a_narrower_number_is_widened(spark: SparkSession, store: MarkStore, tmp_path: Path) -> None:
    """Every int is a bigint, so nothing has to be asked."""
    put(tmp_path, "a.jsonl", '{"id": 1, "name": "x"}')
    job_of(tmp_path, schema="id long, name string").run(spark, store)
    put(tmp_path, "b.jsonl", '{"id": 2, "name": "y"}')
    job_of(tmp_path, schema="id int, name string").run(spark, store)
    assert [row["id"] for row in records(tmp_path / "lake")] == [1, 2]


def test_a_truncated_mark_file_is_never_a_first_run(spark: SparkSession, store: MarkStore, tmp_path: Path) -> None:
    """The run stops and names the record; a reset is the way on."""
    put(tmp_path, "a.jsonl", '{"id": 1, "name": "x"}')
    job_of(tmp_path).run(spark, store)
    [file] = (tmp_path / "marks").rglob("*.mark.jsonl")
    file.write_bytes(file.read_bytes()[:40])
    again = fm.stores.open("file:marks", folder=tmp_path)
    with pytest.raises(MarkUnreadable) as stop:
        job_of(tmp_path).run(spark, again)
    assert (stop.value.job, "marks reset people" in stop.value.hint) == ("people", True)
    job_of(tmp_path).reset(spark, again)
    job_of(tmp_path).run(spark, again)
    assert [row["id"] for row in records(tmp_path / "lake")] == [1, 1]


def test_a_folder_that_cannot_be_read_is_not_an_empty_one(store: MarkStore, tmp_path: Path) -> None:
    """No rows and could not look are never the same."""
    with pytest.raises(SourceUnreadable):
        job_of(tmp_path).run(store=store)


def test_an_empty_folder_is_nothing_new(store: MarkStore, tmp_path: Path) -> None:
    """It was looked at, and there is nothing."""
    (tmp_path / "in").mkdir()
    assert job_of(tmp_path).run(store=store).status == "nothing_new"

"""`fm.heal`: a per-record function as the transform of a job; each record is done, dropped or failed on its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import floodmark as fm
from floodmark.errors import ConfigError, TransformFailed
from floodmark.streams import retry
from floodmark.streams.policy import stop
from floodmark.streams.records import FAILURE, Outcome, fitting, healed_batch, outcome_of
from floodmark.testing import ListSink, RowsSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("id", pa.int64()), ("total", pa.decimal128(10, 2))])


def parse(record: Any) -> dict[str, int]:  # noqa: ANN401 (a record is what its source says)
    return {"id": int(record["v"])}


def test_a_record_that_gives_none_is_dropped_and_one_that_gives_dicts_becomes_several_rows() -> None:
    """As in a stream."""
    assert outcome_of({"v": "1"}, lambda record: None, stop) == Outcome()
    assert outcome_of({"v": "1"}, lambda record: [{"id": 1}, {"id": 2}], stop) == Outcome(({"id": 1}, {"id": 2}))


def test_a_record_is_tried_again_with_growing_pauses_and_then_failed() -> None:
    """The pauses are those of the policy."""
    slept: list[float] = []
    outcome = outcome_of({"v": "x"}, parse, retry(2, "1s"), slept.append)
    assert outcome.failure == "ValueError: invalid literal for int() with base 10: 'x'"
    assert slept == [1.0, 2.0]


def test_a_function_that_returns_no_dict_fails_its_record() -> None:
    """A text is a sequence too, of letters."""
    assert "returned a str" in (outcome_of({"v": "x"}, lambda record: "no", stop).failure or "")


def test_a_row_that_does_not_fit_the_schema_fails_its_record_alone() -> None:
    """Its neighbours in the batch are none the worse for it; a field that nobody declared is not lost in silence."""
    fine, wrong, strange = Outcome(({"id": 1},)), Outcome(({"id": "one"},)), Outcome(({"idd": 1},))
    told = fitting([fine, wrong, strange], SCHEMA)
    assert told[0] == fine
    assert "does not fit the schema" in (told[1].failure or "")
    assert told[2].failure == "the function returned a field 'idd' that the schema does not have"


def test_a_record_of_which_one_row_does_not_fit_gives_no_row_at_all() -> None:
    """Half a record would be written, and the whole of it again by the retry."""
    [told] = fitting([Outcome(({"id": 1}, {"id": "two"}))], SCHEMA)
    assert (told.rows, told.failure is None) == ((), False)


def test_a_batch_holds_the_rows_with_their_places_and_then_the_failures() -> None:
    """The place is the source's own; the function does not see it. A failure has the record as it came."""
    batch = pa.RecordBatch.from_pydict({"v": ["1", "x", "3"], "_fm_position": [7, 8, 9]})
    seen: list[object] = []
    healed = healed_batch(batch, lambda record: (seen.append(record), parse(record))[1], stop, SCHEMA)
    assert seen[0] == {"v": "1"}
    reason = "ValueError: invalid literal for int() with base 10: 'x'"
    assert [(row["id"], row["_fm_position"], row[FAILURE]) for row in healed.to_pylist()] == [
        (1, 7, None),
        (3, 9, None),
        (None, 8, {"text": '{"v": "x"}', "reason": reason, "record": {"v": "x"}}),
    ]


def test_an_unknown_policy_is_refused_when_the_transform_is_made() -> None:
    """Not when the first record fails."""
    with pytest.raises(ConfigError, match="unknown on_error 'ignore'"):
        fm.heal(parse, schema="id long", on_error="ignore")


def counting(log: Path) -> Any:  # noqa: ANN401 (a function of records)
    def parse_and_count(record: Any) -> list[dict[str, int]] | None:  # noqa: ANN401
        with log.open("a") as file:
            file.write(f"{record['v']}\n")
        return None if record["v"] == "0" else [{"id": int(record["v"])}]

    return parse_and_count


@pytest.mark.spark
def test_failed_records_go_to_the_dead_letters_and_the_function_runs_once_for_each(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two sinks, the dead letters and the counts all read what was frozen."""
    given: list[Any] = [{"v": "1"}, {"v": "x"}, {"v": "0"}, {"v": "4"}]
    sinks = [first := ListSink(name="first"), second := ListSink(name="second")]
    transform = fm.heal(counting(tmp_path / "calls"), schema="id long", on_error="dead_letter")
    job = fm.Job("ids", RowsSource(given, "v string"), sinks, transform, dead_letters=str(tmp_path / "dead"))
    receipt = job.run(spark, fm.stores.open("sqlite:///marks.db", folder=tmp_path))
    assert (receipt.rows_read, receipt.rows_dead, receipt.mark_after) == (4, 1, 4)
    assert sorted(row["id"] for row in first.rows) == sorted(row["id"] for row in second.rows) == [1, 4]
    assert sorted((tmp_path / "calls").read_text().split()) == ["0", "1", "4", "x"]
    [dead] = spark.read.format("delta").load(str(tmp_path / "dead")).collect()
    assert (dead["job"], dead["text"], dead["reason"]) == (
        "ids",
        '{"v": "x"}',
        "ValueError: invalid literal for int() with base 10: 'x'",
    )


@pytest.mark.spark
def test_a_failure_that_may_not_pass_fails_the_run_and_names_the_record(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is written and the mark stays; mended, the whole batch runs again."""
    given: list[Any] = [{"v": "1"}, {"v": "x"}]
    store = fm.stores.open("sqlite:///marks.db", folder=tmp_path)
    broken = fm.Job("ids", RowsSource(given, "v string"), [sink := ListSink()], fm.heal(parse, schema="id long"))
    with pytest.raises(TransformFailed, match=r'record \{"position":\d+\}: ValueError: invalid literal'):
        broken.run(spark, store)
    assert sink.rows == []
    mended = fm.Job("ids", RowsSource(given, "v string"), [sink], fm.heal(lambda record: {"id": 1}, schema="id long"))
    receipt = mended.run(spark, store)
    assert ([row["id"] for row in sink.rows], receipt.mark_after) == ([1, 1], 2)


@pytest.mark.spark
def test_putting_failed_records_aside_needs_a_place_for_them(spark: SparkSession, tmp_path: Path) -> None:
    """It is said before the function runs."""
    transform = fm.heal(parse, schema="id long", on_error="dead_letter")
    job = fm.Job("ids", RowsSource([{"v": "1"}], "v string"), [ListSink()], transform)
    with pytest.raises(ConfigError, match="has no place for them"):
        job.run(spark, fm.stores.open("sqlite:///marks.db", folder=tmp_path))

"""`fm.heal`: a per-record function as the transform of a job; each record is done, dropped or failed on its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import floodmark as fm
from floodmark.errors import ConfigError, TransformFailed
from floodmark.testing import ListSink, RowsSource
from tests.tables import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def parse(record: Any) -> dict[str, int]:  # noqa: ANN401 (a record is what its source says)
    return {"id": int(record["v"])}


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
    [dead] = rows_of(tmp_path / "dead")
    assert (dead["job"], dead["text"], dead["reason"]) == (
        "ids",
        '{"v": "x"}',
        "ValueError: invalid literal for int() with base 10: 'x'",
    )


@pytest.mark.spark
def test_a_failure_that_may_not_pass_fails_the_run_and_names_the_record(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is written and the mark stays; fixed, the whole batch runs again."""
    given: list[Any] = [{"v": "1"}, {"v": "x"}]
    store = fm.stores.open("sqlite:///marks.db", folder=tmp_path)
    broken = fm.Job("ids", RowsSource(given, "v string"), [sink := ListSink()], fm.heal(parse, schema="id long"))
    with pytest.raises(TransformFailed, match=r'record \{"position":\d+\}: ValueError: invalid literal'):
        broken.run(spark, store)
    assert sink.rows == []
    fixed = fm.Job("ids", RowsSource(given, "v string"), [sink], fm.heal(lambda record: {"id": 1}, schema="id long"))
    receipt = fixed.run(spark, store)
    assert ([row["id"] for row in sink.rows], receipt.mark_after) == ([1, 1], 2)


@pytest.mark.spark
def test_putting_failed_records_aside_needs_a_place_for_them(spark: SparkSession, tmp_path: Path) -> None:
    """It is said before the function runs."""
    transform = fm.heal(parse, schema="id long", on_error="dead_letter")
    job = fm.Job("ids", RowsSource([{"v": "1"}], "v string"), [ListSink()], transform)
    with pytest.raises(ConfigError, match="has no place for them"):
        job.run(spark, fm.stores.open("sqlite:///marks.db", folder=tmp_path))

"""Counts on the receipt: read in the pass that writes, whatever the sink makes of the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import floodmark as fm
from floodmark.step import spool as counting
from floodmark.testing import ListSink, RowsSource

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Observation, SparkSession

SCHEMA = "id long, v string"


def rows(first: int, last: int) -> list[dict[str, object]]:
    return [{"id": number, "v": "x"} for number in range(first, last)]


@pytest.fixture
def never_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a counter that never answers: a merge has a session of its own."""

    def checked_wait(observation: Observation, wait: Any = counting.wait_for_observation) -> object:  # noqa: ANN401 - a function
        answer = wait(observation)
        assert answer, "waited in vain"
        return answer

    monkeypatch.setattr(counting, "wait_for_observation", checked_wait)


@pytest.mark.usefixtures("never_in_vain")
@pytest.mark.parametrize(
    "sink",
    [
        {"mode": "append"},
        {"mode": "merge", "key": ("id",)},
        {"mode": "merge", "key": ("id",), "sequence": ("id",)},
        {"mode": "replace", "by": ("v",)},
    ],
    ids=["append", "merge", "merge by sequence", "replace"],
)
def test_a_delta_sink_reports_what_was_read_in_every_mode(spark: SparkSession, tmp_path: Path, sink: dict) -> None:
    """Also into an empty table, and where the transform drops most of the rows."""
    given = rows(0, 10)
    job = fm.Job(
        name="counted",
        source=RowsSource(given, SCHEMA),
        transform="select * from source where id % 5 = 0",
        sinks=[fm.sinks.Delta(str(tmp_path / "lake"), **sink)],
    )
    store = fm.stores.open("sqlite:///marks.db", folder=tmp_path)
    first = job.run(spark, store)
    given.extend(rows(10, 30))
    second = job.run(spark, store)
    assert [(r.rows_read, r.rows_written["delta"]) for r in (first, second)] == [(10, 2), (20, 4)]


def test_a_transform_that_reads_its_source_twice_does_not_count_it_twice(spark: SparkSession, tmp_path: Path) -> None:
    """A self-join is one source."""
    job = fm.Job(
        name="counted",
        source=RowsSource(rows(0, 10), SCHEMA),
        transform="select a.id, b.v from source a join source b on a.id = b.id",
        sinks=[sink := ListSink()],
    )
    receipt = job.run(spark, fm.stores.open("sqlite:///marks.db", folder=tmp_path))
    assert (receipt.rows_read, len(sink.rows)) == (10, 10)


def test_a_console_that_shows_a_few_rows_does_not_spoil_the_count(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It takes its rows from the spool."""
    console = fm.sinks.Console(limit=2)
    job = fm.Job("counted", RowsSource(rows(0, 10), SCHEMA), [console])
    receipt = job.run(spark, fm.stores.open("sqlite:///marks.db", folder=tmp_path))
    assert (receipt.rows_read, receipt.rows_written, len(capsys.readouterr().out.splitlines())) == (
        10,
        {"console": 2},
        2,
    )

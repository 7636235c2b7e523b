"""`job.preview`: the rows that the next run would write, and no trace of the question."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import floodmark as fm
from floodmark import stores
from floodmark.errors import FloodmarkError
from floodmark.testing import ListSink, RowsSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def job(tmp_path: Path) -> fm.Job:
    """Two files of orders, one of them against the rule, into a Delta table."""
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    (incoming / "day1.jsonl").write_text('{"id": 1, "amount": 5.0}\n{"id": 2, "amount": -1.0}\n')
    (incoming / "day2.jsonl").write_text('{"id": 3, "amount": 7.5}\n')
    return fm.Job(
        name="orders",
        source=fm.sources.Files(str(incoming), format="jsonl", schema="id long, amount double", settle=0),
        transform="select id, amount * 100 as cents from source",
        rules=[fm.rules.check("cents > 0", action="quarantine")],
        sinks=[fm.sinks.Delta(str(tmp_path / "lake"))],
    )


def test_a_preview_gives_transformed_rows_that_the_rules_let_through(
    job: fm.Job, spark: SparkSession, tmp_path: Path
) -> None:
    """As the sinks would get them."""
    store = stores.open("sqlite:///marks.db", folder=tmp_path)
    rows = sorted(job.preview(10, spark, store), key=lambda row: str(row["id"]))
    assert rows == [{"id": 1, "cents": 500.0}, {"id": 3, "cents": 750.0}]
    assert len(job.preview(1, spark, store)) == 1


def test_a_preview_writes_nothing_and_holds_nothing(job: fm.Job, spark: SparkSession, tmp_path: Path) -> None:
    """No record, no lease, no receipt, no table, no log; the run after it does what it would have done."""
    store = stores.open("sqlite:///marks.db", folder=tmp_path)
    job.preview(10, spark, store)
    assert (store.read("orders"), store.lease("orders"), list(store.runs("orders"))) == (None, None, [])
    assert sorted(path.name for path in tmp_path.iterdir() if "marks.db" not in path.name) == ["incoming"]
    assert job.run(spark, store).rows_written == {"delta": 2}


def test_after_a_run_there_is_nothing_to_preview(job: fm.Job, spark: SparkSession, tmp_path: Path) -> None:
    """And it says so."""
    store = stores.open("sqlite:///marks.db", folder=tmp_path)
    job.run(spark, store)
    assert repr(job.preview(10, spark, store)) == "orders: 0 rows (nothing new)"


def test_the_rows_of_an_open_batch_come_first(spark: SparkSession) -> None:
    """The next run finishes it before it looks for more."""
    store, sink = stores.open("memory"), ListSink(fail_times=1)
    job = fm.Job(name="numbers", source=RowsSource([{"id": 1}, {"id": 2}]), sinks=[sink])
    with pytest.raises(FloodmarkError):
        job.run(spark, store)
    preview = job.preview(10, spark, store)
    assert (len(preview), preview.note) == (2, "batch 1 is open")

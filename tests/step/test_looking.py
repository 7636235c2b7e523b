"""What the Delta table itself remembers of a job, and how that decides."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

import floodmark as fm
from floodmark.errors import MarkMissing, SinkAhead
from floodmark.testing import RowsSource
from tests.tables import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from floodmark.stores.contract import MarkStore


def job_of(home: Path, rows: list[dict[str, int]]) -> fm.Job:
    return fm.Job("numbers", RowsSource(rows, "id long"), [fm.sinks.Delta(str(home / "lake"))])


def store_in(home: Path) -> MarkStore:
    return fm.stores.open("sqlite:///marks.db", folder=home)


def ids(home: Path) -> list[int]:
    return sorted(row.id for row in rows_of(home / "lake"))


def test_reset_and_run_deliver_everything_again(spark: SparkSession, tmp_path: Path) -> None:
    """The new batch is not swallowed by the number that the table remembers."""
    job = job_of(tmp_path, [{"id": 1}, {"id": 2}])
    job.run(spark, store_in(tmp_path))
    job.reset(spark, store_in(tmp_path))
    job.run(spark, store_in(tmp_path))
    assert ids(tmp_path) == [1, 1, 2, 2]


def test_after_a_reset_a_run_that_was_paused_before_it_cannot_write(spark: SparkSession, tmp_path: Path) -> None:
    """The reset's number is in the table, above that of any batch that was planned before."""
    job = job_of(tmp_path, [{"id": 1}])
    job.run(spark, store_in(tmp_path))
    job.reset(spark, store_in(tmp_path))
    recorded = job.sinks[0].recorded("floodmark.default.numbers.delta", lambda: spark)
    assert (recorded.number, store_in(tmp_path).read("numbers").number, ids(tmp_path)) == (2, 2, [1])


def test_a_lost_store_stops_and_a_full_refresh_rebuilds(spark: SparkSession, tmp_path: Path) -> None:
    """Afterwards the table holds exactly the source, and the mark stands at its end."""
    job = job_of(tmp_path, [{"id": 1}, {"id": 2}])
    job.run(spark, store_in(tmp_path))
    (tmp_path / "marks.db").unlink()
    with pytest.raises(MarkMissing):
        job.run(spark, store_in(tmp_path))
    receipt = job.run(spark, store_in(tmp_path), full_refresh=True)
    assert (ids(tmp_path), receipt.mark_after, receipt.number) == ([1, 2], 2, 2)


def test_a_store_copied_two_runs_ago_stops(spark: SparkSession, tmp_path: Path) -> None:
    """The table has recorded batches that this store never knew."""
    rows = [{"id": 1}]
    job_of(tmp_path, rows).run(spark, store_in(tmp_path))
    shutil.copy(tmp_path / "marks.db", tmp_path / "copy.db")
    rows.append({"id": 2})
    job_of(tmp_path, rows).run(spark, store_in(tmp_path))
    rows.append({"id": 3})
    job_of(tmp_path, rows).run(spark, store_in(tmp_path))
    shutil.copy(tmp_path / "copy.db", tmp_path / "marks.db")
    with pytest.raises(SinkAhead) as stop:
        job_of(tmp_path, rows).run(spark, store_in(tmp_path))
    assert (stop.value.exit_code, stop.value.recorded, stop.value.stored, ids(tmp_path)) == (5, 3, 1, [1, 2, 3])


def test_a_batch_whose_rows_were_all_filtered_out_still_takes_its_number(spark: SparkSession, tmp_path: Path) -> None:
    """Else a paused run could fill the gap."""
    rows = [{"id": 1}]
    job = fm.Job(
        "numbers",
        RowsSource(rows, "id long"),
        [fm.sinks.Delta(str(tmp_path / "lake"))],
        "select * from source where id < 0",
    )
    receipt = job.run(spark, store_in(tmp_path))
    recorded = job.sinks[0].recorded("floodmark.default.numbers.delta", lambda: spark)
    assert (receipt.rows_read, receipt.rows_written, recorded.number) == (1, {"delta": 0}, 1)

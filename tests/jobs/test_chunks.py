"""A large table is loaded in chunks: each is a batch with its own mark, and a run that broke off goes on from there."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark import Job, sinks, sources, stores
from floodmark.errors import FloodmarkError
from floodmark.jobs.chunks import Pace
from tests.sources.reading_tables import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AS_NUMBER = "select id, cast(v as int) as v from source"


def job(database: str, folder: Path) -> Job:
    return Job(
        name="load",
        source=sources.Postgres(database, "o", cursor="id"),
        transform=AS_NUMBER,
        sinks=[sinks.Delta(str(folder / "lake"))],
        chunk_rows=1000,
    )


@pytest.mark.spark
def test_a_load_that_failed_in_its_third_chunk_goes_on_there(
    spark: SparkSession, database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The mark stands at 2,000; the rest follows, no row twice; the log tells how fast and how long it will take."""
    run(database, "create table o (id int primary key, v text)")
    run(database, "insert into o select n, n from generate_series(1, 3500) n", "update o set v = 'x' where id = 2500")
    store = stores.open(f"sqlite:///{tmp_path}/marks.db")
    with caplog.at_level(logging.INFO), pytest.raises(FloodmarkError):
        job(database, tmp_path).run(spark, store)
    broken = store.read("load")
    run(database, "update o set v = '2500' where id = 2500")
    receipt = job(database, tmp_path).run(spark, store)
    assert broken is not None
    assert (broken.marks["postgres"].value, receipt.mark_after, receipt.rows_read, receipt.batches) == (
        2000,
        3500,
        1500,
        2,
    )
    assert spark.read.format("delta").load(str(tmp_path / "lake")).orderBy("id").select("id").collect() == [
        (n,) for n in range(1, 3501)
    ]
    assert [name in caplog.text for name in ("chunk done", "rows_per_second", "seconds_left")] == [True, True, True]


@pytest.mark.spark
def test_max_rows_bounds_all_chunks_of_a_run(spark: SparkSession, database: str, tmp_path: Path) -> None:
    """1,500 rows in chunks of 1,000 are one chunk and a half."""
    run(database, "create table o (id int primary key, v text)")
    run(database, "insert into o select n, n from generate_series(1, 3500) n")
    receipt = job(database, tmp_path).run(spark, stores.open("memory"), max_rows=1500)
    assert (receipt.rows_read, receipt.batches, receipt.mark_after) == (1500, 2, 1500)


def test_the_time_left_follows_from_the_share_that_is_left() -> None:
    """A quarter took ten seconds, so three quarters take thirty."""
    pace = Pace(rows=1000, seconds=10, last_rows=1000, ahead=0.75)
    assert (pace.rows_per_second, pace.seconds_left) == (100, 30)


def test_the_time_left_is_not_guessed_where_values_have_no_distance() -> None:
    """Text lies neither near nor far."""
    assert Pace(rows=1000, seconds=10, last_rows=1000).seconds_left is None

"""A large table is loaded in chunks: each is a batch with its own mark, and a run that broke off goes on from there."""

from __future__ import annotations

import logging
import os
import signal
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from floodmark import Job, sinks, sources, stores
from floodmark.errors import FloodmarkError
from floodmark.jobs.running import Chunks, Pace
from floodmark.patience import stop_on, stop_requested
from floodmark.step.engine import LastSeen
from floodmark.step.work import RunRequest
from floodmark.stores.record import Receipt
from tests.sources.tables.reader import run
from tests.tables import sorted_rows

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
    assert sorted_rows(tmp_path / "lake", "id") == [(n,) for n in range(1, 3501)]
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


@dataclass(frozen=True)
class Scripted:
    """A step whose batches have so many rows each; it notes what every one was asked."""

    batches: list[int]
    request: RunRequest
    asked: list[RunRequest] = field(default_factory=list)
    last_seen: LastSeen = field(default_factory=LastSeen)
    work: Job = field(default_factory=lambda: Job("load", sources.Files("in"), [sinks.Console()]))

    def run(self) -> Receipt:
        self.asked.append(self.request)
        rows, now = self.batches.pop(0), datetime.now(timezone.utc)
        return Receipt("load", "", "done" if rows else "nothing_new", now, batches=1, rows_read=rows)


def chunked(*batches: int, most: int | None = None, **request: Any) -> tuple[Receipt, Scripted]:  # noqa: ANN401 (passed on)
    step = Scripted(list(batches), RunRequest(**request))
    return Chunks(step, 1000, most).run(), step  # type: ignore[arg-type]  # as far as chunks know a step


@pytest.mark.parametrize(
    ("batches", "read", "left"), [((1000, 1000, 7, 5), 2007, 1), ((1000, 0, 5), 1000, 1), ((1001, 3, 5), 1004, 1)]
)
def test_a_run_ends_with_the_first_chunk_that_is_not_full(batches: tuple[int, ...], read: int, left: int) -> None:
    """More may have come meanwhile: that is for the next run."""
    receipt, step = chunked(*batches)
    assert (receipt.rows_read, len(step.batches)) == (read, left)


def test_a_start_is_of_the_first_chunk_alone() -> None:
    """The others go on from the mark; else the first chunk would be read for ever."""
    _, step = chunked(1000, 5, start="7")
    assert [(asked.start, asked.max_rows) for asked in step.asked] == [("7", 1000), (None, 1000)]


def test_the_last_chunk_is_as_large_as_max_rows_leaves() -> None:
    """All chunks of a run together keep to it."""
    _, step = chunked(1000, 500, 9, most=1500)
    assert ([asked.max_rows for asked in step.asked], step.batches) == ([1000, 500], [9])


def test_a_signal_ends_the_run_after_the_current_chunk() -> None:
    """What was read is committed, and the next run goes on there."""
    with stop_on(signal.SIGUSR1):
        os.kill(os.getpid(), signal.SIGUSR1)
        receipt, step = chunked(1000, 1000)
        assert (receipt.rows_read, step.batches, stop_requested()) == (1000, [1000], True)
    assert not stop_requested()

"""Large appends whose files Spark writes and the driver commits: killed or paused anywhere, every row is there once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark.sinks.delta.parquet import STAGING
from tests.crash import shop
from tests.crash.killing import held, run_until_killed, start, stop_between_beats, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.crash
LAKE = ["lake"]
FIRST, ALL = range(100), range(80_000)
"""The second day's file is larger than what leaves Spark as Arrow."""


@pytest.fixture
def home(spark: SparkSession, tmp_path: Path) -> Path:
    """A table with a first day, and a second day that is large."""
    shop.deliver(tmp_path, "day1", FIRST)
    shop.shop(tmp_path, LAKE).run(spark, shop.open_store(tmp_path))
    shop.deliver(tmp_path, "day2", ALL[len(FIRST) :])
    return tmp_path


@pytest.mark.parametrize(
    "point",
    ["after_intent", "after_read", "during_sink:1", "after_files", "after_sink:1", "before_commit", "after_commit"],
)
def test_a_large_append_that_was_killed_is_finished_by_the_next_run(
    spark: SparkSession, home: Path, point: str
) -> None:
    """What the killed attempt wrote is in no commit, or is the batch itself; nothing of it is left to be read."""
    assert run_until_killed(home, point, LAKE) == -signal.SIGKILL
    receipt = shop.shop(home, LAKE).run(spark, shop.open_store(home))
    assert held(spark, home, LAKE) == {"lake": list(ALL)}
    assert receipt.written_by.get("lake", "parquet") == "parquet"
    assert not (home / "lake" / STAGING).exists()


@pytest.mark.parametrize("sink", ["lake", "keyed"])
@pytest.mark.parametrize("point", ["during_sink:1", "after_files", "after_sink:1"])
def test_a_large_batch_that_was_killed_while_it_made_its_table_is_finished_by_the_next_run(
    spark: SparkSession, tmp_path: Path, sink: str, point: str
) -> None:
    """There is no table to ask yet: the next run makes one that is closed to the killed attempt, beside its files."""
    shop.deliver(tmp_path, "day1", ALL)
    assert run_until_killed(tmp_path, point, [sink]) == -signal.SIGKILL
    shop.shop(tmp_path, [sink]).run(spark, shop.open_store(tmp_path))
    assert held(spark, tmp_path, [sink]) == {sink: list(ALL)}
    assert not (tmp_path / sink / STAGING).exists()


def test_a_run_paused_while_it_writes_its_files_commits_none_of_them(
    spark: SparkSession, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run takes its batch over and finishes it; what goes on afterwards finds its number taken."""
    monkeypatch.setenv("FLOODMARK_LEASE_SECONDS", "3")
    paused = start(home, LAKE, FLOODMARK_LEASE_SECONDS="3")
    wait_until((home / "lake" / STAGING).exists)
    stopped = stop_between_beats(paused.pid, home / "marks.db")
    shop.shop(home, LAKE).run(spark, shop.open_store(home))
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    paused.wait(120)
    assert held(spark, home, LAKE) == {"lake": list(ALL)}
    assert not (home / "lake" / STAGING).exists()

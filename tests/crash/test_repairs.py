"""A backfill or a repair that was killed at any point is finished by the next call, or the next run: each row once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash import repairs
from tests.crash.killing import ids_in_table
from tests.crash.shop import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINTS = (
    "after_intent",
    "after_read",
    "during_sink:1",
    "after_sink:1",
    "after_sink:2",
    "before_commit",
    "after_commit",
)
ONCE, AGAIN = list(range(1, 61)), list(range(10, 40))


def killed(home: Path, act: str, point: str) -> int:
    """The return code of an act that was to die at the point."""
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-m", "tests.crash.repairs", str(home), act],
        env={**os.environ, "FLOODMARK_CRASH_AT": point},
        cwd=root,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=120,
    ).returncode


def table(spark: SparkSession, path: Path) -> list[tuple]:
    return sorted(tuple(row) for row in spark.read.format("delta").load(str(path)).collect())


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_backfill_goes_on_and_delivers_each_row_of_the_range_once(
    spark: SparkSession, tmp_path: Path, point: str
) -> None:
    """Also after a run came between, which finishes the open chunk and delivers its own rows."""
    repairs.make_table(tmp_path, 60)
    job, store = repairs.job(tmp_path), open_store(tmp_path)
    job.run(spark, store)
    assert killed(tmp_path, "backfill", point) == -signal.SIGKILL
    repairs.change(tmp_path, "insert into o values (61, 61, 'new')")
    assert job.run(spark, store).mark_after == 61
    job.backfill(*repairs.RANGE, spark, store, chunk_rows=repairs.CHUNK_ROWS)
    assert ids_in_table(spark, tmp_path / "log") == sorted([*ONCE, *AGAIN, 61])
    assert ids_in_table(spark, tmp_path / "keyed") == [*ONCE, 61]


@pytest.mark.crash
@pytest.mark.parametrize("point", ["after_intent", "during_sink:1", "after_sink:1", "before_commit", "after_commit"])
def test_a_killed_repair_is_finished_by_the_next_run(spark: SparkSession, tmp_path: Path, point: str) -> None:
    """What was frozen is written, and the number of the batch is taken."""
    repairs.make_table(tmp_path, 6)
    job, store = repairs.job(tmp_path), open_store(tmp_path)
    job.run(spark, store)
    repairs.change(tmp_path, "update o set v = 'silent' where id = 2", "delete from o where id = 3")
    assert killed(tmp_path, "repair", point) == -signal.SIGKILL
    job.run(spark, store)
    rest = [(1, 1, "v1"), (2, 2, "silent"), (4, 4, "v4"), (5, 5, "v5"), (6, 6, "v6")]
    assert table(spark, tmp_path / "keyed") == rest
    record = store.read("orders")
    assert record is not None
    assert (record.number, record.intent, record.marks["sqlite"].value) == (2, None, 6)

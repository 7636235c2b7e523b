"""A merge with deletes, killed at every point and between its two tables: no deleted key comes back."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash import deletions
from tests.crash.shop import open_store
from tests.sinks.batches import delta_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINTS = ("after_intent", "after_read", "during_sink:1", "after_merge", "after_sink:1", "before_commit", "after_commit")


def deliver(home: Path, *rows: tuple[int, int, int, str]) -> None:
    with sqlite3.connect(home / "shop.db") as shop:
        shop.execute("create table if not exists o (n integer primary key, id integer, at integer, v text)")
        shop.executemany("insert into o values (?, ?, ?, ?)", rows)


@pytest.mark.crash
@pytest.mark.spark
@pytest.mark.parametrize("point", POINTS)
def test_a_delete_is_remembered_once_wherever_the_run_was_killed(
    spark: SparkSession, tmp_path: Path, point: str
) -> None:
    """The target first, then its deletes: the batch is finished before a later one is judged by them."""
    deliver(tmp_path, (1, 1, 1, "a"), (2, 2, 1, "a"))
    deletions.job(tmp_path).run(spark, open_store(tmp_path))
    deliver(tmp_path, (3, 1, 5, "D"), (4, 3, 5, "D"))
    environment = {**os.environ, "FLOODMARK_CRASH_AT": point, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, deletions.__file__, str(tmp_path)]
    killed = subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=False, timeout=200)
    assert killed.returncode == -signal.SIGKILL
    deletions.job(tmp_path).run(spark, open_store(tmp_path))
    deliver(tmp_path, (5, 1, 4, "late"), (6, 3, 4, "late"), (7, 2, 4, "b"))
    deletions.job(tmp_path).run(spark, open_store(tmp_path))
    assert [row[1:] for row in delta_rows(spark, tmp_path / "orders")] == [(2, 4, "b")]
    assert sorted(row[:2] for row in delta_rows(spark, tmp_path / "orders__deleted")) == [(1, 5), (3, 5)]

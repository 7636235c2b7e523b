"""A table with history, and the fact over it, killed between any two commits: the next run gives the clean result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash import clusters
from tests.crash.shop import open_store
from tests.sinks.batches import delta_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SILVER = (
    "after_intent",
    "after_read",
    "during_sink:1",
    "after_events",
    "after_sink:1",
    "before_commit",
    "after_commit",
)
GOLD = tuple(point for point in SILVER if point != "after_events")
IN_EVERY_BUILD: tuple[str, ...] = ()


def killed(home: Path, job: str, point: str) -> int:
    """The return code of a run that was told to die at the point."""
    root = Path(__file__).parents[2]
    environment = {
        **os.environ,
        "FLOODMARK_CRASH_AT": point,
        "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]),
    }
    command = [sys.executable, clusters.__file__, str(home), job]
    return subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=False, timeout=120).returncode


@pytest.mark.spark
@pytest.mark.parametrize(
    "point", [point if point in IN_EVERY_BUILD else pytest.param(point, marks=pytest.mark.crash) for point in SILVER]
)
def test_a_history_that_was_killed_is_finished(spark: SparkSession, tmp_path: Path, point: str) -> None:
    """No version is missing and none is there twice, and the log has every event once."""
    clusters.deliver(spark, tmp_path, (1, 20240101, 1, "a"), (2, 20240101, 1, "a"))
    clusters.silver(tmp_path).run(spark, open_store(tmp_path))
    clusters.deliver(spark, tmp_path, (1, 20240102, 5, "b"), (2, 20240102, 5, "D"))
    assert killed(tmp_path, "silver", point) == -signal.SIGKILL
    clusters.silver(tmp_path).run(spark, open_store(tmp_path))
    assert delta_rows(spark, tmp_path / "silver") == [
        (1, 20240101, 1, "a", 1, 5, False),
        (1, 20240102, 5, "b", 5, None, True),
        (2, 20240101, 1, "a", 1, 5, False),
    ]
    assert len(delta_rows(spark, tmp_path / "silver__events")) == 4


@pytest.mark.crash
@pytest.mark.spark
@pytest.mark.parametrize("point", GOLD)
def test_a_fact_that_was_killed_is_finished(spark: SparkSession, tmp_path: Path, point: str) -> None:
    """The dates of the open batch are built as they were intended."""
    clusters.deliver(spark, tmp_path, (1, 20240101, 1, "a"), (2, 20240101, 1, "a"))
    clusters.silver(tmp_path).run(spark, open_store(tmp_path))
    assert killed(tmp_path, "gold", point) == -signal.SIGKILL
    clusters.gold(tmp_path).run(spark, open_store(tmp_path))
    assert delta_rows(spark, tmp_path / "gold") == [(20240101, 2)]

"""A workflow, killed between any two commits of its tasks or its own: the next run gives the clean result."""

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

JOB = ("after_intent", "after_read", "during_sink:1", "after_sink:1", "before_commit", "after_commit")
SILVER = (*JOB, "after_events", "after_task:silver")
GOLD = (*JOB, "after_task:gold")


@pytest.fixture
def home(spark: SparkSession, tmp_path: Path) -> Path:
    """A day's run is done; then a version ends, a key is deleted, and another date has a row."""
    clusters.deliver(spark, tmp_path, (1, 20240101, 1, "a"), (2, 20240101, 1, "a"))
    assert clusters.run_workflow(spark, tmp_path) == 0
    clusters.deliver(spark, tmp_path, (1, 20240102, 5, "b"), (2, 20240102, 5, "D"))
    return tmp_path


def killed(home: Path, point: str) -> int:
    """The return code of a workflow that was to die at the point."""
    root = Path(__file__).parents[2]
    environment = {
        **os.environ,
        "FLOODMARK_CRASH_AT": point,
        "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]),
    }
    command = [sys.executable, clusters.__file__, str(home)]
    return subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=False, timeout=120).returncode


def require_the_clean_result(spark: SparkSession, home: Path) -> None:
    """No version is missing and none is there twice, the log has every event once, and the fact counts them."""
    assert delta_rows(spark, home / "silver") == [
        (1, 20240101, 1, "a", 1, 5, False),
        (1, 20240102, 5, "b", 5, None, True),
        (2, 20240101, 1, "a", 1, 5, False),
    ]
    assert len(delta_rows(spark, home / "silver__events")) == 4
    assert delta_rows(spark, home / "gold") == [(20240101, 2), (20240102, 1)]


@pytest.mark.crash
@pytest.mark.spark
@pytest.mark.parametrize("point", SILVER)
def test_a_workflow_that_was_killed_in_its_history_is_finished(spark: SparkSession, home: Path, point: str) -> None:
    """The history first, and then what depends on it."""
    assert killed(home, point) == -signal.SIGKILL
    assert clusters.run_workflow(spark, home) == 0
    require_the_clean_result(spark, home)


@pytest.mark.crash
@pytest.mark.spark
@pytest.mark.parametrize("point", GOLD)
def test_a_workflow_that_was_killed_in_its_fact_is_finished(spark: SparkSession, home: Path, point: str) -> None:
    """The dates of the open batch are built as they were intended; what was done before is not done again."""
    clusters.silver(home).run(spark, open_store(home))  # so that the fact is the first to get to the point
    assert killed(home, point) == -signal.SIGKILL
    assert clusters.run_workflow(spark, home) == 0
    require_the_clean_result(spark, home)

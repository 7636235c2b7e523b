"""A run with rules, killed around its quarantine: every row ends in one place, once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark.jobs.quarantine import Quarantine, Selection, replay
from tests.crash import judged, shop
from tests.crash.killing import ids_in_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
POINTS = ("after_read", "during_sink:1", "after_sink:1", "before_commit")


def killed(home: Path, point: str, *act: str) -> int:
    program = [sys.executable, "-m", "tests.crash.judged", str(home), *act]
    environment = {**os.environ, "FLOODMARK_CRASH_AT": point}
    child = subprocess.Popen(program, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
    return child.wait(120)


def ids_put_aside(spark: SparkSession, home: Path) -> list[int]:
    table = spark.read.format("delta").load(str(home / "quarantine" / "judged"))
    return sorted(json.loads(row.record)["id"] for row in table.collect())


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_around_the_quarantine_loses_no_row_and_doubles_none(
    spark: SparkSession, tmp_path: Path, point: str
) -> None:
    """Before the sink, between sink and quarantine, and between quarantine and commit."""
    shop.deliver(tmp_path, "day1", range(100))
    assert killed(tmp_path, point) == -signal.SIGKILL
    shop.deliver(tmp_path, "day2", range(100, 200))
    receipt = judged.judged(tmp_path).run(spark, shop.open_store(tmp_path))
    tenth = list(range(0, 200, 10))
    kept = [number for number in range(200) if number % 10 and number % 7]
    assert (ids_in_table(spark, tmp_path / "lake"), ids_put_aside(spark, tmp_path)) == (kept, tenth)
    assert receipt.rows_read == receipt.rows_written["lake"] + receipt.rows_quarantined + receipt.rows_dropped == 200


def by_run(home: Path, spark: SparkSession) -> None:
    judged.judged(home).run(spark, shop.open_store(home))


def by_replay(home: Path, spark: SparkSession) -> None:
    replay(judged.judged(home), Selection(), judged.REPAIR, lambda: spark, shop.open_store(home))


@pytest.mark.crash
@pytest.mark.parametrize(
    ("point", "finish"),
    [
        ("after_intent", by_run),
        ("after_read", by_replay),
        ("during_sink:1", by_run),
        ("after_sink:1", by_replay),
        ("before_commit", by_run),
        ("after_commit", by_replay),
    ],
)
def test_a_replay_that_was_killed_is_finished_by_whoever_comes_next(
    spark: SparkSession, tmp_path: Path, point: str, finish: Callable[[Path, SparkSession], None]
) -> None:
    """Every row that was put aside is in the table once, or still open because it breaks another rule."""
    shop.deliver(tmp_path, "day1", range(100))
    judged.judged(tmp_path).run(spark, shop.open_store(tmp_path))
    before = ids_in_table(spark, tmp_path / "lake")
    assert killed(tmp_path, point, "replay") == -signal.SIGKILL
    finish(tmp_path, spark)
    repaired = [number + 1000 for number in range(0, 100, 10)]
    good = [number for number in repaired if number % 7]
    assert ids_in_table(spark, tmp_path / "lake") == [*before, *good]
    store = shop.open_store(tmp_path)
    groups = Quarantine.of(judged.judged(tmp_path), lambda: spark, store).groups()
    counts = {status: sum(each.rows for each in groups if each.status == status) for status in ("open", "replayed")}
    assert counts == {"open": len(repaired) - len(good), "replayed": len(good)}

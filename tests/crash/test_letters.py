"""A replay of a job's dead letters, killed: every record ends in every table once, or is a letter still."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark.jobs.dead_letters import replay_letters
from floodmark.step.set_aside import Letters
from tests.crash import letters, shop
from tests.crash.killing import ids_in_table
from tests.sources.kafka.topics import put

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    import floodmark as fm
    from floodmark.stores.contract import MarkStore
    from floodmark.testing.servers import Broker

ROOT = Path(__file__).parents[2]


def killed(point: str, *arguments: str) -> int:
    """The return code of a replay that was to die at the point."""
    program = [sys.executable, "-m", "tests.crash.letters", *arguments]
    environment = {**os.environ, "FLOODMARK_CRASH_AT": point}
    child = subprocess.Popen(program, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
    return child.wait(120)


def by_run(job: fm.Job, spark: SparkSession, store: MarkStore) -> None:
    job.run(spark, store)


def by_replay(job: fm.Job, spark: SparkSession, store: MarkStore) -> None:
    replay_letters(job, (), lambda: spark, store)


@pytest.mark.crash
@pytest.mark.parametrize(
    ("point", "finish", "attempts"),
    [("after_sink:1", by_run, 2), ("before_commit", by_replay, 3)],
    ids=["run", "replay"],
)
def test_a_replay_that_was_killed_is_finished_by_whoever_comes_next(
    spark: SparkSession,
    kafka: Broker,
    topic: Callable[..., str],
    tmp_path: Path,
    point: str,
    finish: Callable[..., None],
    attempts: int,
) -> None:
    """Between two sinks, and between the letters and the commit; a replay that finishes one runs what is left again."""
    name, store = topic(2), shop.open_store(tmp_path)
    put(kafka, name, *(json.dumps({"id": number}) for number in range(1, 31)))
    letters.letters(tmp_path, kafka.bootstrap, name, letters.strict).run(spark, store)
    assert killed(point, str(tmp_path), kafka.bootstrap, name) == -signal.SIGKILL
    job = letters.letters(tmp_path, kafka.bootstrap, name, letters.corrected)
    finish(job, spark, store)
    expected = [number for number in range(1, 31) if number % 9]
    assert ids_in_table(spark, tmp_path / "lake") == ids_in_table(spark, tmp_path / "mart") == expected
    opened = Letters.of(job.work(store), 1_000).open_letters(spark)
    assert opened is not None
    assert sorted((json.loads(row.text)["id"], row.attempts) for row in opened.collect()) == [
        (9, attempts),
        (18, attempts),
        (27, attempts),
    ]

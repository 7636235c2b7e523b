"""Mills that are killed between and inside their turns: the same output, in the same order, once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.mill import killable
from tests.mill.cases import Joined, L, R, joined, keyed
from tests.mill.mills import END, Topics

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from floodmark.testing.servers import Broker

POINTS = ("after_intent", "after_read", "during_sink:1", "after_sink:1", "before_commit", "after_commit")
KEYS = [key // 2 for key in range(60)]
EXPECTED = [*joined(*((key, [f"r{key}"]) for key in KEYS)), END]
KILLS = 20


def prepared(kind: str, home: Path, kafka: Broker) -> Topics:
    """Topics with a stream of pairs and what is joined to it, and the folder that tells a child of them."""
    topics = Topics(kafka, home).make(L, R, Joined)
    told = {"left": topics.names[L], "right": topics.names[R], "out": topics.names[Joined]}
    (home / "mill.json").write_text(json.dumps({"kind": kind, "bootstrap": kafka.bootstrap, **told}))
    return topics


def start(home: Path, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.mill.killable", str(home)],
        env={**os.environ, **environment},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def killed_and_finished(spark: SparkSession, home: Path, kafka: Broker, point: str) -> tuple[int, list[object]]:
    topics = prepared("join", home, kafka)
    topics.put(L, *keyed("l", *KEYS), END)
    topics.put(R, *keyed("r", *range(30)), END)
    died = start(home, FLOODMARK_CRASH_AT=point).wait(120)
    killable.mill_in(home, spark).run()
    return died, topics.held(Joined)


def test_a_mill_killed_while_it_writes_gives_every_element_once_and_in_order(
    spark: SparkSession, tmp_path: Path, kafka: Broker
) -> None:
    """Half of a transaction: watermill would give them twice."""
    assert killed_and_finished(spark, tmp_path, kafka, "during_sink:1") == (-signal.SIGKILL, EXPECTED)


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS)
def test_a_mill_killed_at_any_point_gives_every_element_once_and_in_order(
    spark: SparkSession, tmp_path: Path, kafka: Broker, point: str
) -> None:
    """Every place of the protocol."""
    assert killed_and_finished(spark, tmp_path, kafka, point) == (-signal.SIGKILL, EXPECTED)


@pytest.mark.crash
@pytest.mark.parametrize("point", ["after_intent", "after_sink:1"])
@pytest.mark.parametrize("kind", ["windows", "joined windows"])
def test_windows_by_the_clock_are_the_same_after_a_kill(
    spark: SparkSession, tmp_path: Path, kafka: Broker, kind: str, point: str
) -> None:
    """They were decided before the kill: the clock says something else now, and nobody asks it again."""
    topics = prepared(kind, tmp_path, kafka)
    (tmp_path / "clock").write_text("before")
    topics.put(L, *keyed("l", 1, 2, 3), END)
    topics.put(R, *keyed("r", 1, 2, 3), END)
    died = start(tmp_path, FLOODMARK_CRASH_AT=point).wait(120)
    (tmp_path / "clock").write_text("after")
    killable.mill_in(tmp_path, spark).run()
    assert (died, topics.held(Joined)) == (-signal.SIGKILL, [*joined((3, ["l0", "l1", "l2"])), END])


@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_many_random_kills_give_every_element_once_and_in_order(
    spark: SparkSession, tmp_path: Path, kafka: Broker
) -> None:
    """kill -9 of the whole process group at whatever moment, while both streams are fed."""
    topics, draw = prepared("join", tmp_path, kafka), random.Random(int(os.environ.get("FLOODMARK_SEED", "20261115")))
    lefts, rights = keyed("l", *KEYS), keyed("r", *range(30))
    feed_and_kill(topics, tmp_path, lefts, rights, draw)
    topics.put(L, END)
    topics.put(R, END)
    killable.mill_in(tmp_path, spark).run()
    assert topics.held(Joined) == EXPECTED


def feed_and_kill(
    topics: Topics, home: Path, lefts: list[dict[str, object]], rights: list[dict[str, object]], draw: random.Random
) -> None:
    """A part of each stream, a run, a kill after some seconds; again until everything was put."""
    for kill in range(KILLS):
        topics.put(L, *lefts[kill * len(lefts) // KILLS : (kill + 1) * len(lefts) // KILLS])
        topics.put(R, *rights[kill * len(rights) // KILLS : (kill + 1) * len(rights) // KILLS])
        child = start(home)
        try:
            child.wait(draw.uniform(3, 12))
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait(30)

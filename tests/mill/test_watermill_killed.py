"""Mills that are killed between and inside their turns: the same output, in the same order, once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.mill import killable
from tests.mill.cases import BY_K, Joined, L, R, joined, keyed
from tests.mill.mills import END, Topics
from tests.mill.nested_loop import calls

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from floodmark.testing.servers import Broker

POINTS = ("after_intent", "after_read", "during_sink:1", "after_sink:1", "before_commit", "after_commit")
KEYS = [key // 2 for key in range(60)]
EXPECTED = [*joined(*((key, [f"r{key}"]) for key in KEYS)), END]
KILLS = 8
SEEDS = range(3)


def prepared(kind: str, home: Path, kafka: Broker, partitions: dict[type, int] | None = None) -> Topics:
    """Topics for a master, what is joined to it, and the output, and the folder in which a child finds them."""
    topics = Topics(kafka, home, partitions or {}).make(L, R, Joined)
    names = {"left": topics.names[L], "right": topics.names[R], "out": topics.names[Joined]}
    (home / "mill.json").write_text(json.dumps({"kind": kind, "bootstrap": kafka.bootstrap, **names}))
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
    return died, topics.rows_of(Joined)


@pytest.mark.crash
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
    assert (died, topics.rows_of(Joined)) == (-signal.SIGKILL, [*joined((3, ["l0", "l1", "l2"])), END])


@pytest.mark.crash
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_streams_in_random_turns_with_kills_give_what_a_nested_loop_gives(
    spark: SparkSession, tmp_path: Path, kafka: Broker, seed: int
) -> None:
    """Killed between turns, at every point inside them, and at whatever moment: the same output, in its order, once."""
    draw = random.Random(seed)
    streams: dict[type, list[list[Any]]] = {L: drawn(L, draw, partitions=2), R: drawn(R, draw, partitions=3)}
    topics = prepared("join", tmp_path, kafka, {L: 2, R: 3})
    feed_and_kill(topics, tmp_path, streams, draw)
    topics.put(L, END, partition=0)
    topics.put(L, END, partition=1)
    topics.put(R, END, partition=0)
    topics.put(R, END, partition=1)
    topics.put(R, END, partition=2)
    killable.mill_in(tmp_path, spark).run()
    assert topics.rows_of(Joined) == [*nested(streams), END]


def drawn(cls: Any, draw: random.Random, *, partitions: int) -> list[list[Any]]:  # noqa: ANN401 (a class of elements)
    """Elements whose keys rise in every partition, some of them equal, with gaps."""
    keys = [sorted(draw.choices(range(40), k=draw.randint(20, 60))) for _ in range(partitions)]
    return [[cls(key, f"{partition}.{n}") for n, key in enumerate(own)] for partition, own in enumerate(keys)]


def nested(streams: dict[type, list[list[Any]]]) -> list[dict[str, object]]:
    """What the plain loops give for the join of the killable mill."""
    matches = [found for (found,) in calls(BY_K["join_tree"], streams)]
    return joined(*((each.element.k, [right.element.name for right in each.partners[0]]) for each in matches))


def feed_and_kill(topics: Topics, home: Path, streams: dict[type, list[list[Any]]], draw: random.Random) -> None:
    """A random part of every partition, a run, and its death; again until everything was put."""
    partitions = [
        (stream, partition, own) for stream, partitions in streams.items() for partition, own in enumerate(partitions)
    ]
    ends = {
        (stream, partition): sorted(draw.choices(range(len(own)), k=KILLS)) for stream, partition, own in partitions
    }
    for kill in range(KILLS + 1):
        for stream, partition, own in partitions:
            cuts = [0, *ends[stream, partition], len(own)]
            topics.put(stream, *map(vars, own[cuts[kill] : cuts[kill + 1]]), partition=partition)
        if kill < KILLS:
            run_and_kill(home, draw)


def run_and_kill(home: Path, draw: random.Random) -> None:
    """At a point inside a turn, or by the clock: then it may be between two of them."""
    child = start(home, FLOODMARK_CRASH_AT=draw.choice([*POINTS, "", "", ""]))
    try:
        child.wait(draw.uniform(6, 25))
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait(30)

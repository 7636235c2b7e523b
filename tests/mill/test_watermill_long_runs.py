"""Mills that stand for a long time: idle partitions, runs for ever, trees that change, decisions of a person."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from floodmark import stores
from floodmark.errors import MarkMissing
from floodmark.mill import JoinWith, get_field, join_streams
from floodmark.stores.extras import IDENTITY, SINKS
from tests.mill.cases import BY_K, Joined, L, R, S, identity, join_names, join_two, joined, keyed
from tests.mill.mills import END, Topics

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from floodmark.testing.servers import Broker

K = get_field("k")
STAR = {"join_tree": join_streams(L, JoinWith(R, K, K), JoinWith(S, K, K))}


@pytest.fixture
def topics(kafka: Broker, tmp_path: Path) -> Topics:
    return Topics(kafka, tmp_path)


def holds(topics: Topics, *rows: object) -> bool:
    """Whether the output is this, within a minute."""
    deadline = time.monotonic() + 60
    while topics.rows_of(Joined) != list(rows) and time.monotonic() < deadline:
        time.sleep(0.2)
    return topics.rows_of(Joined) == list(rows)


def test_what_an_idle_partition_brings_too_late_is_counted_and_left_out(spark: SparkSession, topics: Topics) -> None:
    """Not to wait for it was a choice: masters went out without its elements, and the receipt says how many."""
    topics.partitions = {R: 2}
    topics.make(L, R, Joined)
    mill, clock = topics.mill(join_names, spark, idle_after="5s", **BY_K), [0.0]
    mill._run_state.now = lambda: clock[0]
    mill._run_state.begin()
    topics.put(L, *keyed("l", 1, 2))
    topics.put(R, *keyed("r", 1, 2), partition=0)
    assert mill.turn().notes == ("waiting for the first element of partition 1 of R",)
    clock[0] = 10.0
    topics.put(L, *keyed("m", 5))
    topics.put(R, *keyed("s", 9), partition=0)
    assert mill.turn().rows_written == {"Joined": 2}
    topics.put(R, *keyed("t", 1, 2, 2, 5, 9), partition=1)
    topics.put(L, *keyed("n", 9))
    assert mill.turn().notes == ("3 elements of partition 1 of R came too late and are left out",)
    assert topics.rows_of(Joined) == joined((1, ["r0"]), (2, ["r1"]), (5, ["t3"]))


def test_a_run_for_ever_goes_on_behind_an_end_until_it_is_stopped(spark: SparkSession, topics: Topics) -> None:
    """`every` says how often it looks."""
    topics.make(L, Joined).put(L, *keyed("l", 1), END)
    mill = topics.mill(identity, spark)
    thread = threading.Thread(target=mill.run, kwargs={"every": "100ms"})
    thread.start()
    first = [*joined((1, ["l0"])), END]
    assert holds(topics, *first)
    topics.put(L, *keyed("m", 2))
    assert holds(topics, *first, *joined((2, ["m0"])))
    mill.stop()
    thread.join(60)
    assert not thread.is_alive()


def test_a_stream_that_leaves_the_tree_leaves_the_marks(spark: SparkSession, topics: Topics) -> None:
    """With the next commit; the others go on where they were."""
    topics.make(L, R, S, Joined)
    topics.put(L, *keyed("l", 1, 2))
    topics.put(R, *keyed("r", 1, 2))
    topics.put(S, *keyed("s", 1, 2))
    topics.mill(join_two, spark, **STAR).turn()
    topics.put(L, *keyed("m", 3))
    topics.put(R, *keyed("q", 3))
    mill = topics.mill(join_names, spark, **BY_K)
    plan, dropped = mill.plan(), ("S left the tree: its mark is dropped",)
    assert (plan.changes, plan.elements, plan.horizon) == (dropped, {"L": 1, "R": 2}, 3)
    mill.turn()
    record = stores.open(f"sqlite:///{topics.folder}/marks.db").read("mill")
    assert record is not None
    remembered = record.extras.without([SINKS, IDENTITY]).stored
    assert (sorted(record.marks), sorted(record.sources), sorted(remembered)) == (["L", "R"],) * 3
    assert topics.rows_of(Joined) == joined((1, ["r0", "s0"]), (2, ["r1"]))


def test_a_mill_without_marks_does_not_write_again_what_is_there(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Somebody has to decide, and learns how: with a call, since mills have no command line."""
    topics.make(L, Joined).put(L, *keyed("l", 1))
    topics.mill(identity, spark).turn()
    topics.folder = tmp_path / "elsewhere"
    topics.folder.mkdir()
    mill = topics.mill(identity, spark)
    with pytest.raises(MarkMissing) as caught:
        mill.turn()
    assert "`mill.reset()`" in caught.value.hint
    mill.reset()
    mill.turn()
    assert topics.rows_of(Joined) == joined((1, ["l0"]), (1, ["l0"]))

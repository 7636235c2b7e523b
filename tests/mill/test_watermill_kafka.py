"""Mills from topics to topics: many partitions, ends, time-outs, the marks and what others see of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

from floodmark.errors import ConfigError
from floodmark.mill import EndOfStream, JoinWith, function_call, get_field, join_streams, window
from floodmark.probes.kafka import KafkaProbe
from floodmark.probes.kafka.client import KafkaOptions
from tests.mill.cases import BY_K, Joined, L, R, identity, join_names, joined, keyed
from tests.mill.mills import END, Topics, run_side_by_side, run_until, turning, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from floodmark.testing.servers import Broker

K = get_field("k")


@pytest.fixture
def topics(kafka: Broker, tmp_path: Path) -> Topics:
    return Topics(kafka, tmp_path)


def test_elements_and_their_end_go_through_once(spark: SparkSession, topics: Topics) -> None:
    """The specification's last row: a rerun adds nothing, and what is written after the end is for the next run."""
    topics.make(L, Joined).put(L, *keyed("l", 1, 2, 3), END, *keyed("m", 4))
    topics.mill(identity, spark).run()
    first = [*joined((1, ["l0"]), (2, ["l1"]), (3, ["l2"])), END]
    assert topics.rows_of(Joined) == first
    topics.put(L, END)
    topics.mill(identity, spark).run()
    topics.mill(identity, spark).run()
    assert topics.rows_of(Joined) == [*first, *joined((4, ["m0"])), END]


def test_a_join_over_partitions_waits_for_the_slowest_of_them(spark: SparkSession, topics: Topics) -> None:
    """One that was never filled holds it and is named; the end comes after all data, once in each partition."""
    topics.partitions = {L: 2, R: 3, Joined: 2}
    topics.make(L, R, Joined)
    mill = topics.mill(join_names, spark, **BY_K)
    topics.put(L, *keyed("a", 1, 3, 5), partition=0)
    topics.put(L, *keyed("b", 1, 2), partition=1)
    topics.put(R, *keyed("r", 1, 2, 9), partition=0)
    topics.put(R, *keyed("s", 1, 8), partition=1)
    assert mill.turn().notes == ("waiting for the first element of partition 2 of R",)
    topics.put(R, *keyed("t", 3), partition=2)
    assert mill.turn().rows_written == {"Joined": 2}
    assert mill.turn().status == "nothing_new"
    topics.put(L, END, partition=0)
    topics.put(L, END, partition=1)
    topics.put(R, *keyed("u", 3), END, partition=2)
    topics.put(R, END, partition=1)
    topics.put(R, END, partition=0)
    topics.mill(join_names, spark, **BY_K).run()
    held = [topics.rows_of(Joined, partition) for partition in (0, 1)]
    assert [own[-1] for own in held] == [END, END]
    rows = joined((1, ["r0", "s0"]), (1, ["r0", "s0"]), (2, ["r1"]), (3, ["t0", "u0"]))
    assert sorted([row for own in held for row in own[:-1]], key=lambda row: row["k"]) == rows


def test_small_turns_give_what_a_large_one_gives(spark: SparkSession, topics: Topics) -> None:
    """Two elements of each stream a turn, and more where two of one key fill it."""
    topics.make(L, R, Joined)
    topics.put(L, *keyed("l", 1, 1, 1, 2, 5), END)
    topics.put(R, *keyed("r", 0, 1, 2, 2, 5, 6), END)
    topics.mill(join_names, spark, turn_elements=2, **BY_K).run()
    rows = joined((1, ["r1"]), (1, ["r1"]), (1, ["r1"]), (2, ["r2", "r3"]), (5, ["r4"]))
    assert topics.rows_of(Joined) == [*rows, END]


def test_a_turn_without_news_reads_no_element(spark: SparkSession, topics: Topics) -> None:
    """What rose does not hold the horizon: the other stream does."""
    topics.make(L, R, Joined)
    topics.put(L, *keyed("l", 1, 2, 3))
    topics.put(R, *keyed("r", 1, 2))
    mill = topics.mill(join_names, spark, **BY_K)
    assert mill.turn().rows_written == {"Joined": 1}
    assert mill.turn().status == "nothing_new"
    topics.put(L, *keyed("m", 4, 5))
    without_spark = topics.mill(join_names, spark, **BY_K)
    without_spark._run_state, without_spark._session = mill._run_state, _no_spark
    assert without_spark.turn().status == "nothing_new"


def _no_spark() -> SparkSession:
    raise AssertionError("a turn without news must not read")


def test_positions_are_published_to_a_group_for_every_class(spark: SparkSession, topics: Topics) -> None:
    """After our own commit, for those who watch lag: the first element that is still needed."""
    topics.make(L, R, Joined)
    topics.put(L, *keyed("l", 1, 2, 3))
    topics.put(R, *keyed("r", 1, 2, 2))
    topics.mill(join_names, spark, options={"consumer_group_name": topics.names[L]}, **BY_K).turn()
    probe = KafkaProbe(KafkaOptions(topics.broker.bootstrap))
    found = {
        s: probe.group_offsets(f"{topics.names[L]}-{s.__name__}", probe.topics([topics.names[s]]).values())
        for s in (L, R)
    }
    assert found == {L: {(topics.names[L], 0): 1}, R: {(topics.names[R], 0): 1}}


def test_a_stream_ends_when_nothing_comes_for_the_data_timeout(spark: SparkSession, topics: Topics) -> None:
    """The end is sent on, as if it had been there."""
    topics.make(L, Joined).put(L, *keyed("l", 1, 2))
    topics.mill(identity, spark, options={"data_timeout": 500}).run()
    assert topics.rows_of(Joined) == [*joined((1, ["l0"]), (2, ["l1"])), END]


def until_two(left: L) -> Joined | EndOfStream:
    return EndOfStream() if left.k == 2 else Joined(left.k, [left.name])


def test_an_end_that_is_returned_is_sent_on_and_nothing_after_it(spark: SparkSession, topics: Topics) -> None:
    """The next run goes on behind the element that ended the first."""
    topics.make(L, Joined).put(L, *keyed("l", 1, 2, 3))
    topics.mill(until_two, spark).run()
    assert topics.rows_of(Joined) == [*joined((1, ["l0"])), END]
    topics.mill(until_two, spark).turn()
    assert topics.rows_of(Joined) == [*joined((1, ["l0"])), END, *joined((3, ["l2"]))]


def sizes(lefts: list[L]) -> Joined:
    return Joined(len(lefts), [left.name for left in lefts])


def by_second(element: dict[str, object] | None) -> int:
    return int(time.time() * 2)


def test_a_window_by_the_clock_closes_on_an_idle_poll(spark: SparkSession, topics: Topics) -> None:
    """The expression is asked with None, and the window closes when its answer changes."""
    topics.make(L, Joined).put(L, *keyed("l", 1, 2))
    declared = {"stream_cls": window(L, function_call(by_second)), "options": {"poll_timeout": 100}}
    mill = topics.mill(sizes, spark, **declared)
    run_until(mill, lambda: sum(row["k"] for row in topics.rows_of(Joined)) == 2)
    assert sum(row["k"] for row in topics.rows_of(Joined)) == 2


def test_windows_by_the_clock_follow_the_arrival_of_elements(spark: SparkSession, topics: Topics) -> None:
    """Elements that come while a turn is at work are asked about then, and not when it is over."""
    topics.make(L, Joined).put(L, *keyed("first", 1))
    asked: dict[str, float] = {}

    def by_moment(element: dict[str, object] | None) -> int:
        asked.update({str(element["name"]): time.time()} if element else {})
        return int(time.time() * 2)

    declared = {"stream_cls": window(L, function_call(by_moment)), "options": {"poll_timeout": 50}}
    mill = topics.mill(slowly, spark, **declared)
    with turning(mill):
        wait_until(lambda: "first0" in asked and mill.progress().turns == 1)
        sent = time.time()
        topics.put(L, *keyed("second", 2))
        wait_until(lambda: "second0" in asked)
        topics.put(L, END)
        wait_until(lambda: END in topics.rows_of(Joined))
    assert asked["second0"] - sent < SLOW_SECONDS
    assert [row["k"] for row in topics.rows_of(Joined)[:-1]] == [1, 1]


SLOW_SECONDS = 8


def slowly(lefts: list[L]) -> Joined:
    time.sleep(SLOW_SECONDS)
    return Joined(len(lefts), [])


def test_poll_timeout_is_refused_where_nobody_could_be_asked(spark: SparkSession, topics: Topics) -> None:
    """With a window by fields, which has no value for None."""
    topics.make(L, Joined)
    with pytest.raises(ConfigError, match="poll_timeout does not go with L"):
        topics.mill(sizes, spark, stream_cls=window(L, K // 2), options={"poll_timeout": 100})


def test_a_missing_topic_is_reported_with_those_that_are_near(spark: SparkSession, topics: Topics) -> None:
    """A typing error, most likely."""
    topics.make(L, Joined)
    right = topics.names[L]
    topics.names[L] = f"{right}x"
    with pytest.raises(ConfigError, match=f"no topic '{right}x' for L") as caught:
        topics.mill(identity, spark).turn()
    assert right in caught.value.hint


def test_several_mills_run_in_threads_of_one_process(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """Each has its name, its marks, its output and its end; one name on a broker is one writer, whatever the store."""
    others = Topics(topics.broker, tmp_path / "other")
    others.folder.mkdir()
    topics.make(L, Joined).put(L, *keyed("l", 1), END)
    others.make(L, Joined).put(L, *keyed("m", 2), END)
    run_side_by_side(topics.mill(identity, spark), others.mill(identity, spark, name="other"))
    assert topics.rows_of(Joined) == [*joined((1, ["l0"])), END]
    assert others.rows_of(Joined) == [*joined((2, ["m0"])), END]


def test_progress_tells_elements_horizon_and_lag(spark: SparkSession, topics: Topics) -> None:
    """As a value; the log has it too."""
    topics.make(L, R, Joined)
    topics.put(L, *keyed("l", 1, 2, 3))
    topics.put(R, *keyed("r", 1, 2))
    mill = topics.mill(join_names, spark, **BY_K)
    mill.turn()
    progress = mill.progress()
    found: Mapping[str, tuple[int, int]] = {name: (own.elements, own.lag) for name, own in progress.streams.items()}
    assert (found, progress.horizon) == ({"L": (1, 2), "R": (2, 1)}, 2)


def test_a_join_key_of_its_own_kind_goes_with_partitions(spark: SparkSession, topics: Topics) -> None:
    """Windows of the master over two partitions are cut by their key."""
    topics.partitions = {L: 2}
    topics.make(L, Joined)
    topics.put(L, *keyed("a", 0, 1, 4), END, partition=0)
    topics.put(L, *keyed("b", 2, 3), END, partition=1)
    topics.mill(sizes, spark, stream_cls=window(L, K // 2)).run()
    assert topics.rows_of(Joined) == [*joined((2, ["a0", "a1"]), (2, ["b0", "b1"]), (1, ["a2"])), END]


JOIN_PLUS_ONE = {"join_tree": join_streams(L, JoinWith(R, K + 1, K))}


def test_a_self_join_reads_one_topic_twice(spark: SparkSession, topics: Topics) -> None:
    """Two nodes, one topic, a mark for each."""
    topics.make(L, Joined).put(L, *keyed("l", 1, 2, 3), END)
    topics.names[R] = topics.names[L]
    topics.mill(join_names, spark, **JOIN_PLUS_ONE).run()
    assert topics.rows_of(Joined) == [*joined((1, ["l1"]), (2, ["l2"])), END]

"""Programs for water-healer 0.0.11 with their import line changed."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck
import pytest

import floodmark.compat.waterhealer as wh
from floodmark.compat.waterhealer.inside import calls_healing
from floodmark.errors import ConfigError, RecordsFailed
from floodmark.streams.running import run_once
from tests.sources.kafka.topics import put
from tests.streams.harness import StreamHarness
from tests.streams.local_cluster import LocalCluster, Log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from floodmark.compat.waterhealer.source import KafkaSource
    from floodmark.testing.servers import Broker


@pytest.fixture
def harness(kafka: Broker, spark: SparkSession, tmp_path: Path) -> StreamHarness:
    """Streams of this test alone."""
    return StreamHarness(kafka, spark, tmp_path)


def json_loads(row: Any) -> Any:  # noqa: ANN401 (a row)
    return (row[0], json.loads(row[1]))


def plus(row: Any) -> Any:  # noqa: ANN401 (a row)
    number = row[1]["no"]
    if number > 12:
        raise Exception("row is bigger than 12")  # noqa: TRY002 (as the notebook does)
    return (row[0], number + 1)


def source_of(harness: StreamHarness, topic: str) -> KafkaSource:
    store = f"sqlite:///{harness.folder}/marks.db"
    own = {"store": store, "spark": harness.spark}
    return wh.from_kafka([topic], harness.params(), maxlen_memory=100, maxage_memory=60, loop=None, **own)


def put_numbers(harness: StreamHarness, topic: str, numbers: range, partitions: int) -> None:
    """As the notebooks do: one after the other, from partition to partition."""
    for number in numbers:
        put(harness.broker, topic, json.dumps({"no": number}), partition=number % partitions)


def test_each_element_is_healed_and_the_one_that_fails_is_not(
    harness: StreamHarness, topic: Callable[..., str]
) -> None:
    """simple-plus-element: ten partitions, fourteen messages, and `plus` refuses the last one."""
    name = topic(10)
    put_numbers(harness, name, range(14), 10)
    source, outputs = source_of(harness, name), []
    source.map(json_loads).map(plus).map(wh.healing, stream=source).sink(outputs.append)
    assert source.consumer.committed([ck.TopicPartition(name, 0)])[0].offset == -1001
    with pytest.raises(RecordsFailed, match="row is bigger than 12"):
        source.run_once()
    assert sorted(each["data"] for each in outputs) == list(range(1, 14))
    assert source.consumer.committed([ck.TopicPartition(name, 3)])[0].offset == 1
    assert source.consumer.get_watermark_offsets(ck.TopicPartition(name, 3)) == (0, 2)
    assert source.memory[f"{name}<!>3"] == {1: False}


def test_the_rest_that_fills_no_batch_is_not_healed(harness: StreamHarness, topic: Callable[..., str]) -> None:
    """simple-plus-batch: with batches of five, "we don't get data for 11 and 12"."""
    name = topic(10)
    put_numbers(harness, name, range(14), 10)
    source, outputs = source_of(harness, name), []
    source.map(json_loads).map(plus).partition(5).map(wh.healing_batch, stream=source).flatten().sink(outputs.append)
    with pytest.raises(RecordsFailed, match="row is bigger than 12"):
        source.run_once()
    assert [each["data"] for each in outputs] == list(range(1, 11))


def test_a_stream_of_plain_values_runs_its_sinks_in_this_program(
    harness: StreamHarness, topic: Callable[..., str]
) -> None:
    """The first story of the seed: values without a uuid; here the offset does not pass the record that failed."""
    name = topic(1)
    put(harness.broker, name, "1", "2", "3", "4")
    outputs: list[object] = []

    def plus_one(value: int) -> int:
        if value > 2:
            raise Exception("row is bigger than 2!")  # noqa: TRY002 (as the seed does)
        return value + 1

    store = f"sqlite:///{harness.folder}/marks.db"
    source = wh.Stream.from_kafka([name], harness.params(), store=store, spark=harness.spark)
    source.map(json.loads).map(plus_one).sink(outputs.append)
    with pytest.raises(RecordsFailed, match="row is bigger than 2!"):
        source.run_once()
    assert (outputs, harness.marks(source, name)) == ([2, 3], {0: 2})


def test_healing_may_be_called_in_a_function_of_ones_own(harness: StreamHarness, topic: Callable[..., str]) -> None:
    """It runs in this program, after the steps before it and in order, and sees what this program has."""
    name = topic(1)
    put(harness.broker, name, *"1234")
    source, outputs = source_of(harness, name), []

    def heal_the_odd(row: Any) -> None:  # noqa: ANN401 (a row)
        if int(row[1]) % 2 or int(row[1]) > 3:
            outputs.append(wh.healing(row, stream=source))

    source.sink(heal_the_odd)
    source.run_once()
    assert [(each["data"], each["success"], each["offset"]) for each in outputs] == [
        (b"1", True, 0),
        (b"3", True, 2),
        (b"4", True, 3),
    ]
    assert harness.marks(source, name) == {0: 1}


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    """One partition with six records."""
    return LocalCluster(tmp_path, Log({0: {offset: b"%d" % offset for offset in range(6)}}, {0: 6}))


def test_a_function_may_heal_records_that_it_has_kept(cluster: LocalCluster) -> None:
    """One that gathers by itself: what it has not healed stays unhealed, and comes again in the next run."""
    kept: list[Any] = []

    def in_fours(row: Any) -> None:  # noqa: ANN401 (a row)
        kept.append(row)
        if len(kept) == 4:
            wh.healing_batch(kept)
            kept.clear()

    def build(source: Any) -> None:  # noqa: ANN401 (a stream)
        source.sink(in_fours)

    run_once(cluster.healer(build, source=wh.Stream()))
    assert cluster.marks() == {0: 4}
    kept.clear()
    cluster.log.records[0] |= {6: b"6", 7: b"7"}
    cluster.log.ends[0] = 8
    run_once(cluster.healer(build, source=wh.Stream()))
    assert cluster.marks() == {0: 8}


def test_a_function_that_raises_fails_its_record_and_the_others_go_on(cluster: LocalCluster) -> None:
    """As any step does, though it runs in the driver."""
    seen: list[object] = []

    def heal(row: Any) -> None:  # noqa: ANN401 (a row)
        if row[1] == b"2":
            raise ValueError("not this one")
        seen.append(wh.healing(row)["offset"])

    with pytest.raises(RecordsFailed, match="not this one"):
        run_once(cluster.healer(lambda source: source.sink(heal), source=wh.Stream()))
    assert (seen, cluster.marks()) == ([0, 1, 3, 4, 5], {0: 2})


def test_sink_gives_a_stream_and_steps_take_streamzs_keywords() -> None:
    """As programs for streamz write them."""
    source, outputs = wh.Stream(asynchronous=False), []
    end = (
        source.map(lambda x, by: x * by, by=2, stream_name="double")
        .partition(2, stream_name="pairs")
        .sink(outputs.append)
    )
    for number in range(4):
        source.emit(number)
    assert (outputs, isinstance(end, wh.Stream)) == ([(0, 2), (4, 6)], True)


def test_the_module_of_the_original_is_found_under_its_own_path() -> None:
    """For programs that name it."""
    from floodmark.compat.waterhealer.core import from_kafka, topic_partition_str

    assert (from_kafka, topic_partition_str("orders", 3)) == (wh.from_kafka, "orders<!>3")


def test_a_stream_is_drawn_under_the_name_that_streamz_would_take(tmp_path: Path) -> None:
    """As a drawing in the place of the bitmap."""
    source = wh.Stream()
    source.map(str).visualize(tmp_path / "mystream.png", source_node=True)
    assert ">map(str)</text>" in (tmp_path / "mystream.svg").read_text()


@pytest.mark.parametrize(
    ("build", "outputs"),
    [
        (lambda source: source.rate_limit(interval=0.001), [2, 1, 2]),
        (
            lambda source: source.scan(lambda total, x, interval: total + x * interval, start=0, interval=10),
            [20, 30, 50],
        ),
        (lambda source: source.map(lambda x: [x] * x).concat(), [2, 2, 1, 2, 2]),
        (lambda source: source.frequencies(stream_name="counts"), [{2: 1}, {2: 1, 1: 1}, {2: 2, 1: 1}]),
    ],
)
def test_steps_have_the_names_that_streamz_has(build: Callable[[Any], Any], outputs: list[object]) -> None:
    """Its other names of steps, and its names of their arguments."""
    source, seen = wh.Stream(), []
    build(source).sink(seen.append)
    for number in (2, 1, 2):
        source.emit(number)
    assert seen == outputs


def test_healing_outside_a_step_is_refused() -> None:
    """There is nothing that it could heal."""
    with pytest.raises(ConfigError, match="outside a step"):
        wh.healing(({"topic": "t", "partition": 0, "offset": 1}, b"1"))


def test_a_row_without_a_uuid_is_answered_as_by_the_original() -> None:
    """A result that says so, where `floodmark.streams` has an error."""
    assert wh.healing(("text", 1)) == {
        "data": 1,
        "success": False,
        "reason": "invalid uuid",
        "partition": -1,
        "offset": -1,
        "topic": "",
    }


def test_a_function_that_calls_healing_is_known_by_its_code() -> None:
    """Also through another function, a closure, a partial; any other runs on the executors."""

    def heal(row: Any) -> object:  # noqa: ANN401 (a row)
        return wh.healing(row)

    assert calls_healing(heal)
    assert calls_healing(partial(heal, 1))
    assert calls_healing(lambda row: [heal(each) for each in row])
    assert not calls_healing(json_loads)
    assert not calls_healing(print)

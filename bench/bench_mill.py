"""The mill at two sizes: the time of an element and the memory of the driver, of many against few.

Beside watermill itself it is measured by `peers_watermill`.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from run import Result
from timing import seconds

import floodmark as fm
from floodmark.mill import JoinWith, JsonFileMessageBroker, KafkaMessageBroker, WaterMill, get_field, join_streams
from floodmark.mill.brokers.files import INDEXES
from floodmark.testing.servers import Broker, kafka_broker

if TYPE_CHECKING:
    from floodmark.mill.join_tree import Stream

ELEMENTS, ROUNDS = 1_000_000, 3


@dataclass
class Left:
    """A master element."""

    time: int
    value: float


@dataclass
class Right:
    """What is joined to it."""

    time: int
    value: float


@dataclass
class Total:
    """The output."""

    time: int
    value: float


def mapped(left: Left) -> Total:
    return Total(left.time, left.value * 2)


def joined(left: Left, rights: Mapping[Left, list[Right]]) -> Total:
    return Total(left.time, left.value + sum(right.value for right in rights[left]))


TREE = join_streams(Left, JoinWith(Right, get_field("time"), get_field("time")))
DECLARED: dict[str, tuple[Any, dict[str, Any]]] = {"map": (mapped, {}), "join": (joined, {"join_tree": TREE})}


def run(elements: int = ELEMENTS) -> list[Result]:
    """The few elements of a warm-up come first, so that what is measured is neither Java's start nor Python's."""
    few = elements // 10
    fm.spark_session({"spark.master": "local[2]", "spark.driver.memory": "2g"})
    with tempfile.TemporaryDirectory() as name, kafka_broker(Path(name) / "kafka") as broker:
        home = Path(name)
        topics = {count: filled(broker, count) for count in (few, elements)}
        mill_on_kafka(broker, home, "map", topics[few])
        before = driver_megabytes()
        short = [time_of(broker, home, topics[few]) for _ in range(ROUNDS)]
        long = [time_of(broker, home, topics[elements]) for _ in range(ROUNDS)]
        after = driver_megabytes()
    per_element = statistics.median(long) / elements / (statistics.median(short) / few)
    return [
        Result(
            "mill, time per element of many against few",
            per_element,
            1.3,
            f"{few:,} in {statistics.median(short):.1f} s, {elements:,} in {statistics.median(long):.1f} s, medians",
        ),
        Result(
            "mill, memory of the driver after many against after few",
            after / before,
            1.2,
            f"its Python held {before:.0f} MB, then {after:.0f} MB at most",
        ),
    ]


def time_of(broker: Broker, home: Path, topics: Mapping[str, str]) -> float:
    return seconds(lambda: mill_on_kafka(broker, home, "map", topics))


def mill_on_kafka(broker: Broker, home: Path, kind: str, topics: Mapping[str, str]) -> None:
    process, declared = DECLARED[kind]
    names: dict[Stream, str] = {Left: topics["left"], Right: topics["right"], Total: f"out-{uuid.uuid4().hex[:8]}"}
    streams = KafkaMessageBroker(names, broker.bootstrap)
    store = fm.stores.open(f"sqlite:///{uuid.uuid4().hex}.db", folder=home)
    WaterMill(streams, process, spark=fm.spark_session(), store=store, name=kind, **declared).run()


def mill_on_files(home: Path, kind: str) -> None:
    process, declared = DECLARED[kind]
    output = home / f"{uuid.uuid4().hex}.json"
    paths: dict[Stream, Path] = {Left: home / "left.json", Right: home / "right.json", Total: output}
    store = fm.stores.open(f"sqlite:///{uuid.uuid4().hex}.db", folder=home)
    broker = JsonFileMessageBroker(paths)
    INDEXES.clear()  # of what is known of the files: each run is the first one to see them
    WaterMill(broker, process, spark=fm.spark_session(), store=store, name=kind, **declared).run()


def filled(broker: Broker, count: int) -> dict[str, str]:
    """Two topics of so many elements, an end behind them."""
    topics = {side: f"{side}-{count}" for side in ("left", "right")}
    for topic in topics.values():
        fill(broker, topic, count)
    return topics


def fill(broker: Broker, topic: str, count: int) -> None:
    broker.create_topic(topic)
    settings = {"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 2_000_000}
    producer = Producer(settings)
    for number in range(count):
        producer.produce(topic, json.dumps(element(number)), partition=0)
        if number % 50_000 == 0:
            producer.poll(0)
    producer.produce(topic, '{"eos__": true}', partition=0)
    producer.flush(120)


def element(number: int) -> dict[str, Any]:
    return {"time": number, "value": number / 4}


def driver_megabytes() -> float:
    """The most that this Python has ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)

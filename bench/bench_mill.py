"""The mill beside watermill itself: one stream mapped and two streams joined, over Kafka and over JSON files.

watermill gets a virtual environment of its own for this, and a minute; its rate is measured on what it can do in that.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
import uuid
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer, TopicPartition
from run import Result
from timing import seconds

import floodmark as fm
from floodmark.mill import JoinWith, JsonFileMessageBroker, KafkaMessageBroker, WaterMill, get_field, join_streams
from floodmark.testing.servers import Broker, kafka_broker

if TYPE_CHECKING:
    from floodmark.mill.aliases import Stream

ELEMENTS = 1_000_000
FEW = ELEMENTS // 10
THEIRS = Path(__file__).with_name("watermill_reference.py")
MINUTE_SECONDS = 60


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


def run() -> list[Result]:
    fm.spark_session({"spark.master": "local[2]", "spark.driver.memory": "2g"})
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        theirs = watermill_python(home)
        with kafka_broker(home / "kafka") as broker:
            topics = filled(broker)
            mill_on_kafka(broker, home, "map", topics[FEW])  # warms up
            return [*on_kafka(broker, home, topics, theirs), *on_files(home, theirs)]


def on_kafka(broker: Broker, home: Path, topics: Mapping[int, Mapping[str, str]], theirs: Path) -> list[Result]:
    rate = watermill_on_kafka(broker, topics[ELEMENTS], theirs)
    few = seconds(lambda: mill_on_kafka(broker, home, "map", topics[FEW]))
    before = driver_megabytes()
    times = {kind: seconds(lambda k=kind: mill_on_kafka(broker, home, k, topics[ELEMENTS])) for kind in DECLARED}  # type: ignore[misc]
    grown = driver_megabytes() - before
    faster = [
        Result(
            f"mill, Kafka {kind}: a thousand times watermill's rate against ours",
            1000 * rate / (read / times[kind]),
            1.0,
            f"{read:,} elements in {times[kind]:.1f} s: {read / times[kind]:,.0f}/s, watermill {rate:,.0f}/s",
        )
        for kind, read in (("map", ELEMENTS), ("join", 2 * ELEMENTS))
    ]
    linear = Result(
        "mill, ten times the elements against ten times the time",
        times["map"] / (10 * few),
        1.0,
        f"{FEW:,} in {few:.1f} s, {ELEMENTS:,} in {times['map']:.1f} s; Python of the driver grew by {grown:.0f} MB",
    )
    return [*faster, linear]


def on_files(home: Path, theirs: Path) -> list[Result]:
    """A million elements each; watermill reads and writes the very same files."""
    for name in ("left", "right"):
        (home / f"{name}.json").write_text(json.dumps([element(number) for number in range(ELEMENTS)]))
    results = []
    for kind, (process, declared) in DECLARED.items():
        ours = seconds(lambda p=process, d=declared, k=kind: mill_on_files(home, k, p, d))  # type: ignore[misc]
        plain = seconds(lambda k=kind: subprocess.run([theirs, THEIRS, "files", k, home], check=True))  # type: ignore[misc]
        detail = f"{ELEMENTS:,} elements a stream: watermill {plain:.1f} s, Floodmark {ours:.1f} s"
        results.append(Result(f"mill, files {kind}: against watermill", ours / plain, 1.0, detail))
    return results


def mill_on_kafka(broker: Broker, home: Path, kind: str, topics: Mapping[str, str]) -> None:
    process, declared = DECLARED[kind]
    names: dict[Stream, str] = {Left: topics["left"], Right: topics["right"], Total: f"out-{uuid.uuid4().hex[:8]}"}
    streams = KafkaMessageBroker(names, broker.bootstrap)
    store = fm.stores.open(f"sqlite:///{uuid.uuid4().hex}.db", folder=home)
    WaterMill(streams, process, spark=fm.spark_session(), store=store, name=kind, **declared).run()


def mill_on_files(home: Path, kind: str, process: Any, declared: dict[str, Any]) -> None:  # noqa: ANN401
    paths: dict[Stream, Path] = {Left: home / "left.json", Right: home / "right.json", Total: home / f"{kind}.json"}
    store = fm.stores.open(f"sqlite:///{uuid.uuid4().hex}.db", folder=home)
    mill = WaterMill(
        JsonFileMessageBroker(paths), process, spark=fm.spark_session(), store=store, name=kind, **declared
    )
    mill.run()


def watermill_python(home: Path) -> Path:
    """A Python that has watermill."""
    venv.create(home / "theirs", with_pip=True)
    python = home / "theirs" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "watermill==3.6.7", "kafka-python"], check=True)
    return python


def watermill_on_kafka(broker: Broker, topics: Mapping[str, str], theirs: Path) -> float:
    """Elements per second, over what it puts out in a minute."""
    out = f"theirs-{uuid.uuid4().hex[:8]}"
    broker.create_topic(out)
    child = subprocess.Popen(
        [theirs, THEIRS, "kafka", broker.bootstrap, topics["left"], out], stderr=subprocess.DEVNULL
    )
    begun, first = time.monotonic(), 0.0
    while time.monotonic() - begun < MINUTE_SECONDS and child.poll() is None:
        time.sleep(0.5)
        first = first or (time.monotonic() if length(broker, out) else 0.0)
    count, took = length(broker, out), time.monotonic() - first
    child.kill()
    child.wait()
    return count / took if count else 0.0


def filled(broker: Broker) -> dict[int, dict[str, str]]:
    """Topics with few and with many elements, an end behind them."""
    topics = {}
    for count in (FEW, ELEMENTS):
        topics[count] = {side: f"{side}-{count}" for side in ("left", "right")}
        for topic in topics[count].values():
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


def length(broker: Broker, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "counting"})
    _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    consumer.close()
    return int(high)


def driver_megabytes() -> float:
    """The most that this Python has ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)

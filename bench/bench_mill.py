"""The mill beside watermill itself: one stream mapped and two streams joined, over Kafka and over JSON files.

watermill gets a virtual environment of its own for this, and a minute; its rate is measured on what it can do in that.
MILL_ELEMENTS and MILL_PATIENCE_SECONDS make a smaller run of it.
"""

from __future__ import annotations

import json
import os
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
    from floodmark.mill.join_tree import Stream

ELEMENTS = int(os.environ.get("MILL_ELEMENTS", "1_000_000"))
FEW = ELEMENTS // 10
STREAMS = {"map": 1, "join": 2}
THEIRS = Path(__file__).with_name("watermill_reference.py")
PATIENCE_SECONDS = int(os.environ.get("MILL_PATIENCE_SECONDS", "60"))
KNOWN_ON_KAFKA, KNOWN_ON_FILES = 100, 59_000
"""What watermill 3.6.7 was seen to do per second, for machines on which it cannot be installed."""


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
            return [*on_kafka(broker, home, filled(broker), theirs), *on_files(home, theirs)]


def on_kafka(broker: Broker, home: Path, topics: Mapping[int, Mapping[str, str]], theirs: Path | None) -> list[Result]:
    """The few elements of a warm-up come first, so that what is measured is neither Java's start nor Python's.

    The better of two runs counts: what else a machine does can only slow one down.
    """
    rate = watermill_on_kafka(broker, topics[ELEMENTS], theirs) if theirs else KNOWN_ON_KAFKA
    for kind in DECLARED:
        mill_on_kafka(broker, home, kind, topics[FEW])
    few = min(seconds(lambda: mill_on_kafka(broker, home, "map", topics[FEW])) for _ in range(2))
    before, times = driver_megabytes(), {}
    for kind in DECLARED:
        runs = [seconds(lambda k=kind: mill_on_kafka(broker, home, k, topics[ELEMENTS])) for _ in range(2)]  # type: ignore[misc]
        times[kind] = min(runs)
    after = driver_megabytes()
    return [
        *(thousandfold(kind, times[kind], rate) for kind in DECLARED),
        Result(
            "mill, time per element of many against few",
            times["map"] / ELEMENTS / (few / FEW),
            1.3,
            f"{FEW:,} in {few:.1f} s, {ELEMENTS:,} in {times['map']:.1f} s",
        ),
        Result(
            "mill, memory of the driver after many against after few",
            after / before,
            1.2,
            f"its Python held {before:.0f} MB, then {after:.0f} MB at most",
        ),
    ]


def thousandfold(kind: str, took: float, theirs: float) -> Result:
    """Elements per second, those of both streams of a join counted."""
    read = ELEMENTS * STREAMS[kind]
    return Result(
        f"mill, Kafka {kind}: a thousand times watermill's rate against ours",
        1000 * theirs / (read / took),
        1.0,
        f"{read:,} elements in {took:.1f} s: {read / took:,.0f}/s, watermill {theirs:,.0f}/s",
    )


def on_files(home: Path, theirs: Path | None) -> list[Result]:
    """watermill reads and writes the very same files."""
    for name in ("left", "right"):
        (home / f"{name}.json").write_text(json.dumps([element(number) for number in range(ELEMENTS)]))
    results = []
    for kind in DECLARED:
        read = ELEMENTS * STREAMS[kind]
        ours = seconds(lambda k=kind: mill_on_files(home, k))  # type: ignore[misc]
        plain = watermill_on_files(home, kind, theirs) if theirs else read / KNOWN_ON_FILES
        detail = f"{read:,} elements: watermill {read / plain:,.0f}/s, Floodmark {read / ours:,.0f}/s in {ours:.1f} s"
        results.append(Result(f"mill, files {kind}: our time against watermill's", ours / plain, 1.0, detail))
    return results


def mill_on_kafka(broker: Broker, home: Path, kind: str, topics: Mapping[str, str]) -> None:
    process, declared = DECLARED[kind]
    names: dict[Stream, str] = {Left: topics["left"], Right: topics["right"], Total: f"out-{uuid.uuid4().hex[:8]}"}
    streams = KafkaMessageBroker(names, broker.bootstrap)
    store = fm.stores.open(f"sqlite:///{uuid.uuid4().hex}.db", folder=home)
    WaterMill(streams, process, spark=fm.spark_session(), store=store, name=kind, **declared).run()


def mill_on_files(home: Path, kind: str) -> None:
    process, declared = DECLARED[kind]
    paths: dict[Stream, Path] = {Left: home / "left.json", Right: home / "right.json", Total: home / f"{kind}.json"}
    store = fm.stores.open(f"sqlite:///{uuid.uuid4().hex}.db", folder=home)
    broker = JsonFileMessageBroker(paths)
    WaterMill(broker, process, spark=fm.spark_session(), store=store, name=kind, **declared).run()


def watermill_python(home: Path) -> Path | None:
    """A Python that has watermill; None where it cannot be installed, and what is known of it has to do."""
    venv.create(home / "theirs", with_pip=True)
    python = home / "theirs" / "bin" / "python"
    asked = [str(python), "-m", "pip", "install", "-q", "watermill==3.6.7", "kafka-python==3.0.12"]
    if subprocess.run(asked, check=False).returncode == 0:
        return python
    print(f"watermill is not to be had: its known rates stand for it, {KNOWN_ON_KAFKA:,}/s and {KNOWN_ON_FILES:,}/s")
    return None


def watermill_on_files(home: Path, kind: str, theirs: Path) -> float:
    """Its seconds for all elements, the start of its Python included."""
    return seconds(lambda: subprocess.run([theirs, THEIRS, "files", kind, home], check=True))


def watermill_on_kafka(broker: Broker, topics: Mapping[str, str], theirs: Path) -> float:
    """Elements per second from its first output on."""
    out = f"theirs-{uuid.uuid4().hex[:8]}"
    broker.create_topic(out)
    child = subprocess.Popen(
        [theirs, THEIRS, "kafka", broker.bootstrap, topics["left"], out], stderr=subprocess.DEVNULL
    )
    begun, first = time.monotonic(), 0.0
    while time.monotonic() - begun < PATIENCE_SECONDS and child.poll() is None:
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

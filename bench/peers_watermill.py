"""The mill beside watermill 3.6.7: one stream mapped and two streams joined, over Kafka and over JSON files.

Over Kafka watermill is given a minute, and its rate is taken from what it did in that. Over files both get the same
elements, the start of watermill's Python included, and a Spark session that is there for the mill.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bench_mill import DECLARED, ELEMENTS, element, filled, mill_on_files, mill_on_kafka
from confluent_kafka import Consumer, TopicPartition
from environments import python_with
from run import Result
from timing import compare, seconds

import floodmark as fm
from floodmark.testing.servers import Broker, kafka_broker

if TYPE_CHECKING:
    from collections.abc import Callable

STREAMS = {"map": 1, "join": 2}
ON_FILES = {"map": 0.33, "join": 0.25}
THEIRS = Path(__file__).with_name("watermill_reference.py")


def run(elements: int = ELEMENTS, patience: int = 60, rounds: int = 3, kafka: int = 1, files: int = 1) -> list[Result]:
    theirs = python_with("watermill", "watermill==3.6.7", "kafka-python==3.0.12")
    fm.spark_session({"spark.master": "local[2]", "spark.driver.memory": "2g"})
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        results = on_files(home, theirs, elements, rounds) if files else []
        if kafka:
            with kafka_broker(home / "kafka") as broker:
                results += on_kafka(broker, home, theirs, elements, patience, rounds)
        return results


def on_kafka(broker: Broker, home: Path, theirs: Path, elements: int, patience: int, rounds: int) -> list[Result]:
    few, topics = filled(broker, elements // 10), filled(broker, elements)
    rate = watermill_rate(broker, topics["left"], theirs, patience)
    return [thousandfold(broker, home, kind, few, topics, rate, elements, rounds) for kind in DECLARED]


def thousandfold(
    broker: Broker,
    home: Path,
    kind: str,
    few: Mapping[str, str],
    topics: Mapping[str, str],
    theirs: float,
    elements: int,
    rounds: int,
) -> Result:
    """Elements per second, those of both streams of a join counted."""
    mill_on_kafka(broker, home, kind, few)
    read = elements * STREAMS[kind]
    times = tuple(seconds(lambda: mill_on_kafka(broker, home, kind, topics)) for _ in range(rounds))
    took = sorted(times)[rounds // 2]
    detail = f"{read:,} elements in {took:.1f} s: {read / took:,.0f}/s, watermill {theirs:,.0f}/s"
    name = f"mill, Kafka {kind}: a thousand times watermill's rate against ours"
    return Result(name, 1000 * theirs / (read / took), 1.0, detail, ours=times)


def on_files(home: Path, theirs: Path, elements: int, rounds: int) -> list[Result]:
    """watermill reads and writes the very same files."""
    text = json.dumps([element(number) for number in range(elements)])
    for name in ("left", "right"):
        (home / f"{name}.json").write_text(text)

    def plainly(kind: str) -> Callable[[int], object]:
        return lambda _: subprocess.run([theirs, THEIRS, "files", kind, home], check=True)

    def ours(kind: str) -> Callable[[int], object]:
        return lambda _: mill_on_files(home, kind)

    of = f"{elements:,} elements a stream"
    return [
        compare(
            f"mill, files {kind}: our time against watermill's",
            plainly(kind),
            ours(kind),
            at_most=ON_FILES[kind],
            rounds=rounds,
            of=of,
        )
        for kind in DECLARED
    ]


def watermill_rate(broker: Broker, topic: str, theirs: Path, patience: int) -> float:
    """Elements per second from its first output on."""
    out = f"theirs-{uuid.uuid4().hex[:8]}"
    broker.create_topic(out)
    child = subprocess.Popen([theirs, THEIRS, "kafka", broker.bootstrap, topic, out], stderr=subprocess.DEVNULL)
    begun, first = time.monotonic(), 0.0
    while time.monotonic() - begun < patience and child.poll() is None:
        time.sleep(0.5)
        first = first or (time.monotonic() if length(broker, out) else 0.0)
    count, took = length(broker, out), time.monotonic() - first
    child.kill()
    child.wait()
    return count / took if count else 0.0


def length(broker: Broker, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "counting"})
    _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    consumer.close()
    return int(high)

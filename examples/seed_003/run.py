"""Seed 003, whole: typed functions over joined streams. The same three mills, first on JSON files, then on Kafka.

`make example-003` writes the input, runs the mills on files, starts a broker, runs them on topics, runs them a second
time, and checks that both gave the same rows, once.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from math import hypot
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition

import floodmark as fm
from floodmark.mill import (
    JoinWith,
    JsonFileMessageBroker,
    KafkaMessageBroker,
    WaterMill,
    get_field,
    join_streams,
    window,
)
from floodmark.testing.servers import Broker, kafka_broker


@dataclass(frozen=True)
class RobotLocation:
    """Where a robot is, every ten seconds."""

    time: int
    x: float
    y: float


@dataclass(frozen=True)
class RobotLocationNextStep:
    """The same stream, read one step ahead: each node of a join has a class of its own."""

    time: int
    x: float
    y: float


@dataclass(frozen=True)
class RobotSpeed:
    """How fast it went between two of them."""

    time_from: int
    time_to: int
    speed: float


@dataclass(frozen=True)
class AudioFrame:
    """The sound of one second."""

    time_seconds: int
    data: float


@dataclass(frozen=True)
class VideoFrame:
    """One picture."""

    time_ms: int
    data: float


@dataclass(frozen=True)
class AudioVideoFrame:
    """A second with its sound and its pictures."""

    time_seconds: int
    sound: float
    pictures: list[float]


@dataclass(frozen=True)
class GoodsItem:
    """Something that was sold, on a day."""

    day: int
    name: str
    price: Decimal


@dataclass(frozen=True)
class Sales:
    """What a week brought."""

    week: int
    items: int
    income: Decimal


def robot_speed(
    here: RobotLocation, next_steps: Mapping[RobotLocation, list[RobotLocationNextStep]]
) -> Iterator[RobotSpeed]:
    """A robot that stood still gives nothing."""
    for there in next_steps[here]:
        metres = hypot(there.x - here.x, there.y - here.y)
        if metres:
            yield RobotSpeed(here.time, there.time, round(metres / (there.time - here.time), 3))


def merge_audio_video(sound: AudioFrame, pictures: Mapping[AudioFrame, list[VideoFrame]]) -> AudioVideoFrame:
    """Every second that has both."""
    return AudioVideoFrame(sound.time_seconds, sound.data, [picture.data for picture in pictures[sound]])


def weekly_sales(items: list[GoodsItem]) -> Sales:
    """A week is over when an item of the next one comes, or none will."""
    return Sales(items[0].day // 7, len(items), sum((item.price for item in items), Decimal()))


ROBOTS = join_streams(
    RobotLocation,
    JoinWith(
        with_type=RobotLocationNextStep,
        left_expression=get_field("time") + 10,
        right_expression=get_field("time"),
    ),
)
FRAMES = join_streams(
    AudioFrame,
    JoinWith(
        with_type=VideoFrame,
        left_expression=get_field("time_seconds"),
        right_expression=get_field("time_ms") // 1000,
    ),
)
WEEKS = window(cls=GoodsItem, window_expression=get_field("day") // 7)

Rows = list[dict[str, Any]]
LOCATIONS = [{"time": time, "x": x, "y": 0.0} for time, x in ((0, 0.0), (10, 5.0), (20, 5.0), (30, 20.0))]
INPUT: Mapping[type, Rows] = {
    RobotLocation: LOCATIONS,
    RobotLocationNextStep: LOCATIONS,
    AudioFrame: [{"time_seconds": second, "data": second / 2} for second in (1, 2, 4)],
    VideoFrame: [{"time_ms": ms, "data": ms / 1000} for ms in (900, 1000, 1500, 2000, 3000, 4500)],
    GoodsItem: [
        {"day": day, "name": name, "price": price}
        for day, name, price in ((1, "tea", "3.20"), (6, "mug", "9.90"), (7, "tea", "3.20"), (20, "pot", "24.00"))
    ],
}
MILLS: Mapping[type, dict[str, Any]] = {
    RobotSpeed: {"process_func": robot_speed, "join_tree": ROBOTS},
    AudioVideoFrame: {"process_func": merge_audio_video, "join_tree": FRAMES},
    Sales: {"process_func": weekly_sales, "stream_cls": WEEKS},
}
EXPECTED: Mapping[type, Rows] = {
    RobotSpeed: [
        {"time_from": 0, "time_to": 10, "speed": 0.5},
        {"time_from": 20, "time_to": 30, "speed": 1.5},
    ],
    AudioVideoFrame: [
        {"time_seconds": 1, "sound": 0.5, "pictures": [1.0, 1.5]},
        {"time_seconds": 2, "sound": 1.0, "pictures": [2.0]},
        {"time_seconds": 4, "sound": 2.0, "pictures": [4.5]},
    ],
    Sales: [
        {"week": 0, "items": 2, "income": "13.10"},
        {"week": 1, "items": 1, "income": "3.20"},
        {"week": 2, "items": 1, "income": "24.00"},
    ],
}


def show(where: str, output: type, rows: Rows) -> None:
    print(f"{where}: {output.__name__}")
    for row in rows:
        print(f"  {json.dumps(row)}")
    assert rows == EXPECTED[output]


def on_files(folder: Path, store: fm.stores.MarkStore) -> None:
    paths = {cls: folder / f"{cls.__name__}.json" for cls in (*INPUT, *EXPECTED)}
    for cls, rows in INPUT.items():
        paths[cls].write_text(json.dumps(rows))
    for output, declared in MILLS.items():
        WaterMill(JsonFileMessageBroker(paths), name=f"files-{output.__name__}", store=store, **declared).run()
        show("file", output, json.loads(paths[output].read_text()))


def on_topics(kafka: Broker, store: fm.stores.MarkStore) -> None:
    bootstrap = kafka.bootstrap
    topics = {cls: f"{cls.__name__}-topic" for cls in (*INPUT, *EXPECTED)}
    topics[RobotLocationNextStep] = topics[RobotLocation]
    for topic in {topics[cls] for cls in INPUT}:
        kafka.create_topic(topic, 1)
    fill(bootstrap, {topics[cls]: rows for cls, rows in INPUT.items()})
    broker = KafkaMessageBroker(topic_names=topics, kafka_url=bootstrap)
    for output, declared in MILLS.items():
        WaterMill(broker, name=f"topics-{output.__name__}", store=store, **declared).run()
        WaterMill(broker, name=f"topics-{output.__name__}", store=store, **declared).turn()  # there is nothing new
        *rows, end = consumed(bootstrap, topics[output])
        assert end == {"eos__": True}
        show("topic", output, rows)


def fill(bootstrap: str, streams: Mapping[str, Rows]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for topic, rows in streams.items():
        for row in [*rows, {"eos__": True}]:
            producer.produce(topic, json.dumps(row).encode())
    producer.flush()


def consumed(bootstrap: str, topic: str) -> Iterator[dict[str, Any]]:
    """Everything in the topic, as a consumer with read_committed sees it."""
    settings = {"isolation.level": "read_committed", "enable.partition.eof": True, "group.id": uuid4().hex}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    while (message := consumer.poll(10)) is not None and not message.error():
        yield json.loads(message.value())
    consumer.close()


def main() -> int:
    fm.spark_session({"spark.master": "local[2]"})
    with tempfile.TemporaryDirectory() as name, kafka_broker(Path(name, "kafka")) as kafka:
        store = fm.stores.open("sqlite:///marks.db", folder=Path(name))
        on_files(Path(name), store)
        on_topics(kafka, store)
    print("files and topics gave the same rows, each once")
    return 0


if __name__ == "__main__":
    sys.exit(main())

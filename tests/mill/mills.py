"""What the tests of a turning mill share: elements put into files and topics, and what came out of them."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer, TopicPartition

from floodmark import stores
from floodmark.mill import JsonFileMessageBroker, KafkaMessageBroker, WaterMill
from floodmark.mill.join_tree import Stream
from floodmark.testing.servers import Broker
from tests.mill.cases import Case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END = {"eos__": True}
Rows = Sequence[Mapping[str, Any]]


def mill_on_files(case: Case, folder: Path, spark: SparkSession, streams: Sequence[type] = ()) -> WaterMill:
    """The case as JSON files in a folder; `streams` are there already, from another case."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: dict[Stream, Path] = {
        stream: folder / f"{stream.__name__}.json" for stream in [*case.streams, *streams, case.output]
    }
    for stream, rows in case.streams.items():
        paths[stream].write_text(json.dumps(rows))
    store = stores.open(f"sqlite:///{folder}/marks.db")
    return WaterMill(JsonFileMessageBroker(paths), case.process, spark=spark, store=store, name="mill", **case.declared)


@dataclass
class Topics:
    """A topic for each stream of a mill, on the suite's broker, and the marks of the mill."""

    broker: Broker
    folder: Path
    partitions: Mapping[type, int] = field(default_factory=dict)
    names: dict[type, str] = field(default_factory=dict)

    def make(self, *streams: type) -> Topics:
        for stream in streams:
            self.names[stream] = f"{stream.__name__}-{uuid.uuid4().hex[:8]}"
            self.broker.create_topic(self.names[stream], self.partitions.get(stream, 1))
        return self

    def put(self, stream: type, *rows: Mapping[str, Any] | str, partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 0})
        for row in rows:
            text = row if isinstance(row, str) else json.dumps(row)
            producer.produce(self.names[stream], text, partition=partition)
        producer.flush(10)

    def rows_of(self, stream: type, partition: int = 0) -> list[Any]:
        """What a reader of committed records sees in one partition."""
        settings = {"group.id": uuid.uuid4().hex, "isolation.level": "read_committed", "enable.partition.eof": True}
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, **settings})
        consumer.assign([TopicPartition(self.names[stream], partition, 0)])
        found = []
        while (message := consumer.poll(10)) is not None and message.error() is None:
            found.append(json.loads(message.value() or b"null"))
        consumer.close()
        return found

    def mill(self, process: Callable[..., Any], spark: SparkSession, **declared: Any) -> WaterMill:  # noqa: ANN401
        """A mill over the topics; `options` are the broker's."""
        options = declared.pop("options", {})
        names: dict[Stream, str] = dict(self.names.items())
        broker = KafkaMessageBroker(names, self.broker.bootstrap, **options)
        store = stores.open(f"sqlite:///{self.folder}/marks.db")
        settings = {"name": "mill", "spark": spark, "store": store, **declared}
        return WaterMill(broker, process, **settings)


def run_side_by_side(*mills: WaterMill) -> None:
    """All of them at once, each in a thread, until their streams have ended."""
    threads = [threading.Thread(target=mill.run) for mill in mills]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)


def run_until(mill: WaterMill, happened: Callable[[], bool], seconds: float = 60) -> None:
    """A run that is asked to stop once something has happened, or too much time has passed."""
    with turning(mill):
        wait_until(happened, seconds)


@contextmanager
def turning(mill: WaterMill) -> Iterator[None]:
    """A run in a thread of its own, which is asked to stop at the end of the block."""
    thread = threading.Thread(target=mill.run)
    thread.start()
    try:
        yield
    finally:
        mill.stop()
        thread.join(60)


def wait_until(happened: Callable[[], bool], seconds: float = 60) -> None:
    """Until it has, or too much time has passed."""
    deadline = time.monotonic() + seconds
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.1)

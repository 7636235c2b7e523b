"""What the tests of healing share: a stream over a topic whose function counts its own calls in a file."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.probes.kafka import KafkaProbe
from floodmark.probes.kafka.client import KafkaOptions
from floodmark.streams import from_kafka, from_kafka_batched, healing, healing_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from floodmark.streams.kafka import KafkaStream
    from floodmark.testing.servers import Broker


@dataclass(frozen=True)
class StreamHarness:
    """A broker, a session and a folder: everything but the pipeline itself."""

    broker: Broker
    spark: SparkSession
    folder: Path
    group: str = field(default_factory=lambda: f"group-{uuid.uuid4().hex[:8]}")

    def params(self, reset: str = "earliest") -> dict[str, object]:
        return {"bootstrap.servers": self.broker.bootstrap, "group.id": self.group, "auto.offset.reset": reset}

    def source(self, topics: Sequence[str], *, reset: str = "earliest", **options: Any) -> KafkaStream:  # noqa: ANN401
        store = f"sqlite:///{self.folder}/marks.db"
        return from_kafka(topics, self.params(reset), store=store, spark=self.spark, **options)

    def batched(self, topics: Sequence[str], **options: Any) -> KafkaStream:  # noqa: ANN401 (passed on)
        store = f"sqlite:///{self.folder}/marks.db"
        return from_kafka_batched(topics, self.params(), store=store, spark=self.spark, **options)

    def healed(self, topic: str, step: Callable[[Any], object], **options: Any) -> KafkaStream:  # noqa: ANN401
        """The usual stream: one function, then healing."""
        source = self.source([topic], **options)
        source.map(self.counting(step)).sink(healing, stream=source)
        return source

    def healed_in_tens(self, topic: str, step: Callable[[Any], object], size: int) -> KafkaStream:
        """A function on each record, then batches of a size."""
        source = self.source([topic])
        source.map(self.counting(step)).partition(size).sink(healing_batch, stream=source)
        return source

    def counting(self, step: Callable[[Any], object]) -> Callable[[Any], object]:
        """The function, which first writes down that it is called: with the file open for appending, in one write."""
        calls = self.folder / "calls"

        def counted(row: Any) -> object:  # noqa: ANN401 (a row)
            where = row[0]
            with calls.open("ab", buffering=0) as file:
                file.write(f"{where['partition']} {where['offset']} {where['attempt']}\n".encode())
            return step(row)

        return counted

    def calls(self) -> list[tuple[int, int, int]]:
        """(partition, offset, attempt) of every call since the last question, in order of the records."""
        path = self.folder / "calls"
        found = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return sorted(tuple(map(int, line.split())) for line in found)  # type: ignore[misc]

    def marks(self, stream: KafkaStream, topic: str) -> dict[int, int]:
        """The next offset of each partition, as our own mark says."""
        record = stream.store.read(self.group)
        return dict(record.marks[topic].value) if record and topic in record.marks else {}

    def wait_until_stable(self, topic: str) -> None:
        """Until the markers of transactions that ended are written: the broker does so after it has answered."""
        probe = KafkaProbe(KafkaOptions(self.broker.bootstrap))
        deadline = time.monotonic() + 20
        while any(each.stable < each.end for each in probe.bounds(probe.topics([topic]).values()).values()):
            assert time.monotonic() < deadline, "a transaction is still open"
            time.sleep(0.05)

    def published(self, topic: str, partitions: int) -> dict[int, int]:
        """The group's offsets, as Kafka's tools see them."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": self.group})
        places = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], timeout=20)
        consumer.close()
        return {place.partition: place.offset for place in places if place.offset >= 0}

"""Messages for the tests of the Kafka sink: read back as a careful consumer sees them, and made without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient


class Message(NamedTuple):
    """A committed message."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes | None]


def committed(bootstrap: str, topic: str) -> list[Message]:
    """Every message that a reader with read_committed sees, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,  # else each end of a partition comes after half a second
            "auto.offset.reset": "earliest",
        }
    )
    partitions = range(len(consumer.list_topics(topic, timeout=20).topics[topic].partitions))
    try:
        return [message for partition in partitions for message in _partition(consumer, topic, partition)]
    finally:
        consumer.close()


def _partition(consumer: Consumer, topic: str, partition: int) -> Iterator[Message]:
    consumer.assign([TopicPartition(topic, partition, 0)])
    while True:
        for message in consumer.consume(10_000, timeout=0.05):  # it waits that long for all of them
            if message.error():
                return
            yield Message(partition, message.key(), message.value(), dict(message.headers() or ()))


def values(bootstrap: str, topic: str) -> list[str]:
    """The values alone, sorted."""
    return sorted((seen.value or b"").decode() for seen in committed(bootstrap, topic))


def messages(*texts: str, partition: int = 0) -> list[pa.RecordBatch]:
    """One batch of rows per text, as Spark hands them to a writer."""
    return [rows([text], partition) for text in texts]


def rows(texts: Sequence[str], partition: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([None] * len(texts), pa.binary()),
            "value": pa.array([text.encode() for text in texts], pa.binary()),
            "partition": pa.array([partition] * len(texts), pa.int32()),
        }
    )


def delete_group(bootstrap: str, group: str, topic: str) -> None:
    """What the broker does by itself when a group was idle for too long.

    A transaction's offsets are settled a moment after its commit: a group that is deleted before that comes back.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed"})
    partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
    consumer.committed([TopicPartition(topic, partition) for partition in partitions], timeout=20)
    consumer.close()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_consumer_groups([group])[group].result(20)

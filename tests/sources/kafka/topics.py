"""What the tests of the Kafka source share: messages with known offsets, and what was read of them."""

from __future__ import annotations

import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka import admin as admin_module
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from floodmark.hwm import KeyValueIntHWM
from floodmark.sources import Kafka
from floodmark.sources.contract import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from floodmark.hwm import HWM
    from floodmark.sources.contract import Reading, Sight
    from floodmark.testing.servers import Broker

JSON = {"format": "json", "schema": "id long, v string"}


def put(broker: Broker, topic: str, *values: str | bytes | None, partition: int = 0, **message: Any) -> None:  # noqa: ANN401
    """Messages in this order into one partition."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, partition=partition, **message)
    producer.flush(10)


def put_slowly(broker: Broker, topic: str, *values: str, **message: Any) -> None:  # noqa: ANN401
    """Messages so far apart that a topic with short segments keeps each in one of its own."""
    for value in values:
        put(broker, topic, value, **message)
        time.sleep(0.2)


def offsets_of(broker: Broker, topic: str) -> list[int]:
    """The offsets that a plain consumer of partition 0 sees, up to the last one."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "looking"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    found = [message.offset() or 0 for message in consumer.consume(end, timeout=1)]
    consumer.close()
    return found


def fill(broker: Broker, topic: str, counts: Mapping[int, int]) -> None:
    """So many messages into each partition."""
    for partition, count in counts.items():
        put(broker, topic, *(f"{partition}-{number}" for number in range(count)), partition=partition)


@contextmanager
def open_transaction(broker: Broker, topic: str, *values: str, partition: int = 0) -> Iterator[Producer]:
    """Messages that are written and not committed; the block commits or aborts."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": uuid.uuid4().hex, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=partition)
    producer.flush(10)
    yield producer


def commit_offset(broker: Broker, topic: str, *, group: str, offset: int) -> None:
    """What a consumer of partition 0 leaves behind."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def expire(broker: Broker, topic: str, *, before: int, partition: int = 0) -> None:
    """What retention does: records below an offset are gone."""
    admin = broker.admin()  # a client that nobody holds takes its questions with it
    deleted = admin.delete_records([TopicPartition(topic, partition, before)])
    next(iter(deleted.values())).result(10)


def alter(broker: Broker, topic: str, settings: Mapping[str, str]) -> None:
    """Other settings of the topic, from now on."""
    admin, names = broker.admin(), admin_module
    entries = [
        names.ConfigEntry(name, value, incremental_operation=names.AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = names.ConfigResource(names.ResourceType.TOPIC, topic, incremental_configs=entries)
    next(iter(admin.incremental_alter_configs([resource]).values())).result(10)


def recreate(broker: Broker, topic: str, partitions: int = 1) -> None:
    """The same name, another topic."""
    admin = broker.admin()
    admin.delete_topics([topic])[topic].result(10)
    until(lambda: topic not in admin.list_topics(timeout=10).topics)
    broker.create_topic(topic, partitions)


def add_partitions(broker: Broker, topic: str, total: int) -> None:
    """More partitions than before."""
    admin = broker.admin()
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(10)
    until(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == total)


def until(happened: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for something that the broker does in its own time."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


def look(source: Kafka, mark: HWM[Any] | None = None, **request: Any) -> Sight:  # noqa: ANN401 (passed on)
    """What a look finds, without Spark."""
    return source.look(mark, Request(**request), no_session)


def no_session() -> SparkSession:
    raise AssertionError("a look at Kafka needs no Spark")


def upto(sight: Sight) -> object:
    """Where the mark will be."""
    assert sight.span is not None
    return sight.span.upto.value


def mark(topic: str, offsets: Mapping[int, int]) -> KeyValueIntHWM:
    """A mark of a source over this topic."""
    return KeyValueIntHWM("kafka", offsets, topic=topic)


def read(source: Kafka, spark: SparkSession, after: HWM[Any] | None = None, **request: Any) -> Reading:  # noqa: ANN401
    """What the next look finds, read."""
    span = look(source, after, **request).span
    assert span is not None
    return source.read(spark, span)


def values(reading: Reading, *columns: str) -> list[tuple[Any, ...]]:
    """What the step gives to the transform, in the source's order."""
    rows = reading.rows if reading.reason is None else reading.rows.where(reading.reason.isNull())
    assert reading.position is not None
    return [tuple(row) for row in rows.orderBy(reading.position).drop(*reading.hidden).select(*columns).collect()]

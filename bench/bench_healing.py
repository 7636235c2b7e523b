"""Healing a trivial function over 1,000,000 records: against a plain Spark read, and against one process that polls."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from timing import compare

import floodmark as fm
from floodmark.streams import from_kafka, healing
from floodmark.testing.servers import Broker, kafka_broker

if TYPE_CHECKING:
    import pyarrow as pa
    from run import Result

RECORDS = 1_000_000
POLLED = 200_000
"""The loop in one process is so much slower that a part of the records is enough to tell its speed."""
PARTITIONS = 4
FAST = {"kafka.max.poll.records": "20000", "kafka.max.partition.fetch.bytes": "10485760"}
FAST |= {"kafka.receive.buffer.bytes": "4194304", "kafka.isolation.level": "read_committed"}


def run() -> list[Result]:
    fm.spark_session({"spark.master": "local[2]", "spark.driver.memory": "4g"})
    with tempfile.TemporaryDirectory() as name, kafka_broker(Path(name) / "kafka") as kafka:
        fill(kafka, "many", RECORDS)
        fill(kafka, "some", POLLED)
        return [against_spark(kafka, Path(name)), against_one_process(kafka, Path(name))]


def fill(kafka: Broker, topic: str, records: int) -> None:
    kafka.create_topic(topic, PARTITIONS)
    rows = fm.spark_session().range(records).selectExpr("to_json(struct(id)) as value", f"id % {PARTITIONS} as p")
    rows = rows.selectExpr("value", "cast(p as int) as partition")
    rows.write.format("kafka").options(**{"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic}).save()


def same(row: object) -> object:
    return row


def healed(kafka: Broker, home: Path, topic: str, records: int) -> None:
    """The seed's own pipeline, to its commit."""
    group = {"bootstrap.servers": kafka.bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    source = from_kafka([topic], group, store=f"sqlite:///{home}/{uuid.uuid4().hex}.db")
    source.map(lambda row: row).sink(healing, stream=source)
    receipt = source.run_once()
    assert receipt.rows_written == {"healed": records}, receipt


def against_spark(kafka: Broker, home: Path) -> Result:
    def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    def plain(turn: int) -> None:
        common = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": "many", "startingOffsets": "earliest"}
        rows = fm.spark_session().read.format("kafka").options(**common, **FAST).load()
        rows.mapInArrow(identity, rows.schema).write.format("noop").mode("overwrite").save()

    of = f"{RECORDS:,} records, read and identity mapInArrow"
    name = "healing, against a plain read of Kafka with mapInArrow"
    return compare(name, plain, lambda turn: healed(kafka, home, "many", RECORDS), at_most=2.0, rounds=3, of=of)


def against_one_process(kafka: Broker, home: Path) -> Result:
    from confluent_kafka import Consumer, TopicPartition

    def polled(turn: int) -> None:
        """What streamz's from_kafka does, without the cost of its own graph: poll a record, run the function on it."""
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": uuid.uuid4().hex})
        consumer.assign([TopicPartition("some", number, 0) for number in range(PARTITIONS)])
        sink: list[object] = []
        while len(sink) < POLLED:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                uuid_of = {"topic": "some", "partition": message.partition(), "offset": message.offset()}
                sink.append(same((uuid_of, message.value())))
        consumer.close()

    of = f"{POLLED:,} records, one process that polls record by record"
    name = "healing, against a loop like streamz's"
    return compare(name, polled, lambda turn: healed(kafka, home, "some", POLLED), at_most=2.0, rounds=2, of=of)

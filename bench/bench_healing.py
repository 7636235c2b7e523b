"""Healing a trivial function over 1,000,000 records against a plain Spark read, and calls that wait side by side."""

from __future__ import annotations

import os
import tempfile
import time
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

RECORDS = int(os.environ.get("BENCH_RECORDS", "1000000"))
PARTITIONS = 4
WAITING, WAIT_SECONDS, AT_ONCE = 3200, 0.01, 64
FAST = {"kafka.max.poll.records": "20000", "kafka.max.partition.fetch.bytes": "10485760"}
FAST |= {"kafka.receive.buffer.bytes": "4194304", "kafka.isolation.level": "read_committed"}


def run() -> list[Result]:
    fm.spark_session({"spark.master": "local[2]", "spark.driver.memory": "4g"})
    with tempfile.TemporaryDirectory() as name, kafka_broker(Path(name) / "kafka") as kafka:
        fill(kafka, "many", RECORDS)
        fill(kafka, "few", WAITING, partitions=1)
        return [against_spark(kafka, Path(name)), side_by_side(kafka, Path(name))]


def fill(kafka: Broker, topic: str, records: int, partitions: int = PARTITIONS) -> None:
    kafka.create_topic(topic, partitions)
    rows = fm.spark_session().range(records).selectExpr("to_json(struct(id)) as value", f"id % {partitions} as p")
    rows = rows.selectExpr("value", "cast(p as int) as partition")
    rows.write.format("kafka").options(**{"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic}).save()


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
    return compare(name, plain, lambda turn: healed(kafka, home, "many", RECORDS), at_most=1.05, rounds=5, of=of)


def side_by_side(kafka: Broker, home: Path) -> Result:
    """A function that waits, on one partition: one call after the other, and 64 at once between scatter and gather."""

    def wait(row: tuple[object, bytes]) -> tuple[object, bytes]:
        time.sleep(WAIT_SECONDS)
        return row

    def heal(*, scattered: bool) -> None:
        group = {"bootstrap.servers": kafka.bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
        source = from_kafka(["few"], group, store=f"sqlite:///{home}/{uuid.uuid4().hex}.db")
        rows = source.scatter().map(wait).buffer(AT_ONCE).gather() if scattered else source.map(wait)
        rows.sink(healing, stream=source)
        assert source.run_once().rows_written == {"healed": WAITING}

    of = f"{WAITING:,} calls of 10 ms on one partition, {AT_ONCE} at once"
    return compare(
        "scatter, against one call after the other",
        lambda _: heal(scattered=False),
        lambda _: heal(scattered=True),
        at_most=0.05,
        rounds=3,
        of=of,
    )

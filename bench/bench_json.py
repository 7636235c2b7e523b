"""JSON from Kafka into Delta, judged while it is parsed, against plain PySpark's `from_json`; and many partitions."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from timing import compare

import floodmark as fm
from floodmark.testing.servers import Broker, kafka_broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from run import Result

ROWS, SOME, PARTITIONS = 1_000_000, 10_000, 1_000
SAME_OPTIONS = {"kafka.max.poll.records": "20000", "kafka.max.partition.fetch.bytes": "10485760"}
SAME_OPTIONS |= {"kafka.receive.buffer.bytes": "4194304", "kafka.isolation.level": "read_committed"}
"""Of the consumer, as our source has them."""
SCHEMA = "id long, customer string, amount double, placed_at timestamp"
MESSAGE = """concat('{"id": ', id, ', "customer": "c', id % 5000, '", "amount": ', id % 9973 / 100,
    ', "placed_at": "2026-11-15T12:00:00Z"}')"""


def run(rows: int = ROWS, partitions: int = PARTITIONS) -> list[Result]:
    fm.spark_session({"spark.master": "local[2]", "spark.driver.memory": "4g"})
    with tempfile.TemporaryDirectory() as name, kafka_broker(Path(name) / "kafka") as kafka:
        home = Path(name)
        small = some_messages(home, kafka)
        return [small, *all_columns(home, kafka, rows), many_partitions(home, kafka, partitions)]


def produce(kafka: Broker, topic: str, rows: int, partitions: int) -> None:
    kafka.create_topic(topic, partitions)
    spark = fm.spark_session()
    messages = spark.range(0, rows, 1, 2).selectExpr(
        "cast(id as string) as key", f"{MESSAGE} as value", f"cast(id % {partitions} as int) as partition"
    )
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic}
    messages.write.format("kafka").options(**options).save()


def plain_rows(kafka: Broker, topic: str, more: Mapping[str, str] | None = None) -> DataFrame:
    from pyspark.sql import functions as F

    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    options |= more or {}
    messages = fm.spark_session().read.format("kafka").options(**options).load()
    return messages.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row")).select("row.*")


def run_job(kafka: Broker, topic: str, home: Path, rows: int, columns: Sequence[str] | None = None) -> None:
    own = {} if columns is None else {"columns": columns}
    source = fm.sources.Kafka(kafka.bootstrap, topic, value={"format": "json", "schema": SCHEMA}, **own)
    name = uuid.uuid4().hex
    job = fm.Job(name=name, source=source, sinks=[fm.sinks.Delta(f"{home}/{name}")], dead_letters=f"{home}/{name}-dead")
    receipt = job.run(fm.spark_session(), fm.stores.open(f"sqlite:///{name}.db", folder=home))
    assert receipt.rows_written == {"delta": rows}, receipt


def some_messages(home: Path, kafka: Broker) -> Result:
    """A batch of a busy loop, with our default columns."""
    produce(kafka, "some", SOME, 4)

    def plain(turn: int) -> None:
        rows = plain_rows(kafka, "some", SAME_OPTIONS)
        rows.write.format("delta").mode("overwrite").save(f"{home}/some-{turn}")

    return compare(
        "JSON from Kafka to Delta, 10,000 messages",
        plain,
        lambda _: run_job(kafka, "some", home, SOME),
        at_most=1.2,
        rounds=7,
        of=f"{SOME:,} messages, dead letters on; plain from_json with the same consumer options",
    )


def all_columns(home: Path, kafka: Broker, rows: int) -> list[Result]:
    produce(kafka, "json", rows, 4)

    def plain(turn: int) -> None:
        plain_rows(kafka, "json").write.format("delta").mode("overwrite").save(f"{home}/plain-{turn}")

    of = f"{rows:,} messages, dead letters on; plain from_json with the connector's defaults"
    same = compare(
        "JSON from Kafka to Delta, the same columns",
        plain,
        lambda _: run_job(kafka, "json", home, rows, ()),
        at_most=0.85,
        rounds=3,
        of=of,
    )
    default = compare(
        "JSON from Kafka to Delta, with our default columns",
        plain,
        lambda _: run_job(kafka, "json", home, rows),
        at_most=1.0,
        rounds=3,
        of=of,
    )
    return [same, default]


def many_partitions(home: Path, kafka: Broker, partitions: int) -> Result:
    produce(kafka, "many", partitions, partitions)
    return compare(
        "many partitions with one message each",
        lambda turn: plain_rows(kafka, "many").write.format("delta").mode("overwrite").save(f"{home}/many-{turn}"),
        lambda _: run_job(kafka, "many", home, partitions),
        at_most=0.5,
        rounds=3,
        of=f"{partitions:,} partitions",
    )

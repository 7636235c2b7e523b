"""Kafka, both ways, on 1,000,000 rows, each against Spark's own way of doing it in the same session."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from timing import compare

import floodmark as fm
from floodmark.testing.servers import Broker, kafka_broker

if TYPE_CHECKING:
    from run import Result

ROWS = 1_000_000
FAST = {"kafka.max.poll.records": "20000", "kafka.max.partition.fetch.bytes": "10485760"}
FAST |= {"kafka.receive.buffer.bytes": "4194304", "kafka.isolation.level": "read_committed"}


def job_of(source: object, sink: object, home: Path, name: str) -> None:
    spark = fm.spark_session()
    job = fm.Job(name=name.replace("/", "-"), source=source, sinks=[sink])  # type: ignore[arg-type]
    receipt = job.run(spark, fm.stores.open(f"sqlite:///{uuid.uuid4().hex}.db", folder=home))
    assert list(receipt.rows_written.values()) == [ROWS], receipt


def run() -> list[Result]:
    spark = fm.spark_session({"spark.master": "local[2]", "spark.driver.memory": "4g"})
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        columns = [
            "id",
            "concat('customer ', id % 5000) as customer",
            "cast(id % 9973 / 100 as decimal(10,2)) as amount",
        ]
        spark.range(ROWS).selectExpr(*columns, "timestamp'2026-11-15 12:00:00' as placed_at").write.parquet(
            f"{home}/in"
        )
        with kafka_broker(home / "kafka") as kafka:
            return [*to_kafka(home, kafka), *from_kafka(home, kafka)]


def to_kafka(home: Path, kafka: Broker) -> list[Result]:
    spark = fm.spark_session()

    def plain(turn: int) -> None:
        kafka.create_topic(f"plain-{turn}", 4)
        rows = spark.read.parquet(f"{home}/in").selectExpr("cast(id as string) as key", "to_json(struct(*)) as value")
        rows.write.format("kafka").options(
            **{"kafka.bootstrap.servers": kafka.bootstrap, "topic": f"plain-{turn}"}
        ).save()

    def ours(turn: int) -> None:
        kafka.create_topic(f"ours-{turn}", 4)
        source = fm.sources.Files(f"{home}/in", format="parquet", settle=0)
        job_of(source, fm.sinks.Kafka(kafka.bootstrap, f"ours-{turn}", key="id"), home, f"to-kafka-{turn}")

    return [
        compare(
            "to Kafka, against Spark's at-least-once sink", plain, ours, at_most=1.25, rounds=3, of=f"{ROWS:,} rows"
        )
    ]


def from_kafka(home: Path, kafka: Broker) -> list[Result]:
    spark = fm.spark_session()

    def plain(turn: int, **options: str) -> None:
        common = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": "plain-0", "startingOffsets": "earliest"}
        reader = spark.read.format("kafka").options(**common, **options)
        reader.load().write.format("delta").mode("overwrite").save(f"{home}/plain-kafka-{turn}")

    def ours(turn: int) -> None:
        source = fm.sources.Kafka(kafka.bootstrap, "plain-0")
        job_of(source, fm.sinks.Delta(f"{home}/ours-kafka-{uuid.uuid4().hex}"), home, f"from-kafka-{turn}")

    tuned = compare(
        "Kafka to Delta", lambda n: plain(n, **FAST), ours, at_most=1.10, rounds=3, of="same consumer options"
    )
    bare = compare(
        "Kafka to Delta, against Spark's defaults", plain, ours, at_most=1.00, rounds=3, of="default options"
    )
    return [tuned, bare]

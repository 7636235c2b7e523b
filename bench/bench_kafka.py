"""Kafka, both ways, on 1,000,000 rows, each against Spark's own way of doing it; and a table of PostgreSQL into it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from timing import compare

import floodmark as fm
from floodmark.testing.servers import Broker, kafka_broker, postgres_server

if TYPE_CHECKING:
    from run import Result

ROWS = 1_000_000
COPYING = Path(__file__).with_name("copying_reference.py")
ORDERS = "select id, 'customer ' || id % 5000 as customer, (id % 9973) / 100.0 as amount, now() as placed_at"
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
            results = [*to_kafka(home, kafka), *from_kafka(home, kafka)]
            with postgres_server(home / "pg") as postgres:
                return [*results, from_postgres(home, kafka, postgres.create_database())]


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
        compare("to Kafka, against Spark's at-least-once sink", plain, ours, at_most=1.0, rounds=3, of=f"{ROWS:,} rows")
    ]


def from_postgres(home: Path, kafka: Broker, database: str) -> Result:
    """Against one Python process that copies the table and produces its rows as JSON, without any mark."""
    with psycopg.connect(database) as connection:
        connection.execute(f"create table orders as {ORDERS} from generate_series(1, {ROWS}) as id")
        connection.execute("alter table orders alter amount type numeric(10,2), add primary key (id)")

    def plain(turn: int) -> None:
        kafka.create_topic(f"copied-{turn}", 4)
        command = [sys.executable, str(COPYING), database, kafka.bootstrap, f"copied-{turn}"]
        subprocess.run(command, check=True)

    def ours(turn: int) -> None:
        kafka.create_topic(f"read-{turn}", 4)
        source = fm.sources.Postgres(database, table="orders", cursor="id")
        job_of(source, fm.sinks.Kafka(kafka.bootstrap, f"read-{turn}", key="id"), home, f"pg-to-kafka-{turn}")

    of = f"{ROWS:,} rows, one Python process that copies and produces as reference"
    return compare("PostgreSQL to Kafka", plain, ours, at_most=0.7, rounds=3, of=of)


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

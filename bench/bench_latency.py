"""A loop over a PostgreSQL table: how long a row is on its way to a Kafka consumer."""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from confluent_kafka import Consumer, TopicPartition
from run import Result

from floodmark.testing.servers import kafka_broker, postgres_server

if TYPE_CHECKING:
    from collections.abc import Iterator

WARM, MEASURED = 3, 30
TOPIC = "orders"
PROJECT = """
store: ${PG_URL}
spark: {master: "local[2]"}
jobs:
  - name: orders
    source: {type: postgres, url: "${PG_URL}", table: orders, cursor: id}
    sinks: [{type: kafka, bootstrap: "${KAFKA}", topic: orders, key: id, create: {partitions: 3}}]
"""


def run() -> list[Result]:
    with tempfile.TemporaryDirectory() as name, postgres_server(Path(name) / "pg") as postgres:
        home = Path(name)
        with kafka_broker(home / "kafka") as kafka:
            return [latency(postgres.create_database(), kafka.bootstrap, home)]


def latency(database: str, bootstrap: str, home: Path) -> Result:
    """From the commit of a row to its arrival at a consumer that reads what is committed."""
    (home / "floodmark.yaml").write_text(PROJECT)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table orders (id bigserial primary key, customer text)")
        insert(connection)
        with loop_process(home, PG_URL=database, KAFKA=bootstrap), closing(consumer_of(bootstrap)) as consumer:
            seconds = [way_of_a_row(connection, consumer) for _ in range(WARM + MEASURED)][WARM:]
    p95 = statistics.quantiles(seconds, n=20)[-1]
    detail = f"run --loop --every 1s, {MEASURED} rows at random moments, p95 {p95:.2f} s, slowest {max(seconds):.2f} s"
    return Result("row inserted to readable in Kafka, median s", statistics.median(seconds), 1.0, detail)


def insert(connection: psycopg.Connection) -> None:
    connection.execute("insert into orders (customer) values ('a customer')")


@contextmanager
def loop_process(home: Path, **environment: str) -> Iterator[None]:
    command = [sys.executable, "-m", "floodmark.cli", "--project", str(home / "floodmark.yaml")]
    process = subprocess.Popen([*command, "run", "--loop", "--every", "1s"], env={**os.environ, **environment})
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, "the loop failed"


def consumer_of(bootstrap: str) -> Consumer:
    """At the end of the topic once the first row is there: the loop makes the topic and starts Spark for it."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "isolation.level": "read_committed"}
    )
    while TOPIC not in consumer.list_topics(timeout=10).topics:
        time.sleep(0.2)
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(3)])
    await_row(consumer)
    return consumer


def way_of_a_row(connection: psycopg.Connection, consumer: Consumer) -> float:
    time.sleep(random.uniform(0.2, 1.2))  # noqa: S311 - only to meet the loop at any moment
    insert(connection)
    begun = time.monotonic()
    await_row(consumer)
    return time.monotonic() - begun


def await_row(consumer: Consumer) -> None:
    deadline = time.monotonic() + 120
    while (message := consumer.poll(0.5)) is None or message.error():
        assert time.monotonic() < deadline, "no row arrived"

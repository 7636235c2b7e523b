"""Feeding the relay, having it killed, and reading back what every sink holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from tests.crash import relay as program
from tests.crash.killing import ids_in_files, ids_in_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from floodmark.testing.servers import Broker, Server
    from tests.crash.relay import Relay


def relay_from(source: str, home: Path, kafka: Broker, postgres: Server) -> Relay:
    """A relay with topics and a database of its own."""
    topic_in, topic_out = (f"{way}-{uuid.uuid4().hex[:8]}" for way in ("in", "out"))
    kafka.create_topic(topic_in, 2)
    kafka.create_topic(topic_out, 3)
    relay = program.Relay(str(home), source, kafka.bootstrap, postgres.create_database(), topic_in, topic_out)
    execute(relay, "create table public.src (id bigint primary key, v text)")
    relay.save()
    return relay


def execute(relay: Relay, statement: str, rows: list[tuple[object, ...]] | None = None) -> list[tuple[object, ...]]:
    import psycopg

    with psycopg.connect(relay.database) as connection, connection.cursor() as cursor:
        if rows is None:
            cursor.execute(statement)
        else:
            cursor.executemany(statement, rows)
        return cursor.fetchall() if cursor.description else []


def feed(relay: Relay, ids: range) -> None:
    """New rows in the relay's source."""
    {"files": feed_files, "kafka": feed_kafka, "postgres": feed_postgres}[relay.source](relay, ids)


def feed_files(relay: Relay, ids: range) -> None:
    folder = Path(relay.home) / "in"
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{ids.start}"
    hidden.write_text("".join(json.dumps({"id": i, "v": f"v{i}"}) + "\n" for i in ids))
    hidden.rename(folder / f"{ids.start:06d}.jsonl")


def feed_kafka(relay: Relay, ids: range) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": relay.bootstrap})
    for i in ids:
        producer.produce(relay.topic_in, json.dumps({"id": i, "v": f"v{i}"}).encode(), key=str(i).encode())
    assert producer.flush(20) == 0


def feed_postgres(relay: Relay, ids: range) -> None:
    execute(relay, "insert into public.src values (%s, %s)", [(i, f"v{i}") for i in ids])


def start(relay: Relay, **environment: str) -> subprocess.Popen[bytes]:
    """One run in a process group of its own."""
    command = [sys.executable, "-m", "tests.crash.relay", relay.home]
    root = Path(program.__file__).parents[2]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    return subprocess.Popen(command, env={**os.environ, **environment}, cwd=root, **quiet)


def ids_in_topic(relay: Relay) -> list[int]:
    """Every id that a consumer with read_committed sees, from the beginning to the last stable offset."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": relay.bootstrap, "group.id": uuid.uuid4().hex, "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "auto.offset.reset": "earliest"})
    partitions = list(consumer.list_topics(relay.topic_out, 10).topics[relay.topic_out].partitions)
    consumer.assign([TopicPartition(relay.topic_out, partition, 0) for partition in partitions])
    found: list[int] = []
    ended: set[int] = set()
    while len(ended) < len(partitions):
        message = consumer.poll(20)
        assert message is not None
        if message.error():
            ended.add(message.partition())
        else:
            found.append(json.loads(message.value())["id"])
    consumer.close()
    return sorted(found)


def held(spark: SparkSession, relay: Relay) -> dict[str, list[int]]:
    """The ids that each sink holds, read back from the sink itself."""
    home = Path(relay.home)
    readers: dict[str, Callable[[], list[int]]] = {
        "lake": lambda: ids_in_table(spark, home / "lake"),
        "events": lambda: ids_in_topic(relay),
        "mart": lambda: sorted(int(str(row[0])) for row in execute(relay, "select id from public.mart")),
        "out": lambda: ids_in_files(home / "out"),
    }
    return {sink: read() for sink, read in readers.items() if relay.only in (None, sink)}

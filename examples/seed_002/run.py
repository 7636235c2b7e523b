"""Seed 002, whole: a table that is polled for ever, a mark in memory and PostgreSQL, a console and a topic.

`make example-002` starts a PostgreSQL server and a Kafka broker, starts the loop, inserts rows while it runs, stops it
politely, and then shows what arrived in the topic and what the mark's table says.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import psycopg
from confluent_kafka import Consumer, TopicPartition

from floodmark.testing.servers import kafka_broker, postgres_server

HERE = Path(__file__).parent
ROUNDS, ROWS_PER_ROUND = 5, 3
TABLE = "create schema cms; create table cms.content_notification_status (seq bigserial primary key, content text)"


def insert(connection: psycopg.Connection, count: int) -> None:
    for _ in range(count):
        connection.execute(
            "insert into cms.content_notification_status (content) values (%s)", [f"at {time.time():.2f}"]
        )
    connection.commit()


def start_loop(environment: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "floodmark.cli", "--project", str(HERE / "floodmark.yaml"), "run", "--loop"]
    return subprocess.Popen(command, env={**os.environ, **environment}, text=True)


def wait_for_mark(connection: psycopg.Connection, seq: int, seconds: float = 120) -> None:
    """Until the mark's own table says that the loop has come so far."""
    deadline = time.monotonic() + seconds
    mark = "select max((val #>> '{marks,postgres,value}')::bigint) from rpcn_connect_state"
    while time.monotonic() < deadline:
        [(is_there,)] = connection.execute("select to_regclass('rpcn_connect_state') is not null").fetchall()
        [(reached,)] = connection.execute(mark).fetchall() if is_there else [(None,)]
        connection.commit()
        if reached is not None and reached >= seq:
            return
        time.sleep(0.2)
    raise SystemExit(f"the loop did not come to seq {seq} within {seconds:g} s; what it said stands above")


def arrived(bootstrap: str) -> list[dict[str, object]]:
    """Everything in the topic, as a consumer with read_committed sees it."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    partitions = list(consumer.list_topics("content_delta", 10).topics["content_delta"].partitions)
    consumer.assign([TopicPartition("content_delta", partition, 0) for partition in partitions])
    rows, open_partitions = [], len(partitions)
    while open_partitions:
        message = consumer.poll(10)
        if message is None or message.error():
            open_partitions -= 1
        else:
            rows.append(json.loads(message.value()))
    consumer.close()
    return rows


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        print("starting PostgreSQL and Kafka …", flush=True)
        with postgres_server(Path(folder, "pg")) as postgres, kafka_broker(Path(folder, "kafka")) as kafka:
            return story(postgres.create_database(), kafka.bootstrap)


def story(database: str, bootstrap: str) -> int:
    with psycopg.connect(database) as connection:
        connection.execute(TABLE)
        insert(connection, ROWS_PER_ROUND)
        print("the loop starts; rows are inserted while it runs; what it prints is its console sink", flush=True)
        loop = start_loop({"PG_URL": database, "KAFKA": bootstrap})
        for turn in range(1, ROUNDS):
            wait_for_mark(connection, turn * ROWS_PER_ROUND)
            insert(connection, ROWS_PER_ROUND)
        wait_for_mark(connection, ROUNDS * ROWS_PER_ROUND)
        loop.send_signal(signal.SIGTERM)
        code = loop.wait(60)
        rows = arrived(bootstrap)
        [(mark, number)] = connection.execute("select val, number from rpcn_connect_state").fetchall()
    expected = list(range(1, ROUNDS * ROWS_PER_ROUND + 1))
    print(f"\nthe loop ended with {code}; in the topic: seq {sorted(int(str(row['seq'])) for row in rows)}")
    print(f"select val, number from rpcn_connect_state: batch {number}, {json.dumps(mark['marks'])}")
    good = code == 0 and sorted(int(str(row["seq"])) for row in rows) == expected
    print("every row once" if good else f"expected {expected}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

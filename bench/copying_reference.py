"""A table copied from PostgreSQL and produced as JSON by one process, without a mark: `URL SERVERS TOPIC`."""

from __future__ import annotations

import json
import sys

import psycopg
from confluent_kafka import Producer

COLUMNS = ("id", "customer", "amount", "placed_at")


def main(database: str, bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    statement = f"COPY (SELECT {', '.join(COLUMNS)} FROM orders) TO STDOUT"
    with psycopg.connect(database) as connection, connection.cursor().copy(statement) as copy:
        copy.set_types(["int8", "text", "numeric", "timestamptz"])
        for number, row in enumerate(copy.rows()):
            value = json.dumps(dict(zip(COLUMNS, row, strict=True)), default=str)
            produce(producer, topic, str(row[0]), value)
            if number % 10_000 == 0:
                producer.poll(0)
    assert producer.flush(120) == 0


def produce(producer: Producer, topic: str, key: str, value: str) -> None:
    """A full queue is waited for."""
    while True:
        try:
            return producer.produce(topic, value, key)
        except BufferError:
            producer.poll(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:4])

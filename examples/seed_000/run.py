"""Seed 000, whole: the offsets of a Kafka topic as a mark. Three partitions grow, and only what is new is read.

`make example-000` starts a broker, fills the topic, runs the job twice, and shows the mark before and after.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from confluent_kafka import Producer

import floodmark as fm
from floodmark.hwm import KeyValueIntHWM
from floodmark.testing.servers import kafka_broker


def produce(bootstrap: str, messages: dict[int, int]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition, count in messages.items():
        for number in range(count):
            producer.produce("orders", f"message {number}".encode(), partition=partition)
    producer.flush()


def run_etl_process(hwm: KeyValueIntHWM, job: fm.Job, store: fm.stores.MarkStore) -> KeyValueIntHWM:
    """Read what lies above the mark; the mark that it reached is a new value, the old one stays as it was."""
    receipt = job.run(fm.spark_session({"spark.master": "local[2]"}), store)
    print(f"read {receipt.rows_read} messages, mark {receipt.mark_before} -> {receipt.mark_after}")
    return hwm.update(receipt.mark_after)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, kafka_broker(Path(folder, "kafka")) as kafka:
        kafka.create_topic("orders", 3)
        job = fm.Job(
            name="orders",
            source=fm.sources.Kafka(kafka.bootstrap, "orders", value="text"),
            sinks=[fm.sinks.Delta(f"{folder}/lake")],
        )
        store = fm.stores.open("sqlite:///marks.db", folder=Path(folder))
        produce(kafka.bootstrap, {0: 100, 1: 150, 2: 200})
        hwm = run_etl_process(KeyValueIntHWM("orders", topic="orders"), job, store)
        assert hwm.value == {0: 100, 1: 150, 2: 200}
        produce(kafka.bootstrap, {0: 10, 1: 5})
        hwm = run_etl_process(hwm, job, store)
        assert hwm.value == {0: 110, 1: 155, 2: 200}
        print(f"the mark: {hwm.show()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

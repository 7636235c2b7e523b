"""Seed 000 as its page has it, with the import line changed: the mark changes in place, and a real batch moves it.

`make example-000` runs `run.py`, where marks are values; this is the same story for whoever comes from etl-entities.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from confluent_kafka import Producer

import floodmark as fm
from floodmark.compat.etl_entities.hwm import KeyValueIntHWM
from floodmark.testing.servers import kafka_broker


def produce(bootstrap: str, messages: dict[int, int]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition, count in messages.items():
        for number in range(count):
            producer.produce("orders", f"message {number}".encode(), partition=partition)
    producer.flush()


def run_etl_process(hwm: KeyValueIntHWM, new_batch_data: fm.Job, store: fm.stores.MarkStore) -> None:
    """Read what lies above the mark, and raise the caller's mark."""
    receipt = new_batch_data.run(fm.spark_session({"spark.master": "local[2]"}), store)
    print(f"read {receipt.rows_read} messages, mark {receipt.mark_before} -> {receipt.mark_after}")
    hwm.update(receipt.mark_after)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, kafka_broker(Path(folder, "kafka")) as kafka:
        kafka.create_topic("orders", 3)
        job = fm.Job(
            name="orders",
            source=fm.sources.Kafka(
                kafka.bootstrap, "orders", value="text", start={0: 100, 1: 150, 2: 200}, columns=["partition", "offset"]
            ),
            sinks=[fm.sinks.Delta(f"{folder}/lake")],
        )
        store = fm.stores.open("sqlite:///marks.db", folder=Path(folder))
        produce(kafka.bootstrap, {0: 110, 1: 155, 2: 200})

        initial_offsets = {
            0: 100,  # Partition 0 offset 100
            1: 150,  # Partition 1 offset 150
            2: 200,  # Partition 2 offset 200
        }

        # Creating an instance of KeyValueIntHWM with initial offsets
        hwm = KeyValueIntHWM(value=initial_offsets, name="orders", topic="orders")

        # Running some ETL process, which updates the HWM value after finish
        run_etl_process(hwm, job, store)

        # HWM values after running the ETL process
        assert hwm.value == {0: 110, 1: 155, 2: 200}
        print(f"the mark: {hwm.value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

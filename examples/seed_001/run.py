"""Seed 001, whole: its two stories and its four examples at their own numbers, on a real broker.

`make example-001` starts a broker and prints, for each of them, what was healed and where the marks are. The examples
are programs for water-healer with their import line changed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

import floodmark as fm
from floodmark.errors import RecordsFailed
from floodmark.streams import Stream, from_kafka, healing
from floodmark.testing.servers import Broker, kafka_broker

HERE = Path(__file__).parent
PATIENCE_SECONDS = 120


def produce(kafka: Broker, topic: str, values: list[object]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    partitions = len(producer.list_topics(topic).topics[topic].partitions)
    for number, value in enumerate(values):
        producer.produce(topic, json.dumps(value).encode(), partition=number % partitions)
        time.sleep(0.002)  # batches gather over all partitions, in the order of time
    producer.flush()


def committed(kafka: Broker, group: str, topic: str, partitions: int = 1) -> dict[int, int]:
    """The group's offsets in Kafka, as every lag tool sees them."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    try:
        found = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], timeout=20)
    finally:
        consumer.close()
    return {each.partition: each.offset for each in found if each.offset >= 0}


def heal(source: Stream, kafka: Broker, group: str, topic: str, seen: list[dict[str, object]]) -> None:
    seen.clear()
    try:
        source.run_once()
    except RecordsFailed as failed:
        print(f"  {failed}")
    print(f"  healed {[result['data'] for result in seen]}, committed {committed(kafka, group, topic)}")


def failure_at_three(kafka: Broker, settings: Callable[[str], dict[str, object]], switch: Path) -> None:
    """One partition holds 1, 2, 3, 4. At 3 the function fails: the next run begins there, and 4 is not run again."""
    print("a failure at 3:")
    kafka.create_topic("test", 1)
    produce(kafka, "test", [1, 2, 3, 4])

    def plus_one(row: tuple[object, bytes]) -> tuple[object, int]:
        number = json.loads(row[1])
        if number == 3 and not switch.exists():
            raise ValueError("row is 3!")
        return row[0], number + 1

    source = from_kafka(["test"], **settings("group"))
    seen = source.map(plus_one).map(healing, stream=source).sink_to_list()
    heal(source, kafka, "group", "test", seen)
    assert committed(kafka, "group", "test") == {0: 2}
    switch.touch()
    print("  the function is fixed")
    heal(source, kafka, "group", "test", seen)
    assert committed(kafka, "group", "test") == {0: 4}


def three_workers_out_of_order(kafka: Broker, settings: Callable[[str], dict[str, object]], switch: Path) -> None:
    """Three workers, 5, 2 and 1 seconds: the last record is done first, the first fails last, and the mark waits."""
    print("three workers, out of order:")
    kafka.create_topic("events", 1)
    produce(kafka, "events", [1, 2, 3])
    switch.unlink()

    def foo(row: tuple[object, bytes]) -> tuple[object, int]:
        number = json.loads(row[1])
        time.sleep({1: 5, 2: 2, 3: 1}[number])
        if number == 1 and not switch.exists():
            raise TimeoutError("the event did not come")
        return row[0], number

    source = from_kafka(["events"], **settings("workers"))
    seen = source.scatter().map(foo).buffer(3).gather().map(healing, stream=source).sink_to_list()
    begun = time.monotonic()
    heal(source, kafka, "workers", "events", seen)
    print(f"  5, 2 and 1 seconds of work took {time.monotonic() - begun:.1f} s")
    assert committed(kafka, "workers", "events") in ({}, {0: 0})
    switch.touch()
    print("  the event comes")
    heal(source, kafka, "workers", "events", seen)
    assert committed(kafka, "workers", "events") == {0: 3}


def wait_for_first_turn(group: str, folder: Path) -> None:
    """Until the script has taken all that is there: its first turn is committed then, beside its marks."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with closing(fm.stores.open("sqlite:///floodmark.db", folder=folder)) as store:
        while time.monotonic() < deadline:
            record = store.read(group)
            if record is not None and record.number:
                return
            time.sleep(0.2)
    raise TimeoutError(f"{group} took nothing within {PATIENCE_SECONDS} s")


def script(
    kafka: Broker, name: str, records: int, folder: Path, *, healed: int, expected: dict[int, int], stuck: bool = True
) -> None:
    """A plain script over a topic of its own, in ten partitions. One that is stuck exits 1; else Ctrl-C ends it."""
    group = topic = name.replace("_", "-")
    print(f"{name}.py:")
    kafka.create_topic(topic, 10)
    produce(kafka, topic, [{"no": number} for number in range(records)])
    with subprocess.Popen(
        [sys.executable, str(HERE / f"{name}.py"), kafka.bootstrap, topic],
        cwd=folder,
        stdout=subprocess.PIPE,
        env={**os.environ, "FLOODMARK_LOG": "warning"},
        text=True,
    ) as running:
        if not stuck:
            wait_for_first_turn(group, folder)
            running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=PATIENCE_SECONDS)
    results = [line for line in out.splitlines() if line.startswith("{'data'")]
    print(*(f"  {line}" for line in results[:3]), f"  … {len(results)} results of {records} records", sep="\n")
    print(f"  exit {running.returncode}, committed {committed(kafka, group, topic, 10)}")
    assert (len(results), running.returncode) == (healed, 1 if stuck else 0)
    assert committed(kafka, group, topic, 10) == expected


def main() -> int:
    with tempfile.TemporaryDirectory() as name, kafka_broker(Path(name, "kafka")) as kafka:
        folder = Path(name)
        spark = fm.spark_session({"spark.master": "local[2]"})
        store = fm.stores.open("sqlite:///marks.db", folder=folder)

        def settings(group: str) -> dict[str, object]:
            options = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
            return {"consumer_params": options, "store": store, "spark": spark}

        failure_at_three(kafka, settings, folder / "fixed")
        three_workers_out_of_order(kafka, settings, folder / "fixed")
        spark.stop()
        after_one, after_five = dict.fromkeys(range(10), 1), dict.fromkeys(range(10), 5)
        script(kafka, "simple_plus_element", 14, folder, healed=13, expected={**after_one, 0: 2, 1: 2, 2: 2})
        script(kafka, "simple_plus_batch", 14, folder, healed=10, expected=after_one)
        script(kafka, "simple_plus_nested_batch", 60, folder, healed=50, expected=after_five)
        script(kafka, "kafka_batched", 100, folder, healed=100, expected=dict.fromkeys(range(10), 10), stuck=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Brokers that die, come back, hand over their lead, or are not ready yet, while a run writes into them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from floodmark.testing.servers import kafka_broker
from tests.faults.brokers import three_brokers
from tests.faults.orders import Orders, await_that, ids_in_topic
from tests.proofs import Prove

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

ROWS = list(range(3000))
JOB = """
import floodmark as fm
from floodmark.jobs import Retries
from flow import shape

events = fm.sinks.Kafka({bootstrap!r}, "orders", key="id", name="events", chunk_rows=20)
job = fm.Job(
    "orders",
    fm.sources.Files("in", schema="id long", settle=0),
    [events, fm.sinks.Delta("lake", name="lake")],
    transform=shape,
    spool="spool",
    retries=Retries(attempts=5, backoff_seconds=1.0),
)
"""
"""In Python, where small chunks can be asked for: a transaction for every twenty rows."""


def orders_into(bootstrap: str, home: Path, ids: range) -> Orders:
    """The project, its job in Python, and a file of orders."""
    orders = Orders(home)
    (home / "relay.py").write_text(JOB.format(bootstrap=bootstrap))
    spark = "spark: {master: 'local[2]', driver.memory: 1g}"
    (home / "floodmark.yaml").write_text(f"store: sqlite:///marks.db\n{spark}\njobs: {{python: 'relay:job'}}\n")
    orders.deliver(ids)
    return orders


def messages_in(bootstrap: str, topic: str) -> int:
    """How far its partitions go by now, committed or not."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "counting", "log_level": 0})
    try:
        partitions = consumer.list_topics(topic, 5).topics[topic].partitions
        return sum(consumer.get_watermark_offsets(TopicPartition(topic, each), 5)[1] for each in partitions)
    except KafkaException:
        return 0
    finally:
        consumer.close()


def test_a_broker_that_is_killed_in_a_write_and_comes_back(tmp_path: Path, prove: Prove) -> None:
    """The writer waits for it, or the next attempt goes on behind the last chunk that the broker has."""
    with kafka_broker(tmp_path / "kafka") as broker:
        broker.create_topic("orders", 3)
        orders = orders_into(broker.bootstrap, tmp_path / "project", range(3000))
        process = orders.start()
        await_that(lambda: messages_in(broker.bootstrap, "orders") > 100, process, orders.home / "run.log")
        broker.kill()
        time.sleep(5)
        broker.start()
        ended = orders.end_of(process)
        assert ended.exit_code == 0, ended.output
        assert ids_in_topic(broker.bootstrap, "orders") == ROWS
        assert orders.ids_in_lake() == ROWS
        broker.kill()
    prove("the broker is killed in a write, and started after 5 s", ended.message, "every row once in topic and table")


def test_a_leader_that_dies_in_a_write(tmp_path: Path, prove: Prove) -> None:
    """Of three brokers: another one leads, and has all that was acknowledged, transactions included."""
    with three_brokers(tmp_path / "kafka") as brokers:
        brokers.create_topic("orders", 3)
        orders = orders_into(brokers.bootstrap, tmp_path / "project", range(3000))
        process = orders.start()
        await_that(lambda: messages_in(brokers.bootstrap, "orders") > 100, process, orders.home / "run.log")
        before = brokers.leader("orders", 0)
        brokers.kill(before)
        ended = orders.end_of(process)
        assert ended.exit_code == 0, ended.output
        assert brokers.leader("orders", 0) != before
        assert ids_in_topic(brokers.bootstrap, "orders") == ROWS
        assert orders.ids_in_lake() == ROWS
    prove("of three brokers the leader dies in a write", ended.message, "every row once in topic and table")


def test_a_broker_that_has_no_coordinator_yet(tmp_path: Path, prove: Prove) -> None:
    """The first client of a new broker: its topics for groups and transactions are only made by being asked for."""
    with kafka_broker(tmp_path / "kafka") as broker:
        broker.create_topic("orders", 3)
        orders = orders_into(broker.bootstrap, tmp_path / "project", range(500))
        ended = orders.run()
        assert ended.exit_code == 0, ended.output
        assert ids_in_topic(broker.bootstrap, "orders") == list(range(500))
        broker.kill()
    prove("the broker is new, and has no group coordinator yet", ended.message, "every row once in the topic")

"""What is known about a cluster without reading a record, and how options reach two clients without being shown."""

from __future__ import annotations

import sys
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from floodmark.errors import ConfigError, SourceUnreadable
from floodmark.probes.kafka import KafkaProbe, PartitionBounds, Topic, similar_topics
from floodmark.probes.kafka.client import KafkaOptions
from floodmark.probes.kafka.group import GroupOffsets
from floodmark.sinks import Kafka as KafkaSink
from floodmark.sources import Kafka
from floodmark.sources.contract import Request
from floodmark.testing.servers import Broker, kafka_broker
from tests.sources.kafka.topics import commit_offset, no_session, open_transaction, put, recreate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "app", "sasl.password": 'p"w\\1'}


@contextmanager
def without_driver() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "confluent_kafka", None)
        yield


def test_the_bounds_of_a_partition_end_at_its_last_committed_record(kafka: Broker, topic: Callable[..., str]) -> None:
    """What an open transaction has written is there, but nobody may read it yet, nor anything behind it."""
    name, probe = topic(2), KafkaProbe(KafkaOptions(kafka.bootstrap))
    put(kafka, name, "a", "b")
    with open_transaction(kafka, name, "c") as transaction:
        put(kafka, name, "d")
        found = probe.bounds(probe.topics([name]).values())
        transaction.abort_transaction(10)
    assert found == {(name, 0): PartitionBounds(0, 2, 4), (name, 1): PartitionBounds(0, 0, 0)}


def test_a_topic_that_was_made_anew_has_another_id(kafka: Broker, topic: Callable[..., str]) -> None:
    """Names come back; ids do not."""
    name, probe = topic(), KafkaProbe(KafkaOptions(kafka.bootstrap))
    before = probe.topics([name])[name]
    recreate(kafka, name)
    assert probe.topics([name])[name].id != before.id


def test_the_offsets_of_a_group_are_those_that_it_committed(kafka: Broker, topic: Callable[..., str]) -> None:
    """A partition of which the group has committed nothing is left out."""
    name, probe = topic(2), KafkaProbe(KafkaOptions(kafka.bootstrap))
    put(kafka, name, "a", "b", "c")
    commit_offset(kafka, name, group=f"{name}-group", offset=2)
    assert probe.group_offsets(f"{name}-group", probe.topics([name]).values()) == {(name, 0): 2}


@pytest.mark.server
def test_a_broker_that_has_never_had_a_group_is_asked_for_one(tmp_path: Path) -> None:
    """Its coordinator is made by the question: the admin client of librdkafka ended the process meanwhile.

    The same for who asks where a first run begins, for what a sink has, and for who publishes the first offsets.
    """
    with kafka_broker(tmp_path) as fresh:
        fresh.create_topic("orders", 2)
        probe = KafkaProbe(KafkaOptions(fresh.bootstrap))
        topics = list(probe.topics(["orders"]).values())
        assert probe.group_offsets("nobody", topics) == {}
        with pytest.raises(SourceUnreadable, match="no offset of orders"):
            Kafka(fresh.bootstrap, "orders", start="group:nobody").look(None, Request(), no_session)
        assert KafkaSink(fresh.bootstrap, "orders").recorded("floodmark.first", no_session) is None
        GroupOffsets("first", probe.options).publish({("orders", 1): 0})
        assert probe.group_offsets("first", topics) == {("orders", 1): 0}
        fresh.kill()


def test_a_topic_that_is_not_there_cannot_be_read(kafka: Broker) -> None:
    """It is not empty: it is not there."""
    with pytest.raises(SourceUnreadable, match=r"topic nowhere at .* Unknown topic"):
        KafkaProbe(KafkaOptions(kafka.bootstrap)).topics(["nowhere"])


def test_a_broker_that_does_not_answer_is_an_error_and_not_an_empty_topic() -> None:
    """The error has the cause, not only that time ran out."""
    with pytest.raises(SourceUnreadable, match="Connection refused"):
        KafkaProbe(KafkaOptions("127.0.0.1:1"), request_seconds=1.0).topics(["orders"])


def without_leader() -> Future[Any]:
    """What a broker answers that does not lead the partition."""
    answer: Future[Any] = Future()
    answer.set_exception(KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)))
    return answer


def test_a_partition_between_two_leaders_is_asked_again(
    kafka: Broker, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one is whose topic was made just now; a partition that stays without a leader is an error."""
    name, probe = topic(), KafkaProbe(KafkaOptions(kafka.bootstrap))
    result, faults = probe._result, [without_leader(), without_leader()]
    monkeypatch.setattr(probe, "_result", lambda future, what: result(faults.pop() if faults else future, what))
    topics = [Topic(name, "", (0,))]
    assert (probe.bounds(topics), faults) == ({(name, 0): PartitionBounds(0, 0, 0)}, [])
    monkeypatch.setattr(probe, "_leader_seconds", 0.0)
    faults.append(without_leader())
    with pytest.raises(SourceUnreadable, match=f"{name}, partition 0 .*Not leader"):
        probe.bounds(topics)


def test_without_the_driver_the_error_says_how_to_install_it() -> None:
    """Floodmark itself installs without Kafka."""
    with without_driver(), pytest.raises(ConfigError) as caught:
        KafkaProbe(KafkaOptions("a:1")).topics(["orders"])
    assert caught.value.hint == "pip install 'floodmark[kafka]'"


def test_names_that_are_alike_are_offered() -> None:
    """Of a topic that is not there; nothing is said where none is like it."""
    assert similar_topics("oders", ["orders", "payments"]) == "did you mean orders?"
    assert similar_topics("zzz", ["orders", "payments"]) == ""

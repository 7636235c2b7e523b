"""What is known about a cluster without reading a record, and how options reach two clients without being shown."""

from __future__ import annotations

import pickle
import sys
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from floodmark.errors import ConfigError, SourceUnreadable
from floodmark.probes.kafka import KafkaProbe, PartitionBounds, Topic
from floodmark.probes.kafka.client import KafkaOptions
from tests.sources.reading_kafka import commit_offset, open_transaction, put, recreate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from floodmark.testing.servers import Broker

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
    assert probe.committed(f"{name}-group", probe.topics([name]).values()) == {(name, 0): 2}


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


def test_a_login_reaches_both_clients_in_the_words_of_each() -> None:
    """librdkafka takes user and password, Java a JAAS configuration with its own quoting."""
    options = KafkaOptions(["a:1", "b:2"], LOGIN)
    native, java = options.librdkafka(), options.spark()
    assert (native["sasl.username"], native["sasl.password"], native["bootstrap.servers"]) == (
        "app",
        'p"w\\1',
        "a:1,b:2",
    )
    assert java == {
        "kafka.bootstrap.servers": "a:1,b:2",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="app" password="p\\"w\\\\1";',
    }


def test_certificates_reach_java_as_pem(tmp_path: Path) -> None:
    """Java takes one file with the authorities, and the text of a certificate and its key."""
    (tmp_path / "own.pem").write_text("CERTIFICATE")
    (tmp_path / "key.pem").write_text("KEY")
    places = {"ssl.certificate.location": str(tmp_path / "own.pem"), "ssl.key.location": str(tmp_path / "key.pem")}
    options = KafkaOptions("a:1", {"ssl.ca.location": "/etc/ca.pem", **places})
    assert options.spark() == {
        "kafka.bootstrap.servers": "a:1",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/etc/ca.pem",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": "CERTIFICATE",
        "kafka.ssl.keystore.key": "KEY",
    }


def test_a_prefix_addresses_one_client_alone() -> None:
    """Each client refuses, or warns of, names that only another one knows."""
    own = {
        "kafka.max.poll.records": "5",
        "librdkafka.debug": "all",
        "spark.minPartitions": "9",
        "max.poll.records": "7",
    }
    options = KafkaOptions("a:1", own)
    assert options.spark() == {
        "kafka.bootstrap.servers": "a:1",
        "kafka.max.poll.records": "5",
        "minPartitions": "9",
    }
    assert options.librdkafka().keys() & {*own, "minPartitions"} == set()
    assert options.librdkafka()["debug"] == "all"


def test_the_callers_own_settings_win() -> None:
    """A writer's transactional id is no user's to choose."""
    options = KafkaOptions("a:1", {"transactional.id": "theirs"})
    assert options.librdkafka(**{"transactional.id": "ours"})["transactional.id"] == "ours"


def test_options_are_shown_by_name_and_never_by_value() -> None:
    """A repr ends up in logs."""
    shown = repr(KafkaOptions("a:1", LOGIN))
    assert "sasl.password" in shown
    assert 'p"w' not in shown
    assert "app" not in shown


def test_a_secret_is_blotted_out_of_an_error() -> None:
    """A driver's own text may repeat what it was given."""
    options = KafkaOptions("a:1", {"sasl.password": "hunter2", "ssl.key.password": "hunter2-longer"})
    assert options.without_secrets("cannot log in with hunter2 or hunter2-longer") == "cannot log in with *** or ***"


def test_an_option_that_nobody_knows_is_a_configuration_error() -> None:
    """It stops the run before the first question, with its name."""
    with pytest.raises(ConfigError, match=r"no\.such\.option"):
        KafkaOptions("a:1", {"no.such.option": "x"}).admin()


def test_without_the_driver_the_error_says_how_to_install_it() -> None:
    """Floodmark itself installs without Kafka."""
    with without_driver(), pytest.raises(ConfigError) as caught:
        KafkaProbe(KafkaOptions("a:1")).topics(["orders"])
    assert caught.value.hint == "pip install 'floodmark[kafka]'"


def test_options_travel_to_the_executors() -> None:
    """A writer on another machine connects with the same options."""
    options = KafkaOptions("a:1", LOGIN)
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301 (our own bytes)

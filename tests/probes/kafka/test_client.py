"""Options reach two clients in the words of each, and are never shown."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from floodmark.errors import ConfigError
from floodmark.probes.kafka.client import KafkaOptions

if TYPE_CHECKING:
    from pathlib import Path


LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "app", "sasl.password": 'p"w\\1'}


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


def test_options_travel_to_the_executors() -> None:
    """A writer on another machine connects with the same options."""
    options = KafkaOptions("a:1", LOGIN)
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301 (our own bytes)

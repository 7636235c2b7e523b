"""Topics as streams: the words that options are given in, and where a stream without a mark begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from floodmark.errors import ConfigError
from floodmark.mill import KafkaMessageBroker
from floodmark.mill.brokers.kafka import client_options
from floodmark.sources.contract import Request
from tests.mill.cases import L, keyed
from tests.mill.mills import Topics
from tests.sources.kafka.topics import commit_offset, no_session

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.testing.servers import Broker


def test_options_in_the_words_of_kafka_python_are_translated() -> None:
    """Those that it alone needs are let be, what is not set too, and those of other clients pass."""
    given = {
        "security_protocol": "SSL",
        "ssl_check_hostname": False,
        "ssl_cafile": "ca.pem",
        "ssl_keyfile": "key.pem",
        "ssl_password": None,
        "api_version": (2, 0),
        "sasl.username": "me",
        "debug": "broker",
        "enable.ssl.certificate.verification": True,
    }
    assert client_options(given) == {
        "security.protocol": "SSL",
        "ssl.endpoint.identification.algorithm": "none",
        "ssl.ca.location": "ca.pem",
        "ssl.key.location": "key.pem",
        "sasl.username": "me",
        "debug": "broker",
        "enable.ssl.certificate.verification": "true",
    }


def test_an_option_without_a_counterpart_is_refused_when_the_broker_is_made() -> None:
    """Rather than left out: it may be what keeps others out."""
    with pytest.raises(ConfigError, match="'ssl_context' has no counterpart"):
        KafkaMessageBroker({L: "l"}, "localhost:9092", kafka_extra_args={"ssl_context": object()})


def test_a_beginning_at_the_group_needs_a_group() -> None:
    """Said when the broker is made."""
    with pytest.raises(ConfigError, match="start='group' needs a group"):
        KafkaMessageBroker({L: "l"}, "localhost:9092", start="group")


def test_a_stream_begins_where_its_group_stands_else_at_its_beginning(kafka: Broker, tmp_path: Path) -> None:
    """So that a mill goes on where another program, watermill's too, has left its topics."""
    topics = Topics(kafka, tmp_path).make(L)
    topics.put(L, *keyed("l", 1, 2, 3))

    def first_offset(group: str) -> int:
        broker = KafkaMessageBroker({L: topics.names[L]}, kafka.bootstrap, consumer_group_name=group, start="group")
        stream = broker.topic_of(L)
        span = stream.look(None, Request(), no_session).span
        assert span is not None
        return stream.offsets(span)[0][0]

    group = topics.names[L]
    assert first_offset(group) == 0
    commit_offset(kafka, topics.names[L], group=f"{group}-L", offset=2)
    assert first_offset(group) == 2

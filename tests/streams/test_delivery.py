"""`to_kafka` against a real broker: an element goes on when its message is there, and fails when it is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.errors import ConfigError
from floodmark.streams import Stream, healing
from floodmark.streams.delivery import Undelivered
from floodmark.streams.program import compile_program
from tests.sinks.kafka.messages import values
from tests.streams.rows import element_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from floodmark.testing.servers import Broker


def test_elements_are_written_and_go_on_in_order_once_the_broker_has_them(
    kafka: Broker, topic: Callable[..., str]
) -> None:
    """Text, bytes and, of a row with a uuid, its value."""
    target, source = topic(), Stream()
    seen = source.to_kafka(target, {"bootstrap.servers": kafka.bootstrap}).sink_to_list()
    row = ({"topic": "orders", "partition": 0, "offset": 1}, b"of a row")
    source.emit("text")
    source.emit(b"bytes")
    source.emit(row)
    source.flush()
    assert seen == ["text", b"bytes", row]
    assert values(kafka.bootstrap, target) == ["bytes", "of a row", "text"]


def test_a_record_is_held_until_its_message_is_confirmed_and_then_healed(
    kafka: Broker, topic: Callable[..., str]
) -> None:
    """Its offset is not settled by a message that is only on its way."""
    source = Stream()
    written = source.to_kafka(topic(), {"bootstrap.servers": kafka.bootstrap, "linger.ms": 60_000})
    written.sink(healing, stream=source)
    running = compile_program(source.node).tasks.start()
    uuid = {"topic": "orders", "partition": 0, "offset": 1}
    assert running.push(element_of(uuid, b"1")) == []
    assert len(running.pending()) == 1
    assert [each.kind for each in running.await_io()] == ["done"]


def test_a_message_that_the_broker_refuses_fails_its_record(kafka: Broker, topic: Callable[..., str]) -> None:
    """It is larger than the topic takes."""
    small, source = topic(**{"max.message.bytes": "1000"}), Stream()
    source.to_kafka(small, {"bootstrap.servers": kafka.bootstrap}).sink(print)
    source.emit(json.dumps("x" * 5_000))
    with pytest.raises(Undelivered, match=r"(?i)message size too large"):
        source.flush()


@pytest.mark.parametrize("value", [{"no": 1}, 7])
def test_what_is_neither_bytes_nor_text_says_how_to_make_it_so(value: object) -> None:
    """Nothing is guessed about how it shall be written."""
    source = Stream()
    source.to_kafka("anywhere", {"bootstrap.servers": "localhost:1"}).sink(print)
    with pytest.raises(TypeError, match=r"map it first, as with json\.dumps"):
        source.emit(value)


def test_options_that_the_producer_refuses_are_named_with_the_step() -> None:
    """At the first element, since only then a producer is made."""
    source = Stream()
    source.to_kafka("anywhere", {"bootstrap.server": "localhost:1"}).sink(print)
    with pytest.raises(ConfigError, match=r"to_kafka\(anywhere\): the producer's options are refused"):
        source.emit("x")


def test_the_options_of_the_producer_are_not_shown() -> None:
    """A password may be among them."""
    secret: dict[str, Any] = {"sasl.password": "opensesame"}
    written = Stream().to_kafka("anywhere", secret)
    assert "opensesame" not in f"{written!r} {written.node.operator!r}"

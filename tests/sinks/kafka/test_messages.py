"""Keys go where the Java client's default partitioner sends them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from confluent_kafka import Producer

from floodmark.sinks.kafka.messages import murmur2, partitions_of
from floodmark.testing.servers import Broker
from tests.sinks.kafka.messages import committed

KEYS = [b"", b"a", b"ab", b"abc", b"abcd", "größe".encode(), b"\x00\xff\x80\x7f", *(b"key-%d" % n for n in range(200))]


def test_the_hash_is_the_one_that_kafka_tests_its_own_clients_with() -> None:
    """The vectors are those of the Java client's own unit test."""
    keys = pa.array([b"21", b"foobar", b"a-little-bit-long-string", b"a-little-bit-longer-string", b"abc"])
    assert murmur2(keys).astype("int32").tolist() == [-973932308, -790332482, -985981536, -1486304829, 479470107]


def test_a_slice_and_null_keys_do_not_shift_the_others() -> None:
    """Arrow hands over slices of larger buffers."""
    keys = pa.array([b"x", b"foobar", None, b"abc"]).slice(1)
    assert murmur2(keys).astype("int32").tolist()[::2] == [-790332482, 479470107]


def test_keys_land_where_another_client_puts_them(kafka: Broker, topic: Callable[..., str]) -> None:
    """librdkafka's murmur2 partitioner is the Java-compatible one; the broker says where each key went."""
    name = topic(partitions=7)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2"})
    [producer.produce(name, b"", key) for key in KEYS]
    producer.flush(20)
    where = {seen.key or b"": seen.partition for seen in committed(kafka.bootstrap, name)}
    assert [where[key] for key in KEYS] == partitions_of(pa.array(KEYS), 7).tolist()

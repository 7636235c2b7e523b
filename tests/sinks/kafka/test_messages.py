"""Keys go where the Java client's default partitioner sends them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer

from floodmark.sinks.kafka.messages import RowsHash, murmur2, partitions_of
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


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def hashed(*batches: pa.RecordBatch) -> str:
    running = RowsHash()
    for batch in batches:
        running.add(batch)
    return running.hexdigest()


def batch_of(keys: list[bytes | None], values: list[bytes | None], headers: list[Any] | None = None) -> pa.RecordBatch:
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    columns |= {"headers": pa.array(headers, HEADERS)} if headers is not None else {}
    return pa.RecordBatch.from_pydict(columns)


def test_the_hash_of_rows_does_not_depend_on_where_they_are_cut() -> None:
    """Another attempt gets the same rows in other batches, and ends its chunks elsewhere."""
    headers = [None, [{"key": "h", "value": b"1"}], [], [{"key": "h", "value": None}, {"key": "i", "value": b"2"}]]
    whole = batch_of([b"k", None, b"", b"kk"], [b"a", b"", None, b"bcd"], headers)
    assert hashed(whole) == hashed(whole.slice(0, 1), whole.slice(1, 2), whole.slice(3), whole.slice(4))
    assert hashed(whole) == hashed(*(whole.slice(place, 1) for place in range(4)))


def test_other_rows_have_another_hash() -> None:
    """In another order, cut elsewhere between values, null instead of empty, with another key or header."""
    rows = [
        batch_of([b"k", b"k"], [b"ab", b"c"]),
        batch_of([b"k", b"k"], [b"c", b"ab"]),
        batch_of([b"k", b"k"], [b"a", b"bc"]),
        batch_of([b"k", b"l"], [b"ab", b"c"]),
        batch_of([b"k", b"k"], [b"ab", b""]),
        batch_of([b"k", b"k"], [b"ab", None]),
        batch_of([b"k", b"k"], [b"ab", b"c"], [[{"key": "h", "value": b"1"}], None]),
        batch_of([b"k", b"k"], [b"ab", b"c"], [None, [{"key": "h", "value": b"1"}]]),
    ]
    assert len({hashed(each) for each in rows}) == len(rows)


def test_keys_land_where_another_client_puts_them(kafka: Broker, topic: Callable[..., str]) -> None:
    """librdkafka's murmur2 partitioner is the Java-compatible one; the broker says where each key went."""
    name = topic(partitions=7)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2"})
    [producer.produce(name, b"", key) for key in KEYS]
    producer.flush(20)
    where = {seen.key or b"": seen.partition for seen in committed(kafka.bootstrap, name)}
    assert [where[key] for key in KEYS] == partitions_of(pa.array(KEYS), 7).tolist()

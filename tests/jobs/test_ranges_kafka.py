"""Ranges of a topic: offsets from and to, partition by partition, never beyond the mark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from floodmark.errors import ConfigError, RangeAboveMark
from floodmark.hwm import KeyValueIntHWM
from floodmark.jobs.ranges import Bounds, OffsetRange
from floodmark.sources import Kafka
from tests.sources.kafka.topics import put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.hwm import HWM
    from floodmark.testing.servers import Broker


def never() -> SparkSession:
    raise AssertionError("Spark was asked for")


def read_by(asked: OffsetRange, max_rows: int | None) -> list[tuple[object, object]]:
    """From and to of every piece, as long as there is one."""
    found: list[tuple[object, object]] = []
    after: HWM | None = None
    while (span := asked.piece(after, max_rows, {}).span) is not None:
        after = span.upto
        [(_, begin), (_, end)] = [next(iter(span.detail[name].items())) for name in ("from", "upto")]  # type: ignore[union-attr]
        found.append((begin, end))
    return found


@pytest.fixture
def source(kafka: Broker, topic: Callable[..., str]) -> Kafka:
    """Ten messages in partition 0, four in partition 1."""
    name = topic(2)
    put(kafka, name, *(f"a{n}" for n in range(10)))
    put(kafka, name, *(f"b{n}" for n in range(4)), partition=1)
    return Kafka(kafka.bootstrap, name)


def test_only_named_partitions_are_read_and_never_beyond_the_mark(source: Kafka) -> None:
    """From is in the range and to is not; partition 0 was read up to 8."""
    mark = KeyValueIntHWM("kafka", {0: 8, 1: 4}, topic=str(source.topic))
    asked = OffsetRange(source, mark, Bounds('{"0": 2}', '{"0": 100}'), never)
    assert (read_by(asked, 4), asked.is_cut) == ([({"0": 2}, {"0": 6}), ({"0": 6}, {"0": 8})], True)
    both = OffsetRange(source, mark, Bounds('{"0": 6, "1": 1}', '{"0": 7, "1": 3}'), never)
    assert (read_by(both, None), both.is_cut) == ([({"0": 6, "1": 1}, {"0": 7, "1": 3})], False)
    with pytest.raises(RangeAboveMark):
        OffsetRange(source, mark, Bounds('{"0": 9}', '{"0": 10}'), never)
    with pytest.raises(ConfigError, match="nothing lies"):
        OffsetRange(source, mark, Bounds('{"0": 5}', '{"0": 5}'), never)

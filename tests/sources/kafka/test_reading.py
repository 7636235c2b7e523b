"""Reading from Kafka with Spark: exactly the offsets of the span, and no value that means nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from floodmark.errors import ConfigError, RecordMalformed, SourceGap, SourceRewritten
from floodmark.hwm import Span
from floodmark.sources import Kafka
from floodmark.sources.kafka.reading import KafkaReading
from floodmark.sources.values import Json
from tests.sources.kafka.topics import (
    JSON,
    expire,
    fill,
    look,
    mark,
    open_transaction,
    put,
    read,
    recreate,
    until,
    values,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from floodmark.testing.servers import Broker

    Topics = Callable[..., str]

pytestmark = pytest.mark.spark

BAD = "the value is not a JSON object of this schema"
PLACES = [("t", number) for number in range(7)]


@dataclass
class Item:
    """A part of an order."""

    sku: str
    count: int


@dataclass
class Order:
    """A value as its user's own class."""

    id: int
    note: str | None
    items: list[Item]


def test_bytes_are_left_alone(kafka: Broker, topic: Topics, spark: SparkSession) -> None:
    """Key, value and headers as they are, and where the message stands."""
    name = topic()
    put(kafka, name, b"\xff\x00", key=b"\x01", headers=[("h", b"x")], timestamp=1_700_000_000_123)
    found = read(Kafka(kafka.bootstrap, name), spark)
    assert found.rows.drop(*found.hidden).columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "headers",
    ]  # fmt: skip
    columns = ("key", "value", "topic", "partition", "offset", "unix_millis(timestamp)", "headers[0].value")
    assert [tuple(row) for row in found.rows.selectExpr(*columns).collect()] == [
        (b"\x01", b"\xff\x00", name, 0, 0, 1_700_000_000_123, b"x")
    ]


def test_text_is_text(kafka: Broker, topic: Topics, spark: SparkSession) -> None:
    """Key and value; a message without a value stays without one."""
    name = topic()
    put(kafka, name, "grün", None, key="k")
    assert values(read(Kafka(kafka.bootstrap, name, value="text"), spark), "key", "value", "offset") == [
        ("k", "grün", 0),
        ("k", None, 1),
    ]


def test_json_fields_are_columns_beside_kafkas_own(kafka: Broker, topic: Topics, spark: SparkSession) -> None:
    """`select id, v from source` is what a schema promises."""
    name = topic()
    put(kafka, name, '{"id": 1, "v": "a"}', '{"id": 2}', key="k")
    found = read(Kafka(kafka.bootstrap, name, value=JSON), spark)
    assert values(found, "id", "v", "kafka_key", "kafka_topic", "kafka_partition", "kafka_offset") == [
        (1, "a", "k", name, 0, 0),
        (2, None, "k", name, 0, 1),
    ]


def test_a_dataclass_is_a_schema(kafka: Broker, topic: Topics, spark: SparkSession) -> None:
    """Nested ones and lists of them too."""
    name = topic()
    put(kafka, name, '{"id": 1, "items": [{"sku": "s", "count": 2}]}')
    assert values(read(Kafka(kafka.bootstrap, name, value=Order), spark), "id", "note", "items.sku", "items.count") == [
        (1, None, ["s"], [2])
    ]


def test_only_the_columns_that_are_wanted(kafka: Broker, topic: Topics, spark: SparkSession) -> None:
    """A table of the fields alone needs no transform."""
    name = topic()
    put(kafka, name, '{"id": 1, "v": "a"}')
    found = read(Kafka(kafka.bootstrap, name, value=JSON, columns=["offset"]), spark)
    assert found.rows.drop(*found.hidden).columns == ["id", "v", "kafka_offset"]
    assert values(found, "id", "v", "kafka_offset") == [(1, "a", 0)]


def test_a_tombstone_is_a_row_of_its_key(kafka: Broker, topic: Topics, spark: SparkSession) -> None:
    """A message without a value says that its key is gone: that is no mistake."""
    name = topic()
    put(kafka, name, None, key="gone")
    assert values(read(Kafka(kafka.bootstrap, name, value=JSON), spark), "id", "v", "kafka_key") == [
        (None, None, "gone")
    ]


def test_a_span_is_read_the_same_again(kafka: Broker, topic: Topics, spark: SparkSession) -> None:
    """Offsets are fixed by the look: what comes later, or was read before, is not in it, also after a crash."""
    name = topic(2)
    source = Kafka(kafka.bootstrap, name, value="text")
    fill(kafka, name, {0: 3, 1: 2})
    span = look(source, mark(name, {0: 1, 1: 2})).span
    assert span is not None
    fill(kafka, name, {0: 2, 1: 2})
    again = Span.deserialize(span.serialize())
    assert values(source.read(spark, again), "value") == [("0-1",), ("0-2",)]


def test_max_rows_reads_in_two_batches_what_one_would(kafka: Broker, topic: Topics, spark: SparkSession) -> None:
    """The second goes on where the first ended."""
    name = topic()
    source = Kafka(kafka.bootstrap, name, value="text")
    fill(kafka, name, {0: 3})
    first = look(source, max_rows=2).span
    assert first is not None
    assert values(source.read(spark, first), "value") == [("0-0",), ("0-1",)]
    assert values(read(source, spark, first.upto, max_rows=2), "value") == [("0-2",)]


def test_aborted_messages_are_not_read_and_are_passed(kafka: Broker, topic: Topics, spark: SparkSession) -> None:
    """A span of nothing but aborted messages and their marker has no rows, and the mark moves."""
    name = topic()
    source = Kafka(kafka.bootstrap, name, value="text")
    with open_transaction(kafka, name, "x", "y") as transaction:
        transaction.abort_transaction(10)
    until(lambda: look(source).span is not None)
    span = look(source).span
    assert span is not None
    assert span.upto.value == {0: 3}
    assert values(source.read(spark, span), "value") == []


def test_holes_in_the_offsets_are_no_loss(kafka: Broker, topic: Topics, spark: SparkSession) -> None:
    """Markers take offsets, and a batch may end on one."""
    name = topic()
    source = Kafka(kafka.bootstrap, name, value="text")
    with open_transaction(kafka, name, "a") as transaction:
        transaction.commit_transaction(10)
    put(kafka, name, "b")
    until(lambda: look(source).held_back == 0)
    assert values(read(source, spark), "value", "offset") == [("a", 0), ("b", 2)]
    assert values(read(source, spark, mark(name, {0: 1}), max_rows=1), "value") == []


def test_latest_reads_an_empty_frame_with_all_columns(kafka: Broker, topic: Topics, spark: SparkSession) -> None:
    """A batch that only puts the mark runs through the same transform."""
    name = topic()
    put(kafka, name, '{"id": 1}')
    assert values(read(Kafka(kafka.bootstrap, name, value=JSON, start="latest"), spark), "id", "kafka_headers") == []


def test_several_topics_are_one_frame(kafka: Broker, topic: Topics, spark: SparkSession) -> None:
    """The column topic tells them apart."""
    one, other = sorted([topic(), topic()])
    put(kafka, one, "a")
    put(kafka, other, "b", "c")
    assert values(read(Kafka(kafka.bootstrap, [other, one], value="text"), spark), "topic", "offset", "value") == [
        (one, 0, "a"),
        (other, 0, "b"),
        (other, 1, "c"),
    ]


def test_a_value_that_cannot_be_parsed_is_a_dead_letter_and_never_a_null_row(
    kafka: Broker, topic: Topics, spark: SparkSession
) -> None:
    """Neither half of it: what follows the first object is not lost silently."""
    name = topic()
    bad = [
        '{"id": "abc"}', '{"id": 1.5}', '{"id": 9223372036854775808}', '{"id": 1', "7", "null", "", "[]",
        '[{"id": 1}]', '{"id": 1} x', '{"id": 1}{"id": 2}', '{"id": 1},{"id": 2}', '{"id": 1}]', '{"id": 1}] }',
    ]  # fmt: skip
    put(kafka, name, *bad, '{"id": 8}')
    found = read(Kafka(kafka.bootstrap, name, value=JSON, malformed="dead_letter"), spark)
    assert found.dead is not None
    assert values(found, "id") == [(8,)]
    messages = found.dead().orderBy("line").select("file", "line", "text", "reason", "record.value").collect()
    assert [tuple(row) for row in messages] == [
        (f"{name}/0", offset, text, BAD, text.encode()) for offset, text in enumerate(bad)
    ]


def test_a_nested_value_of_the_wrong_type_is_dead_too(kafka: Broker, topic: Topics, spark: SparkSession) -> None:
    """However deep it lies."""
    name = topic()
    put(kafka, name, '{"id": 1, "items": [{"sku": "s", "count": "many"}]}')
    assert values(read(Kafka(kafka.bootstrap, name, value=Json(Order), malformed="dead_letter"), spark), "id") == []


def test_bytes_that_are_no_text_are_dead_letters(kafka: Broker, topic: Topics, spark: SparkSession) -> None:
    """Their bytes are kept in a form that can be brought back."""
    name = topic()
    put(kafka, name, b"\xff\xfe", b"fine")
    put(kafka, name, b"fine", key=b"\xff")
    found = read(Kafka(kafka.bootstrap, name, value="text", malformed="dead_letter"), spark)
    assert found.dead is not None
    assert values(found, "value", "offset") == [("fine", 1)]
    messages = found.dead().orderBy("line").select("file", "line", "text", "reason").collect()
    assert [tuple(row) for row in messages] == [
        (f"{name}/0", 0, "base64://4=", "the value is not UTF-8 text"),
        (f"{name}/0", 2, "fine", "the key is not UTF-8 text (`key: bytes` keeps it)"),
    ]


def test_a_key_of_bytes_beside_a_value_of_json(kafka: Broker, topic: Topics, spark: SparkSession) -> None:
    """Many keys are numbers in binary."""
    name = topic()
    put(kafka, name, '{"id": 1}', key=b"\xff\x01")
    assert values(read(Kafka(kafka.bootstrap, name, value=JSON, key="bytes"), spark), "id", "kafka_key") == [
        (1, b"\xff\x01")
    ]


def test_without_dead_letters_the_first_malformed_message_fails_the_batch(
    kafka: Broker, topic: Topics, spark: SparkSession
) -> None:
    """With its topic, partition, offset and text, whatever the user's transform would have dropped."""
    name = topic()
    put(kafka, name, '{"id": 1}', '{"id": "abc"}')
    source = Kafka(kafka.bootstrap, name, value=JSON)
    span = look(source).span
    assert span is not None
    with pytest.raises(Exception, match="floodmark") as caught:
        source.read(spark, span).rows.where("id > 100").select("kafka_offset").collect()
    malformed = source.explain(caught.value, spark, span)
    assert isinstance(malformed, RecordMalformed)
    assert (malformed.file, malformed.text) == (f"{name}/0, offset 1", '{"id": "abc"}')


def test_an_error_of_somebody_else_is_not_explained(kafka: Broker, topic: Topics, spark: SparkSession) -> None:
    """A full disk is not the topic's doing."""
    name = topic()
    put(kafka, name, "a")
    source = Kafka(kafka.bootstrap, name)
    span = look(source).span
    assert span is not None
    assert source.explain(OSError("no space left"), spark, span) is None


def test_a_field_with_the_name_of_kafkas_own_column_is_refused(
    kafka: Broker, topic: Topics, spark: SparkSession
) -> None:
    """One of the two would be lost."""
    name = topic()
    put(kafka, name, "{}")
    with pytest.raises(ConfigError, match="kafka_offset"):
        read(Kafka(kafka.bootstrap, name, value=Json("kafka_offset long")), spark)


def test_a_span_of_a_topic_that_was_made_anew_is_not_read(kafka: Broker, topic: Topics, spark: SparkSession) -> None:
    """After a crash the batch has to be the one that was begun; the new topic's offsets look the same."""
    name = topic()
    source = Kafka(kafka.bootstrap, name)
    put(kafka, name, "old")
    span = look(source).span
    assert span is not None
    recreate(kafka, name)
    put(kafka, name, "new")
    with pytest.raises(SourceRewritten, match="made anew"):
        source.read(spark, span)


def test_a_span_whose_records_have_expired_is_not_read(kafka: Broker, topic: Topics, spark: SparkSession) -> None:
    """It is told before Spark meets it, and afterwards too, if retention was faster than the batch."""
    name = topic()
    source = Kafka(kafka.bootstrap, name, on_gap="skip")
    fill(kafka, name, {0: 4})
    span = look(source).span
    assert span is not None
    rows = source.read(spark, span).rows
    expire(kafka, name, before=2)
    with pytest.raises(SourceGap):
        source.read(spark, span)
    with pytest.raises(Exception, match=r"(?i)offset") as caught:
        rows.collect()
    assert isinstance(source.explain(caught.value, spark, span), SourceGap)


def test_a_large_partition_is_read_by_every_core(spark: SparkSession) -> None:
    """One partition would leave the others idle; small ones are left whole, and a user's own number wins."""
    large = KafkaReading(spark, {}, {("t", 0): 0}, {("t", 0): 1_000_000}, "bytes", "bytes", ())
    assert large.all_options()["minPartitions"] == "2"
    assert "minPartitions" not in replace(large, upto={("t", 0): 100}).all_options()
    assert replace(large, options={"minPartitions": "7"}).all_options()["minPartitions"] == "7"


def test_small_partitions_are_read_by_as_many_tasks_as_there_are_cores(
    kafka: Broker, topic: Topics, spark: SparkSession
) -> None:
    """A task for each of a thousand partitions would take longer than all of their messages."""
    name = topic(partitions=7)
    fill(kafka, name, dict.fromkeys(range(7), 2))
    found = read(Kafka(kafka.bootstrap, name, value="text"), spark)
    rows = found.rows.select("partition", "offset", F.spark_partition_id().alias("task")).collect()
    assert len({row.task for row in rows}) == 2
    assert [[row.offset for row in rows if row.partition == each] for each in range(7)] == [[0, 1]] * 7


def test_partitions_that_are_worth_a_task_keep_it(spark: SparkSession) -> None:
    """And so do all of them where the user says how many tasks there are to be."""
    small = KafkaReading(
        spark, {}, dict.fromkeys(PLACES, 0), dict.fromkeys(PLACES, 5), "bytes", "bytes", (), None, True
    )
    large = replace(small, upto=dict.fromkeys(PLACES, 1_000_000))
    chosen = replace(small, options={"minPartitions": "5"})
    numbered = spark.range(0, 7, 1, 7)
    assert [each._gathered(numbered).rdd.getNumPartitions() for each in (small, large, chosen)] == [2, 7, 7]


def test_the_consumer_is_fast_unless_its_user_knows_better(spark: SparkSession) -> None:
    """And sees committed messages only, whatever they say."""
    theirs = {"kafka.max.poll.records": "5", "kafka.isolation.level": "read_uncommitted", "failOnDataLoss": "false"}
    options = KafkaReading(spark, theirs, {("t", 0): 0}, {("t", 0): 5}, "bytes", "bytes", ()).all_options()
    assert (options["kafka.max.poll.records"], options["kafka.receive.buffer.bytes"]) == ("5", "4194304")
    assert (options["kafka.isolation.level"], options["failOnDataLoss"]) == ("read_committed", "true")

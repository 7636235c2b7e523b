"""The Kafka sink with Spark and a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pytest

from floodmark.errors import BatchChanged, ConfigError, Overtaken, SinkDisagrees, SinkUnreachable
from floodmark.sinks.contract import POSITION, Batch, Session
from floodmark.sinks.kafka import Kafka
from floodmark.sinks.kafka.ledger import LedgerPage
from floodmark.sinks.kafka.writer import WritePlan, Writer
from floodmark.testing import InjectedFailure
from floodmark.testing.servers import Broker
from tests.sinks.batches import batch, frame
from tests.sinks.kafka.messages import committed, delete_group, values
from tests.sinks.kafka.messages import rows as arrow_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Pages: TypeAlias = Mapping[int, LedgerPage]


def intended(sink: Kafka, spark: SparkSession, number: int, *, namespace: str = "prod") -> Batch:
    """A batch as the step hands it over: frozen with its intent."""
    plain = replace(batch(number), namespace=namespace)
    return replace(plain, frozen={sink.name: sink.freeze(lambda: spark)})


def test_rows_become_json_with_nulls_and_without_our_own_columns(
    spark: SparkSession, kafka: Broker, topic: Callable[..., str]
) -> None:
    """Every column of the row is there, also where it is null; what the step added is not."""
    sink = Kafka(kafka.bootstrap, topic(partitions=2), key="id")
    rows = frame(spark, f"id long, name string, {POSITION} long", (1, "a", 1), (2, None, 2))
    assert sink.write(rows, intended(sink, spark, 1)) == 2
    seen = {each.key: json.loads(each.value or b"") for each in committed(kafka.bootstrap, sink.topic)}
    assert seen == {b"1": {"id": 1, "name": "a"}, b"2": {"id": 2, "name": None}}


def test_messages_are_not_compressed_unless_it_is_asked_for(
    spark: SparkSession, kafka: Broker, topic: Callable[..., str]
) -> None:
    """Every client can read them: a plain one has neither lz4 nor zstd."""
    plain = Kafka(kafka.bootstrap, topic(), value="text:v")
    packed = Kafka(kafka.bootstrap, topic(), value="text:v", options={"compression.type": "lz4"})
    rows = frame(spark, "v string", ("a" * 1000,), ("b" * 1000,))
    plain.write(rows, intended(plain, spark, 1))
    packed.write(rows, intended(packed, spark, 1))
    assert (codec_of(kafka, plain.topic), codec_of(kafka, packed.topic)) == (0, LZ4)


LZ4 = 3


def codec_of(kafka: Broker, topic: str) -> int:
    """How the first batch of messages is packed, by the lowest bits of its attributes in the broker's own file."""
    segment = kafka.folder / "data" / f"{topic}-0" / f"{0:020}.log"
    return segment.read_bytes()[22] & 0b111


def test_a_repeated_batch_adds_nothing_and_returns_the_same_count(
    spark: SparkSession, kafka: Broker, topic: Callable[..., str]
) -> None:
    """The second attempt needs no Spark job: the ledger knows what was written."""
    sink = Kafka(kafka.bootstrap, topic(partitions=3), value="text:v")
    one = intended(sink, spark, 1)
    rows = frame(spark, "v string", ("a",), ("b",), ("c",))
    counts = [sink.write(rows, one), sink.write(rows, replace(one, attempt="a2"))]
    assert counts == [3, 3]
    assert values(kafka.bootstrap, sink.topic) == ["a", "b", "c"]


def test_a_row_keeps_its_order_within_its_key(spark: SparkSession, kafka: Broker, topic: Callable[..., str]) -> None:
    """By the source's position, over chunks and whatever the order in which Spark has the rows."""
    sink = Kafka(kafka.bootstrap, topic(partitions=3), key="k", value="text:v", chunk_rows=7)
    rows = spark.range(200).selectExpr("id % 5 AS k", "id AS v", f"id AS {POSITION}").repartition(4)
    assert sink.write(rows, intended(sink, spark, 1)) == 200
    seen = committed(kafka.bootstrap, sink.topic)
    of_two = [int(each.value or b"") for each in seen if each.key == b"2"]
    assert of_two == list(range(2, 200, 5))
    assert len(seen) == 200


def test_bytes_go_out_as_they_are_and_null_is_a_tombstone(
    spark: SparkSession, kafka: Broker, topic: Callable[..., str]
) -> None:
    """A compacted topic forgets a key whose value is null."""
    sink = Kafka(kafka.bootstrap, topic(), key="k", value="bytes:raw")
    rows = frame(spark, "k string, raw binary", ("a", bytearray(b"\x00\xff")), ("b", None))
    sink.write(rows, intended(sink, spark, 1))
    assert {each.key: each.value for each in committed(kafka.bootstrap, sink.topic)} == {b"a": b"\x00\xff", b"b": None}


def test_headers_come_from_expressions(spark: SparkSession, kafka: Broker, topic: Callable[..., str]) -> None:
    """Ours, on the last of every so many rows, stand before the user's."""
    sink = Kafka(kafka.bootstrap, topic(), value="text:v", headers={"kind": "'order'", "size": "length(v)"})
    sink.write(frame(spark, "v string", ("abc",)), intended(sink, spark, 1))
    ours = {"fm": b"floodmark.prod.orders.kafka:1:0", "fm-rows": b"1"}
    assert [each.headers for each in committed(kafka.bootstrap, sink.topic)] == [
        {**ours, "kind": b"order", "size": b"3"}
    ]


def test_a_column_of_maps_gives_headers_and_is_not_in_the_json(
    spark: SparkSession, kafka: Broker, topic: Callable[..., str]
) -> None:
    """Headers that differ from row to row."""
    sink = Kafka(kafka.bootstrap, topic(), headers="h")
    sink.write(frame(spark, "v string, h map<string,string>", ("a", {"x": "1"})), intended(sink, spark, 1))
    seen = committed(kafka.bootstrap, sink.topic)[0]
    assert (seen.value, seen.headers["x"]) == (b'{"v":"a"}', b"1")


def test_rows_without_a_key_are_spread_and_written_once(
    spark: SparkSession, kafka: Broker, topic: Callable[..., str]
) -> None:
    """By a hash of their content, so that a repeat finds the same writer."""
    sink = Kafka(kafka.bootstrap, topic(partitions=4), key="k", value="text:v")
    rows = spark.range(100).selectExpr("CAST(NULL AS STRING) AS k", "id AS v")
    assert sink.write(rows, intended(sink, spark, 1)) == 100
    seen = committed(kafka.bootstrap, sink.topic)
    assert {each.key for each in seen} == {None}
    assert {each.partition for each in seen} == {0, 1, 2, 3}


def test_a_batch_without_rows_is_recorded(spark: SparkSession, kafka: Broker, topic: Callable[..., str]) -> None:
    """The number has to be known to the sink, or a paused run could still write with it."""
    sink = Kafka(kafka.bootstrap, topic(partitions=3))
    one = intended(sink, spark, 1)
    assert sink.write(frame(spark, "v string"), one) == 0
    recorded = sink.recorded(one.ledger(sink.name), lambda: spark)
    assert recorded is not None
    assert (recorded.number, recorded.digest) == (1, one.digest)


def test_partitions_added_between_two_attempts_are_not_used(
    spark: SparkSession, kafka: Broker, topic: Callable[..., str]
) -> None:
    """Keys of one batch stay where its first attempt put them; the next batch uses all partitions."""
    from confluent_kafka.admin import NewPartitions

    sink = Kafka(kafka.bootstrap, topic(), key="v", value="text:v")
    one = intended(sink, spark, 1)
    admin = kafka.admin()
    admin.create_partitions([NewPartitions(sink.topic, 3)])[sink.topic].result(20)
    rows = spark.range(30).selectExpr("id AS v")
    sink.write(rows, one)
    assert {each.partition for each in committed(kafka.bootstrap, sink.topic)} == {0}
    assert sink.write(rows, intended(sink, spark, 2)) == 30
    assert {each.partition for each in committed(kafka.bootstrap, sink.topic)} == {0, 1, 2}


def test_a_deleted_ledger_does_not_repeat_the_batch(
    spark: SparkSession, kafka: Broker, topic: Callable[..., str]
) -> None:
    """Stamps above the offsets of the intent say how many rows of each writer are out."""
    sink = Kafka(kafka.bootstrap, topic(partitions=3), value="text:v")
    one = intended(sink, spark, 1)
    rows = frame(spark, "v string", ("a",), ("b",), ("c",))
    sink.write(rows, one)
    delete_group(kafka.bootstrap, one.ledger(sink.name), sink.topic)
    assert sink.write(rows, one) == 3
    assert values(kafka.bootstrap, sink.topic) == ["a", "b", "c"]


def test_two_sinks_and_two_namespaces_share_a_topic(
    spark: SparkSession, kafka: Broker, topic: Callable[..., str]
) -> None:
    """Each has a ledger and producers of its own."""
    first = Kafka(kafka.bootstrap, topic(partitions=2), value="text:v", name="first")
    second = replace(first, name="second")
    rows = frame(spark, "v string", ("a",))
    first.write(rows, intended(first, spark, 1))
    second.write(rows, intended(second, spark, 1))
    first.write(rows, intended(first, spark, 1, namespace="dev"))
    first.write(rows, intended(first, spark, 1))
    assert values(kafka.bootstrap, first.topic) == ["a", "a", "a"]


def test_the_same_number_with_another_digest_is_refused(
    spark: SparkSession, kafka: Broker, topic: Callable[..., str]
) -> None:
    """Half of another batch stands there under this number."""
    sink = Kafka(kafka.bootstrap, topic(partitions=2), value="text:v")
    one = intended(sink, spark, 1)
    sink.write(frame(spark, "v string", ("a",)), one)
    other = replace(intended(sink, spark, 1), digest="other")
    with pytest.raises(SinkDisagrees) as raised:
        sink.write(frame(spark, "v string", ("b",)), other)
    assert (raised.value.number, raised.value.recorded) == (1, one.digest)


def test_a_run_whose_number_was_fenced_stops(spark: SparkSession, kafka: Broker, topic: Callable[..., str]) -> None:
    """Whoever fenced it has decided about the batch: the run must not go on to its next sink."""
    sink = Kafka(kafka.bootstrap, topic(partitions=2), value="text:v")
    one = intended(sink, spark, 1)
    sink.fence(one.ledger(sink.name), 1, lambda: spark)
    with pytest.raises(Overtaken):
        sink.write(frame(spark, "v string", ("a",)), one)
    assert values(kafka.bootstrap, sink.topic) == []


def test_a_run_that_a_later_batch_has_overtaken_stops(
    spark: SparkSession, kafka: Broker, topic: Callable[..., str]
) -> None:
    """Nothing of it is written, and it is not taken for done."""
    sink = Kafka(kafka.bootstrap, topic(partitions=2), value="text:v")
    one, two = intended(sink, spark, 1), intended(sink, spark, 2)
    sink.write(frame(spark, "v string", ("b",)), two)
    with pytest.raises(Overtaken):
        sink.write(frame(spark, "v string", ("a",)), one)
    assert values(kafka.bootstrap, sink.topic) == ["b"]


def test_a_fence_between_the_plan_and_the_first_writer_stops_the_run(
    spark: SparkSession, kafka: Broker, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number is judged where it is written, by who holds the producer's id, and not only when it is planned."""
    sink = Kafka(kafka.bootstrap, topic(partitions=2), value="text:v")
    one, real = intended(sink, spark, 1), Kafka._plan

    def fenced_after_the_plan(self: Kafka, session: Session, batch: Batch, pages: Pages) -> WritePlan:
        plan = real(self, session, batch, pages)
        self.fence(one.ledger(self.name), 1, lambda: spark)
        return plan

    monkeypatch.setattr(Kafka, "_plan", fenced_after_the_plan)
    with pytest.raises(Overtaken):
        sink.write(frame(spark, "v string", ("a",), ("b",)), one)
    assert values(kafka.bootstrap, sink.topic) == []


def test_rows_out_are_others_now(spark: SparkSession, kafka: Broker, topic: Callable[..., str]) -> None:
    """A joined table was changed between kill and rerun; the same rows again are continued."""
    sink = Kafka(kafka.bootstrap, topic(), key="v", value="text:v")
    one = intended(sink, spark, 1)
    plan = replace(sink._plan(lambda: spark, one, {}), chunk_rows=2)
    with pytest.raises(InjectedFailure):
        Writer(plan, 0).run(then_killed(["a", "b"]))
    schema = f"v string, {POSITION} long"
    with pytest.raises(BatchChanged) as stop:
        sink.write(frame(spark, schema, ("a", 1), ("x", 2), ("c", 3)), one)
    assert (stop.value.exit_code, stop.value.number, values(kafka.bootstrap, sink.topic)) == (5, 1, ["a", "b"])
    assert sink.write(frame(spark, schema, ("a", 1), ("b", 2), ("c", 3)), one) == 3
    assert values(kafka.bootstrap, sink.topic) == ["a", "b", "c"]


def then_killed(texts: list[str]) -> Iterator[pa.RecordBatch]:
    """As Spark hands over rows whose key is their value, until their process ends."""
    yield arrow_rows(texts).set_column(0, "key", pa.array([text.encode() for text in texts], pa.binary()))
    raise InjectedFailure


def test_a_missing_topic_is_named_with_those_that_are_near(
    spark: SparkSession, kafka: Broker, topic: Callable[..., str]
) -> None:
    """A typing error makes no topic."""
    name = topic()
    with pytest.raises(ConfigError, match=name):
        Kafka(kafka.bootstrap, f"{name}s").freeze(lambda: spark)


def test_a_missing_topic_is_made_if_that_was_asked_for(spark: SparkSession, kafka: Broker) -> None:
    """With the partitions that were given."""
    sink = Kafka(kafka.bootstrap, "made-by-the-sink", create={"partitions": 5})
    assert not sink.holds_rows(lambda: spark)
    assert sink.freeze(lambda: spark)["partitions"] == 5


def test_a_broker_that_is_away_is_said_without_secrets() -> None:
    """The options hold passwords; neither the error, the repr nor the fingerprint shows one."""
    options = {"socket.timeout.ms": "1000", "ssl.key.password": "hunter2"}
    sink = Kafka("127.0.0.1:9", "orders", options=options)
    with pytest.raises(SinkUnreachable) as raised:
        sink.recorded("ledger", lambda: None)  # type: ignore[arg-type, return-value]
    assert "127.0.0.1:9" in str(raised.value)
    assert "hunter2" not in f"{raised.value} {sink!r} {sink.fingerprint()} {sink.describe()}"


def test_a_value_of_an_unknown_kind_is_refused_at_once() -> None:
    """A plain word could mean a column or a format."""
    with pytest.raises(ConfigError):
        Kafka("127.0.0.1:9", "orders", value="avro")

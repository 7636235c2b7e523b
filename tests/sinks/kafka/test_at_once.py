"""Small batches in one transaction: all or nothing, whatever the rows are the second time; by a kept producer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from floodmark.sinks.contract import POSITION, Batch, BatchSize, Recorded
from floodmark.sinks.kafka import Kafka
from floodmark.sinks.kafka.producer import KEPT_SECONDS, LedgerAddress, TransactionalSession
from floodmark.sinks.kafka.writer import Delivery, WritePlan, Writer
from floodmark.sinks.small import SMALL_ROWS
from floodmark.testing.servers import Broker
from tests.sinks.batches import SMALL, batch, frame
from tests.sinks.kafka.messages import committed, delete_group, messages, values
from tests.sinks.kafka.test_writer import Killed, first_plan

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Producer
    from pyspark.sql import SparkSession


@pytest.fixture
def plan(kafka: Broker, topic: Callable[..., str]) -> WritePlan:
    """Batch 1 of a ledger of this test alone, in one transaction although two rows would fill a chunk."""
    return first_plan(kafka, topic(partitions=2), at_once=True)


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> list[Producer]:
    """Every producer that is made."""
    made: list[Producer] = []
    real = LedgerAddress.producer

    def producer(address: LedgerAddress, writer: int) -> Producer:
        made.append(real(address, writer))
        return made[-1]

    monkeypatch.setattr(LedgerAddress, "producer", producer)
    return made


def write(plan: WritePlan, batches: Iterable[pa.RecordBatch], *, kept: TransactionalSession | None = None) -> Delivery:
    """As the sink does it: the driver settles the plan, and writes."""
    return Writer(plan.with_rows_out(sink(plan)._pages(plan.address.ledger)), 0, kept).run(batches)


def numbered(plan: WritePlan, number: int) -> WritePlan:
    return replace(plan, number=number, digest=f"d{number}")


def sink(plan: WritePlan) -> Kafka:
    return Kafka(plan.address.options.servers, plan.address.topic)


def no_spark() -> SparkSession:
    raise AssertionError("Spark was asked for")


def values_of(plan: WritePlan) -> list[str]:
    return values(str(plan.address.options.servers), plan.address.topic)


def then_killed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    raise Killed


def test_a_killed_writer_leaves_nothing_and_other_rows_may_follow(plan: WritePlan) -> None:
    """No reader has seen a row of it, so nobody compares."""
    with pytest.raises(Killed):
        write(plan, then_killed(messages("a", "b", "c", "d")))
    assert values_of(plan) == []
    assert write(plan, messages("x", "y", "z")) == Delivery(0, 3)
    assert values_of(plan) == ["x", "y", "z"]


def test_a_batch_that_is_out_stays_as_it_is_whatever_the_rows_are_now(plan: WritePlan) -> None:
    """The count is that of then."""
    write(plan, messages("a", "b", "c"))
    assert [write(plan, messages(*texts)) for texts in ("xy", "abcd", "")] == [Delivery(0, 3)] * 3
    assert values_of(plan) == ["a", "b", "c"]


def test_a_ledger_that_was_forgotten_is_made_good_as_a_whole(plan: WritePlan) -> None:
    """The stamp on the last row tells that the transaction was committed, and with it every row."""
    write(plan, messages("a", "b", "c"))
    delete_group(plan.address.options.servers, plan.address.ledger, plan.address.topic)
    frozen = {"kafka": plan.layout.to_json()}
    again = replace(batch(1), namespace=plan.address.topic, job="job", digest="d1", frozen=frozen)
    sink(plan).make_good(again, no_spark)
    found = sink(plan).recorded(plan.address.ledger, no_spark), sink(plan).partial_batch(plan.address.ledger, no_spark)
    assert found == (Recorded(1, "d1"), None)


def test_a_ledger_that_is_forgotten_between_plan_and_write_costs_no_row(plan: WritePlan) -> None:
    """Rows that are others by now do not follow those that are out."""
    write(plan, messages("a", "b", "c"))
    delete_group(plan.address.options.servers, plan.address.ledger, plan.address.topic)
    assert write(plan, messages("x", "y", "z", "more")) == Delivery(0, 3)
    assert values_of(plan) == ["a", "b", "c"]
    assert sink(plan).recorded(plan.address.ledger, no_spark) == Recorded(1, "d1")


def test_one_producer_serves_the_batches_of_a_loop(plan: WritePlan, producers: list[Producer]) -> None:
    """To start one takes longer than to send."""
    kept = TransactionalSession(plan.address, 0, ())
    for number in (1, 2, 3):
        assert write(numbered(plan, number), messages(f"of {number}"), kept=kept) == Delivery(0, 1)
    assert (values_of(plan), len(producers)) == (["of 1", "of 2", "of 3"], 1)


def test_a_kept_producer_that_another_run_has_shut_out_is_replaced(plan: WritePlan, producers: list[Producer]) -> None:
    """The other run wrote a batch and is over: what it wrote is seen, and the next number is free."""
    kept = TransactionalSession(plan.address, 0, ())
    write(plan, messages("a"), kept=kept)
    write(numbered(plan, 2), messages("b"))
    assert write(numbered(plan, 2), messages("x"), kept=kept) == Delivery(0, 1)
    assert write(numbered(plan, 3), messages("c"), kept=kept) == Delivery(0, 1)
    assert (values_of(plan), len(producers)) == (["a", "b", "c"], 3)


def test_a_number_that_was_closed_is_closed_to_a_kept_producer(plan: WritePlan) -> None:
    """A fence takes the producer's id over, and the page tells whose it is."""
    kept = TransactionalSession(plan.address, 0, ())
    write(plan, messages("a"), kept=kept)
    two = numbered(plan, 2)

    def fenced() -> Iterator[pa.RecordBatch]:
        sink(plan).fence(plan.address.ledger, 2, no_spark)
        yield from messages("b")

    assert write(two, fenced(), kept=kept) == Delivery(0, recorded=Recorded(2, is_fence=True))
    assert values_of(plan) == ["a"]
    assert write(numbered(plan, 3), messages("c"), kept=kept) == Delivery(0, 1)


def test_a_producer_that_nobody_used_for_long_is_not_kept(
    plan: WritePlan, producers: list[Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections may be closed at the other end."""
    kept = TransactionalSession(plan.address, 0, ())
    write(plan, messages("a"), kept=kept)
    kept._last_use -= KEPT_SECONDS + 1
    write(numbered(plan, 2), messages("b"), kept=kept)
    assert (values_of(plan), len(producers)) == (["a", "b"], 2)


def test_a_writer_that_fails_does_not_keep_its_producer(plan: WritePlan, producers: list[Producer]) -> None:
    """It may have a transaction open."""
    kept = TransactionalSession(plan.address, 0, ())
    with pytest.raises(Killed):
        write(plan, then_killed(messages("a")), kept=kept)
    assert write(plan, messages("b"), kept=kept) == Delivery(0, 1)
    assert (values_of(plan), len(producers)) == (["b"], 2)


def intended(kafka_sink: Kafka, spark: SparkSession, number: int, size: BatchSize = SMALL) -> Batch:
    """A small batch as the step hands it over."""
    frozen = kafka_sink.freeze_at_once(lambda: spark, size)
    assert frozen is not None
    return replace(batch(number, size=size), frozen={kafka_sink.name: frozen})


@pytest.mark.spark
@pytest.mark.parametrize(
    "size", [BatchSize(), BatchSize(5), BatchSize(SMALL_ROWS + 1, is_bound=True), BatchSize(None, 10, is_bound=True)]
)
def test_a_batch_that_is_not_known_to_be_small_goes_out_in_pieces(kafka: Broker, size: BatchSize) -> None:
    """Nobody is asked for it."""
    assert Kafka(kafka.bootstrap, "no-such-topic").freeze_at_once(no_spark, size) is None


@pytest.mark.spark
def test_messages_at_once_are_those_of_tasks(spark: SparkSession, kafka: Broker, topic: Callable[..., str]) -> None:
    """Key, value, partition and the order in a key; a repeat with other rows adds nothing."""
    rows = spark.range(60).selectExpr("id % 7 AS k", "id AS v", f"id AS {POSITION}").repartition(4)
    small, tasks = (Kafka(kafka.bootstrap, topic(partitions=3), key="k", value="text:v") for _ in range(2))
    made = intended(small, spark, 1, BatchSize(60, is_bound=True))
    assert [small.write(rows, made), small.write(rows.limit(3), replace(made, attempt="a2"))] == [60, 60]
    tasks.write(rows, replace(batch(1), frozen={"kafka": tasks.freeze(lambda: spark)}))
    seen, by_tasks = (
        sorted(
            ((each.partition, each.key, each.value) for each in committed(kafka.bootstrap, sink.topic)),
            key=lambda message: message[:2],
        )
        for sink in (small, tasks)
    )
    assert (seen, made.notes.ways) == (by_tasks, {"kafka": "arrow"})


@pytest.mark.spark
def test_more_rows_than_were_expected_are_one_transaction_of_a_task(
    spark: SparkSession, kafka: Broker, topic: Callable[..., str]
) -> None:
    """They came between look and read; they do not all come to the driver, and nothing of them is out by itself."""
    sink = Kafka(kafka.bootstrap, topic(partitions=2), value="text:id", chunk_rows=1_000)
    made = intended(sink, spark, 1)
    assert sink.write(spark.range(SMALL_ROWS + 5), made) == SMALL_ROWS + 5
    assert made.notes.ways == {"kafka": "spark"}
    pages = sink._pages(made.ledger(sink.name))
    assert {(page.rows, page.done, page.writers) for page in pages.values()} == {(SMALL_ROWS + 5, True, 1)}
    bounds = sink._topic._bounds(2)
    assert sum(each.end for each in bounds) == SMALL_ROWS + 5 + len(bounds)  # one marker ends it in each partition


@pytest.mark.spark
def test_a_batch_without_rows_is_recorded_at_once(
    spark: SparkSession, kafka: Broker, topic: Callable[..., str]
) -> None:
    """The number has to be known to the sink."""
    sink = Kafka(kafka.bootstrap, topic(partitions=3))
    one = intended(sink, spark, 1)
    assert sink.write(frame(spark, "v string"), one) == 0
    assert sink.recorded(one.ledger(sink.name), lambda: spark) == Recorded(1, one.digest)

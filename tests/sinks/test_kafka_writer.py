"""The protocol of one Kafka writer against a real broker, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException, TopicPartition

from floodmark.probes.kafka.client import KafkaOptions
from floodmark.sinks.kafka import Kafka
from floodmark.sinks.kafka.ledger import CannotTell, Layout, Page, stamp
from floodmark.sinks.kafka.producer import Place, Session
from floodmark.sinks.kafka.writer import Delivered, Order, Writer
from floodmark.testing.servers import Broker
from tests.sinks.kafka_messages import committed, delete_group, messages, rows, values

if TYPE_CHECKING:
    import pyarrow as pa


class Killed(Exception):
    """Stands for the end of a process between two chunks."""


@pytest.fixture
def order(kafka: Broker, topic: Callable[..., str]) -> Order:
    """Batch 1 of a ledger of this test alone: one writer, two rows per transaction."""
    name = topic(partitions=2)
    place = Place(KafkaOptions(kafka.bootstrap), name, f"floodmark.{name}.job.kafka")
    return Order(place, 1, "d1", Layout(2, 1, (0, 0), "intent-1"), chunk_rows=2, chunk_seconds=60)


def write(order: Order, batches: Iterable[pa.RecordBatch]) -> Delivered:
    """As the sink does it: the driver settles the order, and a task writes."""
    return Writer(order.settled(sink(order)._pages(order.place.ledger)), 0).run(batches)


def then_killed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    raise Killed


def found(order: Order) -> list[str]:
    return values(str(order.place.options.servers), order.place.topic)


def sink(order: Order) -> Kafka:
    return Kafka(order.place.options.servers, order.place.topic)


def no_spark() -> None:
    raise AssertionError("Spark was asked for")


def test_rows_arrive_once_and_the_last_of_every_few_is_stamped(order: Order) -> None:
    """The stamp names ledger, number and writer, and counts its rows, so that a lost ledger can be made good."""
    write(replace(order, chunk_rows=10), [rows(["a", "b", "c"]), rows(["d", "e"])])
    seen = committed(order.place.options.servers, order.place.topic)
    assert [each.value for each in seen] == [b"a", b"b", b"c", b"d", b"e"]
    label = f"{order.place.ledger}:1:0".encode()
    stamps = [{"fm": label, "fm-rows": b"3"}, {"fm": label, "fm-rows": b"5"}]
    assert [each.headers for each in seen] == [{}, {}, stamps[0], {}, stamps[1]]


def test_a_repeated_batch_adds_nothing_and_knows_its_rows(order: Order) -> None:
    """What the ledger has is skipped."""
    write(order, messages("a", "b", "c"))
    assert write(order, messages("a", "b", "c")) == Delivered(0, 3)
    assert found(order) == ["a", "b", "c"]


def test_a_killed_writer_is_continued_at_its_last_chunk(order: Order) -> None:
    """Rows and their count are committed together: two of the three rows were out, the third was aborted."""
    with pytest.raises(Killed):
        write(order, then_killed(messages("a", "b", "c")))
    assert found(order) == ["a", "b"]
    assert write(order, messages("a", "b", "c", "d")) == Delivered(0, 4)
    assert found(order) == ["a", "b", "c", "d"]


def test_an_open_transaction_of_a_dead_writer_leaves_nothing_visible(order: Order) -> None:
    """A new producer with the same id settles what its predecessor left open."""
    dead = Session(order.place, 0, [0, 1])
    dead.open()
    dead.begin()
    dead.send(rows(["a", "b"]), stamp(order.label(0), 2))
    dead._producer.flush(10)
    assert write(order, messages("a", "b")) == Delivered(0, 2)
    assert found(order) == ["a", "b"]


def test_a_deleted_ledger_is_made_good_from_the_stamps(order: Order) -> None:
    """Group offsets expire; what stands in the topic says how many rows are out."""
    with pytest.raises(Killed):
        write(order, then_killed(messages("a", "b", "c")))
    delete_group(order.place.options.servers, order.place.ledger, order.place.topic)
    assert write(order, messages("a", "b", "c")) == Delivered(0, 3)
    assert found(order) == ["a", "b", "c"]


def test_rows_of_other_ledgers_do_not_count_when_the_ledger_is_gone(order: Order) -> None:
    """Two jobs may write to one topic."""
    write(replace(order, place=replace(order.place, ledger="another")), messages("x", "y"))
    assert write(order, messages("a")) == Delivered(0, 1)
    assert found(order) == ["a", "x", "y"]


def test_a_deleted_ledger_and_deleted_records_cannot_be_decided(order: Order) -> None:
    """Nothing is left that could tell, so nothing is written."""
    write(order, messages("a", "b"))
    delete_group(order.place.options.servers, order.place.ledger, order.place.topic)
    admin = order.place.options.admin()
    place = TopicPartition(order.place.topic, 0, 1)
    admin.delete_records([place])[place].result(20)
    with pytest.raises(CannotTell, match="partition 0"):
        write(order, messages("a", "b"))
    assert found(order) == ["b"]


def test_the_transaction_of_a_dead_writer_does_not_hide_how_far_another_got(order: Order) -> None:
    """Writers share partitions: all of them are settled before the topic is asked about the one without a page."""
    two = replace(order, layout=replace(order.layout, writers=2))
    write(two, messages("a", "b"))
    dead = Session(order.place, 1, [1])
    dead.open()
    dead.begin()
    dead.send(rows(["x"]), stamp(order.label(1), 1))
    dead._producer.flush(10)
    assert two.settled({1: Page(0, 0, done=True, partitions=2, writers=2)}).out == {0: 2}


def test_a_ledger_that_goes_away_under_a_writer_cannot_be_decided(order: Order) -> None:
    """The topic is asked before the writers begin, and not while they write."""
    answer = Writer(order, 0).run(messages("a"))
    assert answer == Delivered(0, lost="its ledger went away while the batch was written")
    assert found(order) == []


def test_a_fenced_writer_succeeds_if_its_successor_finished(order: Order) -> None:
    """Two attempts of one task: the second takes over, and the first agrees with its result."""

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield from messages("a", "b", "c")
        write(order, messages("a", "b", "c", "d"))
        yield from messages("d")

    assert write(order, overtaken()) == Delivered(0, 4)
    assert found(order) == ["a", "b", "c", "d"]


def test_a_fenced_writer_fails_if_its_successor_is_not_done(order: Order) -> None:
    """It may not write, and cannot say that the rows are out."""

    def taken_over() -> Iterator[pa.RecordBatch]:
        yield from messages("a", "b", "c")
        Session(order.place, 0, [0, 1]).open()
        yield from messages("d")

    with pytest.raises(KafkaException):
        write(order, taken_over())
    assert found(order) == ["a", "b"]


def test_the_same_number_for_other_rows_is_refused(order: Order) -> None:
    """A store that was restored would write another batch under a number that is used."""
    write(order, messages("a"))
    assert write(replace(order, digest="d2"), messages("b")) == Delivered(0, recorded="d1")
    assert found(order) == ["a"]


def test_half_a_batch_is_only_continued_by_its_own_intent(order: Order) -> None:
    """Another intent has another spool, whose rows may stand in another order."""
    with pytest.raises(Killed):
        write(order, then_killed(messages("a", "b", "c")))
    other = replace(order, layout=replace(order.layout, token="intent-2"))
    assert write(other, messages("b", "a", "c")) == Delivered(0, recorded="d1")


def test_a_lower_number_than_recorded_writes_nothing(order: Order) -> None:
    """A runner that was paused for long finds that it is over."""
    write(replace(order, number=2), messages("b"))
    assert write(order, messages("a")) == Delivered(0)
    assert found(order) == ["b"]


def test_a_fence_shuts_out_a_writer_that_is_paused_within_a_transaction(order: Order) -> None:
    """All producer ids are taken over before the number is recorded."""

    def paused() -> Iterator[pa.RecordBatch]:
        yield from messages("a")
        sink(order).fence(order.place.ledger, 1, no_spark)  # type: ignore[arg-type]
        yield from messages("b")

    assert write(order, paused()) == Delivered(0, 0)
    assert found(order) == []


def test_a_batch_is_recorded_when_all_writers_are_done(order: Order) -> None:
    """One of two writers is not enough; the batch before it still counts."""
    write(order, messages("a"))
    two = replace(order, number=2, digest="d2", layout=Layout(2, 2, (0, 0), "intent-2"))
    Writer(two, 0).run(messages("b"))
    before = sink(order).recorded(order.place.ledger, no_spark)  # type: ignore[arg-type]
    Writer(two, 1).run(())
    after = sink(order).recorded(order.place.ledger, no_spark)  # type: ignore[arg-type]
    assert before is not None
    assert after is not None
    assert (before.number, after.number, after.digest) == (1, 2, "d2")


def test_a_batch_that_is_half_out_is_said_to_have_begun(order: Order) -> None:
    """Dropping it would repeat the rows that readers have seen."""
    with pytest.raises(Killed):
        write(order, then_killed(messages("a", "b", "c")))
    assert sink(order).begun(order.place.ledger, no_spark) == 1  # type: ignore[arg-type]
    assert sink(order).recorded(order.place.ledger, no_spark) is None  # type: ignore[arg-type]


@pytest.mark.crash
def test_a_broker_that_is_killed_and_started_again_costs_no_row(order: Order, kafka: Broker) -> None:
    """The transaction that was open is settled, and what it held is sent again."""

    def through_an_outage() -> Iterator[pa.RecordBatch]:
        yield from messages("a", "b", "c")
        kafka.kill()
        kafka.start()
        yield from messages("d", "e")

    assert write(order, through_an_outage()) == Delivered(0, 5)
    assert found(order) == ["a", "b", "c", "d", "e"]

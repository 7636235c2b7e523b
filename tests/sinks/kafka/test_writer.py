"""The protocol of one Kafka writer against a real broker, without Spark."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition

from floodmark.probes.kafka.client import KafkaOptions
from floodmark.sinks.contract import Recorded
from floodmark.sinks.kafka import Kafka
from floodmark.sinks.kafka.ledger import CannotTell, Layout, LedgerPage, stamp
from floodmark.sinks.kafka.producer import LedgerAddress, TransactionalSession, fence_page
from floodmark.sinks.kafka.writer import Delivery, WritePlan, Writer
from floodmark.testing.servers import Broker
from tests.sinks.batches import batch
from tests.sinks.kafka.messages import committed, delete_group, messages, rows, values

if TYPE_CHECKING:
    import pyarrow as pa


class Killed(Exception):
    """Stands for the end of a process in the middle of a batch."""


@pytest.fixture
def plan(kafka: Broker, topic: Callable[..., str]) -> WritePlan:
    """Batch 1 of a ledger of this test alone: one writer, two rows per transaction."""
    return first_plan(kafka, topic(partitions=2))


def first_plan(kafka: Broker, topic: str, *, at_once: bool = False) -> WritePlan:
    address = LedgerAddress(KafkaOptions(kafka.bootstrap), topic, f"floodmark.{topic}.job.kafka")
    return WritePlan(address, 1, "d1", Layout(2, 1, (0, 0), "intent-1", at_once), chunk_rows=2, chunk_seconds=60)


def write(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> Delivery:
    """As the sink does it: the driver settles the plan, and a task writes."""
    return Writer(plan.with_rows_out(sink(plan)._pages(plan.address.ledger)), 0).run(batches)


def then_killed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    raise Killed


def values_of(plan: WritePlan) -> list[str]:
    return values(str(plan.address.options.servers), plan.address.topic)


def sink(plan: WritePlan) -> Kafka:
    return Kafka(plan.address.options.servers, plan.address.topic)


def no_spark() -> None:
    raise AssertionError("Spark was asked for")


FENCE = Recorded(1, is_fence=True)


def recorded(plan: WritePlan) -> Recorded | None:
    return sink(plan).recorded(plan.address.ledger, no_spark)  # type: ignore[arg-type]


def partial_batch(plan: WritePlan) -> int | None:
    return sink(plan).partial_batch(plan.address.ledger, no_spark)  # type: ignore[arg-type]


def test_rows_arrive_once_and_the_last_of_every_few_is_stamped(plan: WritePlan) -> None:
    """The stamp names ledger, number and writer, and counts its rows, so that a lost ledger can be made good."""
    write(replace(plan, chunk_rows=10), [rows(["a", "b", "c"]), rows(["d", "e"])])
    seen = committed(plan.address.options.servers, plan.address.topic)
    assert [each.value for each in seen] == [b"a", b"b", b"c", b"d", b"e"]
    label = f"{plan.address.ledger}:1:0".encode()
    stamps = [{"fm": label, "fm-rows": b"3"}, {"fm": label, "fm-rows": b"5"}]
    assert [each.headers for each in seen] == [{}, {}, stamps[0], {}, stamps[1]]


def test_a_repeated_batch_adds_nothing_and_knows_its_rows(plan: WritePlan) -> None:
    """What the ledger has is skipped."""
    write(plan, messages("a", "b", "c"))
    assert write(plan, messages("a", "b", "c")) == Delivery(0, 3)
    assert values_of(plan) == ["a", "b", "c"]


def test_a_killed_writer_is_continued_at_its_last_chunk(plan: WritePlan) -> None:
    """Rows and their count are committed together: two of the three rows were out, the third was aborted."""
    with pytest.raises(Killed):
        write(plan, then_killed(messages("a", "b", "c")))
    assert values_of(plan) == ["a", "b"]
    assert write(plan, messages("a", "b", "c", "d")) == Delivery(0, 4)
    assert values_of(plan) == ["a", "b", "c", "d"]


def test_an_open_transaction_of_a_dead_writer_leaves_nothing_visible(plan: WritePlan) -> None:
    """A new producer with the same id settles what its predecessor left open."""
    dead = TransactionalSession(plan.address, 0, [0, 1])
    dead.open()
    dead.begin()
    dead.send(rows(["a", "b"]), stamp(plan.label(0), 2))
    dead._producer.flush(10)
    assert write(plan, messages("a", "b")) == Delivery(0, 2)
    assert values_of(plan) == ["a", "b"]


def test_a_deleted_ledger_is_made_good_from_the_stamps(plan: WritePlan) -> None:
    """Group offsets expire; what stands in the topic says how many rows are out."""
    with pytest.raises(Killed):
        write(plan, then_killed(messages("a", "b", "c")))
    delete_group(plan.address.options.servers, plan.address.ledger, plan.address.topic)
    assert write(plan, messages("a", "b", "c")) == Delivery(0, 3)
    assert values_of(plan) == ["a", "b", "c"]


def test_a_ledger_may_be_forgotten_where_the_topic_was_written_to(plan: WritePlan) -> None:
    """One that was made anew has lost its rows, and not only the ledger."""
    before = sink(plan).may_have_forgotten(plan.address.ledger)
    write(plan, messages("a"))
    assert (before, sink(plan).may_have_forgotten(plan.address.ledger)) == (False, True)


def test_half_a_batch_is_known_again_after_its_ledger_was_forgotten(plan: WritePlan) -> None:
    """Else a batch whose code was changed meanwhile would be dropped, and its rows come twice."""
    with pytest.raises(Killed):
        write(plan, then_killed(messages("a", "b", "c")))
    delete_group(plan.address.options.servers, plan.address.ledger, plan.address.topic)
    frozen = {"kafka": plan.layout.to_json()}
    half = replace(batch(1), namespace=plan.address.topic, job="job", digest="d1", frozen=frozen)
    sink(plan).make_good(half, no_spark)  # type: ignore[arg-type]
    assert (half.ledger("kafka"), partial_batch(plan), recorded(plan)) == (plan.address.ledger, 1, None)
    assert write(plan, messages("a", "b", "c")) == Delivery(0, 3)
    assert values_of(plan) == ["a", "b", "c"]


def test_rows_of_other_ledgers_do_not_count_when_the_ledger_is_gone(plan: WritePlan) -> None:
    """Two jobs may write to one topic."""
    write(replace(plan, address=replace(plan.address, ledger="another")), messages("x", "y"))
    assert write(plan, messages("a")) == Delivery(0, 1)
    assert values_of(plan) == ["a", "x", "y"]


def test_a_deleted_ledger_and_deleted_records_cannot_be_decided(plan: WritePlan) -> None:
    """Nothing is left that could tell, so nothing is written."""
    write(plan, messages("a", "b"))
    delete_group(plan.address.options.servers, plan.address.ledger, plan.address.topic)
    admin = plan.address.options.admin()
    place = TopicPartition(plan.address.topic, 0, 1)
    admin.delete_records([place])[place].result(20)
    with pytest.raises(CannotTell, match="partition 0"):
        write(plan, messages("a", "b"))
    assert values_of(plan) == ["b"]


def test_the_transaction_of_a_dead_writer_does_not_hide_how_far_another_got(plan: WritePlan) -> None:
    """Writers share partitions: all of them are settled before the topic is asked about the one without a page."""
    two = replace(plan, layout=replace(plan.layout, writers=2))
    write(two, messages("a", "b"))
    dead = TransactionalSession(plan.address, 1, [1])
    dead.open()
    dead.begin()
    dead.send(rows(["x"]), stamp(plan.label(1), 1))
    dead._producer.flush(10)
    assert two.with_rows_out({1: LedgerPage(0, 0, done=True, partitions=2, writers=2)}).rows_out == {0: 2}


def test_the_layout_that_was_frozen_with_the_intent_is_used(plan: WritePlan) -> None:
    """Today's would send rows through other writers, which do not know that these are out."""
    one = replace(batch(1), frozen={"kafka": replace(plan.layout, partitions=1).to_json()})
    assert sink(plan)._plan(no_spark, one, {}).layout == replace(plan.layout, partitions=1)  # type: ignore[arg-type]


def test_a_ledger_that_goes_away_under_a_writer_cannot_be_decided(plan: WritePlan) -> None:
    """The topic is asked before the writers begin, and not while they write."""
    answer = Writer(plan, 0).run(messages("a"))
    assert answer == Delivery(0, undecided="its ledger went away while the batch was written")
    assert values_of(plan) == []


def test_a_fenced_writer_succeeds_if_its_successor_finished(plan: WritePlan) -> None:
    """Two attempts of one task: the second takes over, and the first agrees with its result."""

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield from messages("a", "b", "c")
        write(plan, messages("a", "b", "c", "d"))
        yield from messages("d")

    assert write(plan, overtaken()) == Delivery(0, 4)
    assert values_of(plan) == ["a", "b", "c", "d"]


def test_a_fenced_writer_fails_if_its_successor_is_not_done(plan: WritePlan) -> None:
    """It may not write, and cannot say that the rows are out."""

    def taken_over() -> Iterator[pa.RecordBatch]:
        yield from messages("a", "b", "c")
        TransactionalSession(plan.address, 0, [0, 1]).open()
        yield from messages("d")

    with pytest.raises(KafkaException):
        write(plan, taken_over())
    assert values_of(plan) == ["a", "b"]


def test_the_same_number_for_other_rows_is_refused(plan: WritePlan) -> None:
    """A store that was restored would write another batch under a number that is used."""
    write(plan, messages("a"))
    assert write(replace(plan, digest="d2"), messages("b")) == Delivery(0, recorded=Recorded(1, "d1"))
    assert values_of(plan) == ["a"]


def test_half_a_batch_is_only_continued_by_its_own_intent(plan: WritePlan) -> None:
    """Another intent has another spool, whose rows may stand in another order."""
    with pytest.raises(Killed):
        write(plan, then_killed(messages("a", "b", "c")))
    other = replace(plan, layout=replace(plan.layout, token="intent-2"))
    assert write(other, messages("b", "a", "c")) == Delivery(0, recorded=Recorded(1, "d1"))


def test_a_lower_number_than_recorded_writes_nothing(plan: WritePlan) -> None:
    """A runner that was paused for long finds that it is over, and by whom."""
    write(replace(plan, number=2), messages("b"))
    assert write(plan, messages("a")) == Delivery(0, recorded=Recorded(2, "d1"))
    assert values_of(plan) == ["b"]


def test_a_fence_shuts_out_a_writer_that_is_paused_within_a_transaction(plan: WritePlan) -> None:
    """All producer ids are taken over before the number is recorded."""

    def paused() -> Iterator[pa.RecordBatch]:
        yield from messages("a")
        sink(plan).fence(plan.address.ledger, 1, no_spark)  # type: ignore[arg-type]
        yield from messages("b")

    assert write(plan, paused()) == Delivery(0, recorded=FENCE)
    assert recorded(plan) == FENCE
    assert (partial_batch(plan), values_of(plan)) == (None, [])


def test_a_fence_comes_between_a_writer_and_the_chunk_that_it_has_in_hand(plan: WritePlan) -> None:
    """A writer that was started after the ids were taken over finds the number closed when it opens its own."""
    sink(plan).fence(plan.address.ledger, 1, no_spark)  # type: ignore[arg-type]
    assert write(plan, messages("a", "b")) == Delivery(0, recorded=FENCE)
    assert values_of(plan) == []


def test_a_fence_over_half_a_batch_still_says_that_half_of_it_is_out(plan: WritePlan) -> None:
    """Whoever fences first and asks afterwards must not take the batch for one that nobody has seen."""
    with pytest.raises(Killed):
        write(plan, then_killed(messages("a", "b", "c")))
    sink(plan).fence(plan.address.ledger, 1, no_spark)  # type: ignore[arg-type]
    assert (recorded(plan), partial_batch(plan)) == (FENCE, 1)
    assert write(plan, messages("a", "b", "c")) == Delivery(0, recorded=FENCE)
    assert values_of(plan) == ["a", "b"]


def test_a_fence_that_is_broken_off_half_way_closes_the_number_already(plan: WritePlan) -> None:
    """Half the writers could not finish the batch any more, so nobody may begin to."""
    fence_page(plan.address, 1, 1, 2)
    assert recorded(plan) == FENCE
    sink(plan).fence(plan.address.ledger, 1, no_spark)  # type: ignore[arg-type]
    pages = sink(plan)._pages(plan.address.ledger)
    assert [pages[partition].is_fence for partition in (0, 1)] == [True, True]


def test_a_fence_changes_nothing_where_the_number_is_written(plan: WritePlan) -> None:
    """Who came first is asked afterwards, so it has to be seen then."""
    write(plan, messages("a"))
    sink(plan).fence(plan.address.ledger, 1, no_spark)  # type: ignore[arg-type]
    assert recorded(plan) == Recorded(1, "d1")


def test_the_batch_after_a_fence_is_written(plan: WritePlan) -> None:
    """Under the next number, and by the digest of its own."""
    sink(plan).fence(plan.address.ledger, 1, no_spark)  # type: ignore[arg-type]
    assert write(replace(plan, number=2, digest="d2"), messages("a")) == Delivery(0, 1)
    assert recorded(plan) == Recorded(2, "d2")


def test_a_fence_makes_a_topic_that_may_be_made_and_leaves_another_alone(kafka: Broker) -> None:
    """Nothing can be written to a topic that is not there; one that the sink makes has to be closed before that."""
    name = f"made-{uuid.uuid4().hex}"
    missing, made = Kafka(kafka.bootstrap, name), Kafka(kafka.bootstrap, name, create={"partitions": 2})
    missing.fence(name, 3, no_spark)  # type: ignore[arg-type]
    before = missing.recorded(name, no_spark)  # type: ignore[arg-type]
    made.fence(name, 3, no_spark)  # type: ignore[arg-type]
    assert (before, made.recorded(name, no_spark)) == (None, Recorded(3, is_fence=True))  # type: ignore[arg-type]


def test_a_fence_of_an_earlier_version_is_known_by_what_it_lacks() -> None:
    """It had neither digest nor rows; a batch always had a digest."""
    facts = {"number": 3, "rows": 0, "done": True, "partitions": 1, "writers": 1, "before": 2}
    fence, batch = (json.dumps({"format": 1, **facts, "digest": each, "token": None}) for each in (None, "d3"))
    pages = [LedgerPage.from_offset(TopicPartition("orders", 0, 3, text)) for text in (fence, batch)]
    assert [page.is_fence for page in pages if page] == [True, False]


def test_the_ledger_is_read_after_the_predecessor_was_shut_out(
    plan: WritePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read before, it would miss the chunk that the predecessor commits in between, and send it again."""
    settled = plan.with_rows_out({})
    first = Writer(settled, 0)
    first.rows_out = first._rows_out_by(first.session.open())
    real = LedgerAddress.producer

    def producer(address: LedgerAddress, writer: int) -> Producer:
        monkeypatch.setattr(LedgerAddress, "producer", real)
        first._add(rows(["a", "b"]))
        return real(address, writer)

    monkeypatch.setattr(LedgerAddress, "producer", producer)
    assert Writer(settled, 0).run(messages("a", "b", "c")) == Delivery(0, 3)
    assert values_of(plan) == ["a", "b", "c"]


def test_other_rows_than_those_that_are_out_are_not_sent(plan: WritePlan) -> None:
    """A joined table was changed between kill and rerun: what is skipped is not what was sent."""
    with pytest.raises(Killed):
        write(plan, then_killed(messages("a", "b", "c")))
    difference = "2 rows are out, and the first 2 of now are not the same"
    assert write(plan, messages("a", "x", "c")) == Delivery(0, difference=difference)
    assert write(plan, messages("a", "b", "x")) == Delivery(0, 3)
    assert values_of(plan) == ["a", "b", "x"]


def test_fewer_rows_than_are_out_are_noticed(plan: WritePlan) -> None:
    """The rows that are missing may be with another writer now, which would send them again."""
    with pytest.raises(Killed):
        write(plan, then_killed(messages("a", "b", "c")))
    assert write(plan, messages("a")) == Delivery(0, difference="2 rows are out, and there are only 1 now")


def test_a_writer_that_had_finished_is_given_the_same_rows_again(plan: WritePlan) -> None:
    """Another writer of the batch had not: a row that changed sides would be sent twice."""
    two = replace(plan, layout=replace(plan.layout, writers=2)).with_rows_out({})
    Writer(two, 0).run(messages("a", "b"))
    again = [Writer(two, 0).run(messages(*texts)) for texts in ("ab", "ax", "abc", "")]
    assert again[0] == Delivery(0, 2)
    assert [each.difference for each in again[1:]] == [
        "2 rows are out, and the first 2 of now are not the same",
        "2 rows are out, and 1 or more follow now",
        "2 rows are out, and there are only 0 now",
    ]


def test_half_a_batch_of_an_earlier_version_is_continued_without_a_hash(plan: WritePlan) -> None:
    """It had none to compare with."""
    session = TransactionalSession(plan.address, 0, [0, 1])
    session.open()
    session.begin()
    session.send(rows(["a", "b"]), stamp(plan.label(0), 2))
    session.commit(LedgerPage(1, 2, False, 2, 1, 0, "d1", "intent-1"))
    session.close()
    assert write(plan, messages("a", "b", "c")) == Delivery(0, 3)
    assert values_of(plan) == ["a", "b", "c"]


def test_a_batch_is_recorded_when_all_writers_are_done(plan: WritePlan) -> None:
    """One of two writers is not enough; the batch before it still counts."""
    write(plan, messages("a"))
    two = replace(plan, number=2, digest="d2", layout=Layout(2, 2, (0, 0), "intent-2"))
    Writer(two, 0).run(messages("b"))
    before = sink(plan).recorded(plan.address.ledger, no_spark)  # type: ignore[arg-type]
    Writer(two, 1).run(())
    after = sink(plan).recorded(plan.address.ledger, no_spark)  # type: ignore[arg-type]
    assert before is not None
    assert after is not None
    assert (before.number, after.number, after.digest) == (1, 2, "d2")


def test_a_batch_that_is_half_out_is_told_by_its_number(plan: WritePlan) -> None:
    """Dropping it would repeat the rows that readers have seen."""
    with pytest.raises(Killed):
        write(plan, then_killed(messages("a", "b", "c")))
    assert sink(plan).partial_batch(plan.address.ledger, no_spark) == 1  # type: ignore[arg-type]
    assert sink(plan).recorded(plan.address.ledger, no_spark) is None  # type: ignore[arg-type]


@pytest.mark.crash
def test_a_broker_that_is_killed_and_started_again_costs_no_row(plan: WritePlan, kafka: Broker) -> None:
    """The transaction that was open is settled, and what it held is sent again."""

    def through_an_outage() -> Iterator[pa.RecordBatch]:
        yield from messages("a", "b", "c")
        kafka.kill()
        kafka.start()
        yield from messages("d", "e")

    assert write(plan, through_an_outage()) == Delivery(0, 5)
    assert values_of(plan) == ["a", "b", "c", "d", "e"]

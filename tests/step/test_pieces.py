"""A sink that takes a batch in several transactions: part of one may be out, or hidden, when the next run comes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from floodmark.errors import BatchClosed, CodeChanged, SinkBehind
from floodmark.sinks.contract import Batch, Recorded
from floodmark.step.run import reset_marks
from floodmark.step.work import RunRequest
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import JobRecord
from floodmark.testing import InjectedFailure
from tests.step.unsparked import Code, LedgerSink, ledger_of, step_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from floodmark.sinks.contract import BatchSize, Sink
    from floodmark.sources.contract import Session
    from floodmark.stores.contract import MarkStore

LEDGER = ledger_of("topic")


@dataclass
class PieceSink(LedgerSink):
    """The first write takes one row and fails; `layouts` are the answers to `freeze`, `written_as` what came back."""

    name: str = "topic"
    part: int | None = None
    layouts: list[str] = field(default_factory=lambda: ["first", "second"])
    target_is_old: bool = True
    forgotten_part: int | None = None
    written_as: list[Any] = field(default_factory=list)

    def freeze(self, session: Session) -> dict[str, Any]:
        return {"layout": self.layouts.pop(0)}

    def partial_batch(self, ledger: str, session: Session) -> int | None:
        return self.part

    def end_transactions(self, ledger: str, session: Session) -> None:
        self.calls.append("settle")

    def may_have_forgotten(self, ledger: str) -> bool:
        return self.target_is_old

    def make_good(self, batch: Batch, session: Session) -> None:
        self.calls.append(f"make good {batch.number} {batch.frozen[self.name]['layout']}")
        self.part = self.part or self.forgotten_part

    def recorded(self, ledger: str, session: Session) -> Recorded | None:
        self.calls.append("recorded")
        return super().recorded(ledger, session)

    def write(self, rows: DataFrame, batch: Batch) -> int:
        self.written_as.append(batch.frozen[self.name]["layout"])
        if len(self.written_as) == 1:
            self.part = batch.number
            raise InjectedFailure
        return super().write(rows, batch)


@pytest.fixture
def store() -> MarkStore:
    return MemoryMarkStore()


@pytest.fixture
def topic(store: MarkStore) -> PieceSink:
    """After a run that was broken off when part of its batch was out."""
    sink = PieceSink()
    with pytest.raises(Exception, match="topic"):
        step_of(store, [1, 2], sink).run()
    sink.calls.clear()
    return sink


def test_half_a_batch_is_not_dropped_when_the_code_changed(store: MarkStore, topic: PieceSink) -> None:
    """Its rows would come a second time, under the next number."""
    with pytest.raises(CodeChanged) as stop:
        step_of(store, [1, 2], topic, code="2").run()
    assert (stop.value.confirmed, stop.value.number) == (("topic",), 1)


def test_half_a_batch_whose_number_was_fenced_is_a_decision(store: MarkStore, topic: PieceSink) -> None:
    """It cannot be finished, and to read it again would repeat what is out."""
    topic.ledger[LEDGER] = Recorded(1, is_fence=True)
    with pytest.raises(BatchClosed):
        step_of(store, [1, 2], topic).run()


def test_what_a_sink_froze_with_the_intent_comes_back_at_every_attempt(store: MarkStore, topic: PieceSink) -> None:
    """Another layout would send rows that are out through another writer, which does not know them."""
    step_of(store, [1, 2], topic).run()
    assert (topic.written_as, topic.layouts) == (["first", "first"], ["second"])


def test_what_a_killed_run_left_open_is_settled_before_the_sink_is_asked(store: MarkStore, topic: PieceSink) -> None:
    """Else the first question waits until the broker has ended the transaction."""
    step_of(store, [1, 2], topic).run()
    assert [call for call in topic.calls if not call.startswith("make")][:2] == ["settle", "recorded"]


def test_a_reset_settles_too(store: MarkStore, topic: PieceSink) -> None:
    """A person who gives the batch up must not wait either."""
    reset_marks(step_of(store, [1, 2], topic))
    assert topic.calls[0] == "settle"


def test_an_ordinary_run_settles_nothing(store: MarkStore) -> None:
    """It takes over whatever is open: only who finds an open batch under the lease may do that."""
    topic = PieceSink(written_as=["earlier"])
    step_of(store, [1, 2], topic).run()
    assert "settle" not in topic.calls


def test_a_ledger_that_the_server_forgot_is_no_loss(store: MarkStore) -> None:
    """A job that is quiet for longer than a broker keeps offsets goes on by itself."""
    topic = PieceSink(written_as=["earlier"])
    step_of(store, [1], topic).run()
    topic.ledger.clear()
    assert step_of(store, [1, 2], topic).run().number == 2
    assert topic.rows == [1, 2]


def test_a_target_that_was_made_anew_is_a_loss(store: MarkStore) -> None:
    """What it had confirmed is gone with it."""
    topic = PieceSink(written_as=["earlier"], target_is_old=False)
    step_of(store, [1], topic).run()
    topic.ledger.clear()
    with pytest.raises(SinkBehind):
        step_of(store, [1, 2], topic).run()


def test_half_a_batch_whose_ledger_was_forgotten_is_not_taken_for_none(store: MarkStore, topic: PieceSink) -> None:
    """The target is asked before it is decided; whoever gives the batch up need not know."""
    topic.part, topic.forgotten_part = None, 1
    with pytest.raises(CodeChanged):
        step_of(store, [1, 2], topic, code="2").run()
    assert topic.calls[:2] == ["settle", "make good 1 first"]
    topic.calls.clear()
    step_of(store, [1, 2], topic, code="2", request=RunRequest(abandon=True)).run()
    assert "make good 1 first" not in topic.calls


class Dice(Code):
    """A transform that may give other rows the second time."""

    def is_deterministic(self) -> bool:
        return False


class SmallTopic:
    """A sink that takes a batch of two rows in one transaction, and larger ones in several."""

    name = "topic"

    def __init__(self) -> None:
        self.ledger = LedgerSink("topic")

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a sink can do
        return getattr(self.ledger, name)

    def freeze(self, session: Session) -> dict[str, Any]:
        return {"transactions": "several"}

    def freeze_at_once(self, session: Session, size: BatchSize) -> dict[str, Any] | None:
        return {"transactions": "one"} if size.rows in (1, 2) else None


@pytest.mark.parametrize(("rows", "transactions", "is_spooled"), [([1, 2], "one", False), ([1, 2, 3], "several", True)])
def test_only_a_batch_that_is_taken_in_several_transactions_is_kept_for_another_attempt(
    store: MarkStore, rows: list[int], transactions: str, is_spooled: bool
) -> None:
    """Nobody compares two attempts at one that is all or nothing."""
    step = step_of(store, rows, cast("Sink", SmallTopic()))
    step = replace(step, work=replace(step.work, transform=Dice()))
    record = JobRecord("numbers")
    intent = step.plan(record, step.look(record)).intent
    assert intent.extras.frozen_options == {"topic": {"transactions": transactions}}
    assert (intent.spool is not None) == is_spooled

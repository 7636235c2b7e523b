"""A ledger belongs to the target: an open batch finds its sinks again under other names, or says that it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from floodmark.errors import Overtaken, SinkGone
from floodmark.sinks.contract import ledger_id
from floodmark.step.work import RunRequest
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import Intent
from tests.step.unsparked import LedgerSink, RunPaused, ledger_of, step_of

if TYPE_CHECKING:
    from floodmark.stores.contract import MarkStore


@pytest.fixture
def store() -> MarkStore:
    return MemoryMarkStore()


def sink(name: str, like: LedgerSink) -> LedgerSink:
    """The same target under another name."""
    return LedgerSink(name, like.rows, like.ledger, target=like.describe(), held_writes=like.held_writes)


def crash(store: MarkStore, *sinks: LedgerSink) -> None:
    """A run dies in the sink that pauses."""
    with pytest.raises(RunPaused):
        step_of(store, [1, 2], *sinks).run()
    for each in sinks:
        each.pauses = False


def open_batch(store: MarkStore) -> Intent:
    record = store.read("numbers")
    assert record is not None
    assert record.intent is not None
    return record.intent


def test_the_intent_keeps_where_the_batch_goes_in_order(store: MarkStore) -> None:
    """Target and ledger id of each sink, as they come back from the store."""
    lake, copy = LedgerSink("lake"), LedgerSink("copy", pauses=True)
    crash(store, lake, copy)
    kept = [(name, place.id, place.target) for name, place in (open_batch(store).extras.sinks or {}).items()]
    assert kept == [("lake", ledger_of("lake"), "list of lake"), ("copy", ledger_of("copy"), "list of copy")]


def test_renamed_sink(store: MarkStore) -> None:
    """It is known by its target, and the batch is finished under the name that it had."""
    lake, copy = LedgerSink("lake"), LedgerSink("copy", pauses=True)
    crash(store, lake, copy)
    bronze = sink("bronze", lake)
    record = store.read("numbers")
    assert record is not None
    found = step_of(store, [1, 2], bronze, copy).recover(record)
    assert (found.confirmed_sinks if found else None) == ("lake",)
    receipt = step_of(store, [1, 2], bronze, copy).run()
    assert (receipt.number, lake.rows, copy.rows) == (1, [1, 2], [1, 2])
    step_of(store, [1, 2, 3], bronze, copy).run()
    assert (lake.rows, copy.rows) == ([1, 2, 3], [1, 2, 3])


def test_two_sinks_that_swapped_their_names_are_told_apart(store: MarkStore) -> None:
    """Each by its own target."""
    lake, copy = LedgerSink("lake"), LedgerSink("copy", pauses=True)
    crash(store, lake, copy)
    step_of(store, [1, 2], sink("copy", lake), sink("lake", copy)).run()
    assert (lake.rows, copy.rows) == ([1, 2], [1, 2])


def test_a_new_sink_with_the_old_name_of_another_begins_with_the_next_batch(store: MarkStore) -> None:
    """Its ledger would be that of the other one."""
    lake, copy = LedgerSink("lake"), LedgerSink("copy", pauses=True)
    crash(store, lake, copy)
    new = LedgerSink("lake", target="a new list")
    step_of(store, [1, 2], sink("bronze", lake), copy, new, request=RunRequest(finish=True)).run()
    assert (lake.rows, copy.rows, new.rows) == ([1, 2], [1, 2], [])


def test_a_renamed_sink_is_fenced_in_the_ledger_that_the_paused_run_writes(store: MarkStore) -> None:
    """Under its new name alone the paused run would not notice."""
    lake = LedgerSink("lake", pauses=True)
    crash(store, lake)
    step_of(store, [1, 2], sink("bronze", lake), code="2").run()
    with pytest.raises(Overtaken):
        lake.thaw()
    assert lake.rows == [1, 2]


def test_a_target_that_is_not_in_the_job_any_more_is_a_decision(store: MarkStore) -> None:
    """Nobody can ask it whether it has the batch, which would then be read again for the others alone."""
    lake, copy = LedgerSink("lake"), LedgerSink("copy", pauses=True)
    crash(store, lake, copy)
    elsewhere = LedgerSink("lake", target="another list")
    with pytest.raises(SinkGone) as stop:
        step_of(store, [1, 2], elsewhere, copy).run()
    assert (stop.value.exit_code, stop.value.sink, stop.value.target) == (5, "lake", "list of lake")
    receipt = step_of(store, [1, 2], elsewhere, copy, request=RunRequest(abandon=True)).run()
    assert (receipt.number, elsewhere.rows, copy.rows) == (2, [1, 2], [1, 2])


def test_a_sink_before_it_that_lacks_the_batch_answers_for_one_that_is_gone(store: MarkStore) -> None:
    """Sinks are written in order: what the first does not have, and cannot get any more, no other has."""
    lake, copy = LedgerSink("lake", pauses=True), LedgerSink("copy")
    crash(store, lake, copy)
    receipt = step_of(store, [1, 2], lake).run()
    assert (receipt.number, lake.rows, lake.calls) == (2, [1, 2], ["fence 1", "write 2"])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("prod", "eu.orders", "lake"), ("prod.eu", "orders", "lake")),
        (("prod", "orders", "eu.lake"), ("prod", "orders.eu", "lake")),
        (("prod", "orders%2Eeu", "lake"), ("prod", "orders.eu", "lake")),
    ],
)
def test_names_with_dots_share_no_ledger(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    """Two jobs would else take each other's batches for their own."""
    assert ledger_id(*one) != ledger_id(*other)


def test_a_ledger_of_names_without_dots_is_as_ever() -> None:
    """What was recorded stays found."""
    assert ledger_id("default", "orders", "lake") == "floodmark.default.orders.lake"

"""Fence first, then ask, then decide: whatever a run that was paused does when it goes on, no row comes twice."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.errors import BatchClosed, CodeChanged, LeaseLost, Overtaken, SinkAhead, SinkDisagrees
from floodmark.sinks.contract import Recorded
from floodmark.step.engine import Clock
from floodmark.step.intents import fence_open_batch
from floodmark.step.run import reset_marks, set_mark
from floodmark.step.work import RunRequest
from floodmark.stores.lease import hold
from floodmark.stores.memory import MemoryMarkStore
from tests.step.unsparked import LedgerSink, RunPaused, ledger_of, no_session, step_of

if TYPE_CHECKING:
    from floodmark.stores.contract import MarkStore

LAKE, COPY = ledger_of("lake"), ledger_of("copy")


@pytest.fixture
def store() -> MarkStore:
    return MemoryMarkStore()


def pause(store: MarkStore, rows: list[Any], *sinks: LedgerSink, code: str = "1") -> None:
    """A run is stopped inside the write of the sink that pauses; its lease is gone, as after a while it would be."""
    with pytest.raises(RunPaused):
        step_of(store, rows, *sinks, code=code).run()


def test_paused_run(store: MarkStore) -> None:
    """A fence is not the batch: the rows come under the next number, and the paused run finds its own taken."""
    lake = LedgerSink("lake", pauses=True)
    pause(store, [1, 2], lake)
    lake.pauses = False
    receipt = step_of(store, [1, 2], lake, code="2").run()
    assert (receipt.number, lake.rows, lake.calls) == (2, [1, 2], ["fence 1", "write 2"])
    with pytest.raises(Overtaken):
        lake.thaw()
    assert lake.rows == [1, 2]


def test_code_changed(store: MarkStore) -> None:
    """It goes on just when the next run is about to fence: the sink has the batch, so it must not be dropped."""
    lake = LedgerSink("lake", pauses=True)
    pause(store, [1, 2], lake)
    lake.pauses, lake.before_fence = False, lake.thaw
    with pytest.raises(CodeChanged) as stop:
        step_of(store, [1, 2], lake, code="2").run()
    assert (stop.value.confirmed, lake.rows) == (("lake",), [1, 2])


def test_who_fences_is_told_what_the_sinks_have_after_it(store: MarkStore) -> None:
    """A paused run may go on between the question and the fence: what was recorded before says nothing then."""
    lake, copy = LedgerSink("lake", pauses=True), LedgerSink("copy")
    pause(store, [1], lake, copy)
    lake.pauses, lake.before_fence = False, lake.thaw
    step = step_of(store, [1], lake, copy)
    ledgers = fence_open_batch(step.work, step.read(), store.namespace, no_session)
    assert (list(ledgers.sinks_with(1)), list(ledgers.sinks_closed_to(1))) == (["lake"], ["copy"])


def test_sinks_are_fenced_in_the_order_in_which_they_are_written(store: MarkStore) -> None:
    """The first fence stops a paused run before every later sink; also those without an entry are fenced."""
    calls: list[str] = []
    lake, copy = LedgerSink("lake", pauses=True), LedgerSink("copy")
    pause(store, [1], lake, copy)
    lake.pauses = False
    lake.before_fence, copy.before_fence = lambda: calls.append("lake"), lambda: calls.append("copy")
    step_of(store, [1], lake, copy, code="2").run()
    assert (calls, lake.rows, copy.rows) == (["lake", "copy"], [1], [1])


def test_sinks_behind_the_first_that_has_the_batch_stay_open_to_it(store: MarkStore) -> None:
    """The batch may have to be finished there."""
    lake, copy = LedgerSink("lake", pauses=True), LedgerSink("copy")
    pause(store, [1], lake, copy)
    lake.pauses, lake.before_fence = False, lake.thaw
    with pytest.raises(CodeChanged):
        step_of(store, [1], lake, copy, code="2").run()
    assert copy.ledger == {}
    receipt = step_of(store, [1], lake, copy, code="2", request=RunRequest(finish=True)).run()
    assert (receipt.number, lake.rows, copy.rows) == (1, [1], [1])


def test_a_kill_between_fence_and_drop_drops_the_batch(store: MarkStore) -> None:
    """The code was even changed back: a batch whose number is taken is planned again, never finished as empty."""
    lake = LedgerSink("lake", pauses=True)
    pause(store, [1], lake)
    lake.pauses, lake.ledger[LAKE] = False, Recorded(1, is_fence=True)
    receipt = step_of(store, [1], lake).run()
    assert (receipt.number, receipt.rows_read, lake.rows) == (2, 1, [1])


def test_a_batch_that_one_sink_has_and_another_is_closed_to_is_a_decision(store: MarkStore) -> None:
    """It can be given up, and not finished."""
    lake, copy = LedgerSink("lake"), LedgerSink("copy", pauses=True)
    pause(store, [1], lake, copy)
    copy.pauses, copy.ledger[COPY] = False, Recorded(1, is_fence=True)
    for request in (RunRequest(), RunRequest(finish=True)):
        with pytest.raises(BatchClosed) as stop:
            step_of(store, [1], lake, copy, request=request).run()
        assert (stop.value.exit_code, stop.value.closed, stop.value.confirmed) == (5, ("copy",), ("lake",))
    receipt = step_of(store, [1], lake, copy, request=RunRequest(abandon=True)).run()
    assert (receipt.number, lake.rows, copy.rows) == (2, [1, 1], [1])


def test_abandon_fences_every_sink_also_behind_one_that_has_the_batch(store: MarkStore) -> None:
    """A run that is paused before the second sink would else write there what the next batch writes again."""
    lake, copy = LedgerSink("lake"), LedgerSink("copy", pauses=True)
    pause(store, [1], lake, copy)
    copy.pauses = False
    step_of(store, [1], lake, copy, request=RunRequest(abandon=True)).run()
    with pytest.raises(Overtaken):
        copy.thaw()
    assert (copy.rows, copy.calls[:1]) == ([1], ["fence 1"])


def test_abandon_closes_the_batch_also_where_nothing_is_left_to_plan(store: MarkStore) -> None:
    """The next plan may be a day away, and the paused run is there now."""
    lake, copy, rows = LedgerSink("lake"), LedgerSink("copy", pauses=True), [1]
    pause(store, rows, lake, copy)
    rows.clear()
    assert step_of(store, rows, lake, copy, request=RunRequest(abandon=True)).run().status == "nothing_new"
    with pytest.raises(Overtaken):
        copy.thaw()


def test_a_batch_that_is_given_up_is_closed_to_dead_letters_too(store: MarkStore) -> None:
    """They are written after the sinks, so a run may be paused before them with every sink done."""
    lake, letters = LedgerSink("lake", pauses=True), LedgerSink("dead_letters")
    pause(store, [1], lake)
    lake.pauses = False
    step = step_of(store, [1], lake, request=RunRequest(abandon=True))
    replace(step, work=replace(step.work, dead_letters=letters)).run()
    assert letters.calls == ["fence 1"]


def test_a_batch_may_be_dropped_by_others_once_it_is_fenced_and_nobody_had_it(store: MarkStore) -> None:
    """As a replay that failed is: what the paused run wrote just before the fence keeps the batch open."""
    lake = LedgerSink("lake", pauses=True)
    pause(store, [1], lake)
    lake.pauses, record = False, store.read("numbers")
    assert record is not None
    assert record.intent is not None
    step = step_of(store, [1], lake)
    assert (step.is_droppable(record.intent), lake.ledger[LAKE]) == (True, Recorded(1, is_fence=True))
    lake.ledger.clear()
    lake.before_fence = lake.thaw
    assert not step.is_droppable(record.intent)


def test_an_open_batch_of_the_same_code_is_finished_without_a_fence(store: MarkStore) -> None:
    """The ordinary rerun costs nothing more."""
    lake = LedgerSink("lake", pauses=True)
    pause(store, [1], lake)
    lake.pauses = False
    receipt = step_of(store, [1], lake).run()
    assert (receipt.number, lake.calls, lake.rows) == (1, ["write 1"], [1])


def test_an_ordinary_run_fences_nothing(store: MarkStore) -> None:
    """Every entry is as expected."""
    lake, rows = LedgerSink("lake"), [1]
    step_of(store, rows, lake).run()
    rows.append(2)
    step_of(store, rows, lake).run()
    assert lake.calls == ["write 1", "write 2"]


def test_a_sink_without_an_entry_is_fenced_before_a_batch_is_planned(store: MarkStore) -> None:
    """A paused run of an older number could still write there, where nothing says that it comes too late."""
    lake, copy, rows = LedgerSink("lake"), LedgerSink("copy"), [1]
    step_of(store, rows, lake).run()
    rows.append(2)
    step_of(store, rows, lake, copy).run()
    assert (copy.calls, copy.rows) == (["fence 1", "write 2"], [2])


def test_the_number_of_a_dropped_batch_is_not_used_again(store: MarkStore) -> None:
    """Not even where nothing was left to plan: whoever holds it would be taken for the new batch."""
    lake, rows = LedgerSink("lake", pauses=True), [1]
    pause(store, rows, lake)
    rows.clear()
    assert step_of(store, rows, lake, code="2").run().status == "nothing_new"
    record = store.read("numbers")
    assert record is not None
    assert (record.number, record.intent, lake.ledger) == (1, None, {LAKE: Recorded(1, is_fence=True)})


def test_a_reset_closes_the_open_batch_before_its_number_is_chosen(store: MarkStore) -> None:
    """The paused run goes on in the very moment of the reset: it is fenced, before and after."""
    lake = LedgerSink("lake", pauses=True)
    pause(store, [1], lake)
    lake.pauses = False
    reset_marks(step_of(store, [1], lake))
    assert lake.calls == ["fence 1", "fence 2"]
    with pytest.raises(Overtaken):
        lake.thaw()


def test_a_reset_takes_a_number_above_all_that_any_sink_has(store: MarkStore) -> None:
    """The store may be older than its sinks: the next batch must not be taken for one of theirs."""
    lake = LedgerSink("lake", ledger={LAKE: Recorded(7, "another")})
    step_of(store, [], lake)
    reset_marks(step_of(store, [1], lake))
    record = store.read("numbers")
    assert record is not None
    assert (record.number, lake.ledger[LAKE]) == (8, Recorded(8, is_fence=True))
    assert (step_of(store, [1], lake).run().number, lake.rows) == (9, [1])


def test_a_mark_that_is_set_while_a_batch_is_open_fences_it_first(store: MarkStore) -> None:
    """A kill after that fence leaves a batch that is dropped, and a mark where it was."""
    lake, rows = LedgerSink("lake"), [1]
    step_of(store, rows, lake).run()
    lake.pauses = True
    rows.append(2)
    pause(store, rows, lake)
    lake.pauses, lake.calls = False, []
    set_mark(step_of(store, rows, lake), "0")
    assert lake.calls == ["fence 2", "fence 3"]
    assert (step_of(store, rows, lake).run().number, lake.rows) == (4, [1, 1, 2])


def test_a_batch_that_was_fenced_before_a_kill_is_dropped_for_that(
    store: MarkStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Who reads the log is not told of code that changed."""
    lake = LedgerSink("lake", pauses=True)
    pause(store, [1], lake)
    lake.pauses = False
    lake.fence(LAKE, 1, no_session)
    with caplog.at_level(logging.INFO):
        assert (step_of(store, [1], lake).run().number, lake.rows) == (2, [1])
    assert "open batch is dropped" in caplog.text
    assert "it was fenced to be dropped" in caplog.text


def test_a_fence_above_the_stores_number_is_a_sink_ahead(store: MarkStore) -> None:
    """It hides whether batches below it are in the sink: the store is an older copy, or a rollback was broken off."""
    lake, rows = LedgerSink("lake"), [1]
    step_of(store, rows, lake).run()
    lake.ledger[LAKE] = Recorded(5, is_fence=True)
    rows.append(2)
    with pytest.raises(SinkAhead):
        step_of(store, rows, lake).run()


def test_a_number_that_stands_for_another_span_stops_the_step_itself(store: MarkStore) -> None:
    """Before anything is written: no sink has to find out."""
    lake = LedgerSink("lake", pauses=True)
    pause(store, [1], lake)
    lake.pauses, lake.ledger[LAKE] = False, Recorded(1, "another")
    with pytest.raises(SinkDisagrees):
        step_of(store, [1], lake).run()
    assert lake.calls == []


def test_a_lost_lease_stops_before_the_next_sink_and_names_those_that_were_written(store: MarkStore) -> None:
    """What is in the first sink is not denied."""
    lake, copy = LedgerSink("lake"), LedgerSink("copy")

    def lose_the_lease() -> None:
        lease = store.lease("numbers")
        assert lease is not None
        store.release(lease)

    lake.before_write = lose_the_lease
    with pytest.raises(LeaseLost, match="after it had written to lake") as stop:
        step_of(store, [1], lake, copy).run()
    assert (stop.value.written, lake.rows, copy.calls) == (("lake",), [1], [])
    lake.before_write = lambda: None
    step_of(store, [1], lake, copy).run()
    assert (lake.rows, copy.rows) == ([1], [1])


def test_a_look_of_before_the_lease_is_not_used_if_the_record_changed(store: MarkStore) -> None:
    """Another run took the same rows between the look and the lease."""
    lake, rows = LedgerSink("lake"), [1]
    slow = step_of(store, rows, lake)
    record = slow.read()
    look = slow.look(record)
    step_of(store, rows, lake).run()
    with hold(store, "numbers") as lease:
        receipt = slow.run_held(record, look, lease, Clock())
    assert (receipt.status, lake.rows) == ("nothing_new", [1])


def test_a_sink_that_was_just_fenced_is_asked_again_before_the_next_batch_is_planned(store: MarkStore) -> None:
    """Somebody may have written to it between the first answer and the fence."""
    lake, copy = LedgerSink("lake"), LedgerSink("copy")
    step_of(store, [1], lake).run()
    copy.before_fence = lambda: copy.ledger.update({COPY: Recorded(5, "another's")})
    with pytest.raises(SinkAhead):
        step_of(store, [1, 2], lake, copy).run()
    assert (lake.rows, copy.calls) == ([1], ["fence 1"])


class AtOnceSink(LedgerSink):
    """Takes every batch in one transaction, if it is asked to."""

    def freeze_at_once(self, session: object, size: object) -> dict[str, Any]:
        return {"at_once": True}


def test_only_a_sink_that_is_alone_takes_a_batch_at_once(store: MarkStore) -> None:
    """Beside another one it may have to take the same rows at a second attempt, which then have to be kept."""
    lake, copy = AtOnceSink("lake"), AtOnceSink("copy")
    frozen = []
    for sinks in ((lake,), (lake, copy)):
        step = step_of(store, [1], *sinks)
        frozen.append(step.plan(step.read(), step.look(step.read())).intent.extras.frozen_options)
    assert frozen == [{"lake": {"at_once": True}}, {}]

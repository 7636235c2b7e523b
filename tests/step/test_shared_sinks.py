"""Two projects with one namespace and one job's name: the second that comes to a sink is told, and nothing is mixed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from floodmark.errors import SinkDisagrees, SinkShared
from floodmark.hwm import digest
from floodmark.step.run import accept_sinks, reset_marks
from floodmark.step.work import RunRequest
from floodmark.stores.lease import hold
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import JobRecord
from floodmark.testing.laws.records import ME
from tests.step.unsparked import LedgerSink, RunPaused, ledger_of, step_of

if TYPE_CHECKING:
    from floodmark.stores.contract import MarkStore


@pytest.fixture
def store() -> MarkStore:
    return MemoryMarkStore()


def identity_in(store: MarkStore) -> str:
    record = store.read("numbers")
    assert record is not None
    assert record.extras.identity is not None
    return record.extras.identity.id


def owner_of(sink: LedgerSink) -> str | None:
    return sink.ledger[ledger_of(sink.name)].owner


def test_two_projects(store: MarkStore) -> None:
    """The second store has a job of the same name; neither its rows nor its numbers get between those of the first."""
    lake, other = LedgerSink("lake"), MemoryMarkStore()
    step_of(store, [1, 2], lake).run()
    with pytest.raises(SinkShared) as stop:
        step_of(other, [7, 8, 9], lake).run()
    assert (stop.value.exit_code, stop.value.sink, stop.value.number) == (5, "lake", 1)
    assert (stop.value.owner, stop.value.own) == (identity_in(store), "")
    step_of(store, [1, 2, 3], lake).run()
    assert lake.rows == [1, 2, 3]


def test_two_projects_that_have_both_run_are_told_with_both_names(store: MarkStore) -> None:
    """Their targets were two once, and the project file of one names that of the other since."""
    lake, sea, other = LedgerSink("lake"), LedgerSink("lake", target="sea"), MemoryMarkStore()
    step_of(store, [1, 2], lake).run()
    step_of(other, [7], sea).run()
    with pytest.raises(SinkShared) as stop:
        step_of(other, [7, 8], lake).run()
    assert (stop.value.owner, stop.value.own) == (identity_in(store), identity_in(other))
    assert (identity_in(store) != identity_in(other), lake.rows) == (True, [1, 2])


def test_two_projects_that_begin_at_once_do_not_take_each_other_s_batch_for_their_own(store: MarkStore) -> None:
    """Number and span are the same, and the rows are not: the second would have skipped the write."""
    lake, other = LedgerSink("lake"), MemoryMarkStore()
    late = LedgerSink("lake", lake.rows, lake.ledger, pauses=True, target=lake.describe())
    with pytest.raises(RunPaused):
        step_of(other, [7, 8], late).run()
    step_of(store, [1, 2], lake).run()
    with pytest.raises(SinkDisagrees) as stop:
        late.thaw()
    assert (stop.value.number, lake.rows) == (1, [1, 2])


def test_a_store_that_was_moved_copied_or_restored_goes_on(store: MarkStore) -> None:
    """The identity is the record's, and goes where it goes."""
    lake, moved = LedgerSink("lake"), MemoryMarkStore()
    step_of(store, [1, 2], lake).run()
    record = store.read("numbers") or JobRecord("numbers")
    lease = moved.take_lease("numbers", ME, over=None)
    moved.commit(record, expected=0, lease=lease)
    moved.release(lease)
    receipt = step_of(moved, [1, 2, 3], lake).run()
    assert (receipt.status, lake.rows, identity_in(moved)) == ("done", [1, 2, 3], identity_in(store))


@pytest.mark.parametrize("request_", [RunRequest(full_refresh=True), RunRequest(start="0"), RunRequest(abandon=True)])
def test_who_says_where_to_begin_takes_the_sink_over(store: MarkStore, request_: RunRequest) -> None:
    """And is not asked again, also if the first batch has to be finished."""
    lake, other = LedgerSink("lake"), MemoryMarkStore()
    step_of(store, [1, 2], lake).run()
    lake.pauses = True
    with pytest.raises(RunPaused):
        step_of(other, [7], lake, request=request_).run()
    lake.pauses = False
    lake.held_writes.clear()
    step_of(other, [7], lake).run()
    assert owner_of(lake) == identity_in(other)
    with pytest.raises(SinkShared):
        step_of(store, [1, 2, 3], lake).run()


def test_accepting_takes_over_what_another_record_wrote(store: MarkStore) -> None:
    """The store was lost for good, and the target is to be gone on with."""
    lake, other = LedgerSink("lake"), MemoryMarkStore()
    step_of(store, [1, 2], lake).run()
    [accepted] = accept_sinks(step_of(other, [1, 2, 3], lake))
    assert isinstance(accepted, SinkShared)
    assert accept_sinks(step_of(other, [1, 2, 3], lake)) == []
    receipt = step_of(other, [1, 2, 3], lake).run()
    assert (receipt.number, owner_of(lake)) == (2, identity_in(other))


def test_an_open_batch_of_a_version_without_identities_gets_one_when_it_is_finished(store: MarkStore) -> None:
    """Its intent is replaced anyway, and what the sinks record from then on should say whose it is."""
    lake = LedgerSink("lake", pauses=True)
    with pytest.raises(RunPaused):
        step_of(store, [1, 2], lake).run()
    began = store.read("numbers")
    assert began is not None
    assert began.intent is not None
    older = replace(began.intent, extras=replace(began.intent.extras, sinks=None, identity=None))
    store = MemoryMarkStore()
    with hold(store, "numbers") as lease:
        store.intend(JobRecord("numbers", 0, intent=older), expected=0, lease=lease.lease)
    lake.pauses = False
    assert step_of(store, [1, 2], lake).run().number == 1
    assert (lake.rows, owner_of(lake)) == ([1, 2], identity_in(store))


def test_after_a_reset_the_fence_belongs_to_nobody(store: MarkStore) -> None:
    """Everything comes again, under numbers above those of before."""
    lake = LedgerSink("lake")
    step_of(store, [1, 2], lake).run()
    reset_marks(step_of(store, [1, 2], lake))
    assert owner_of(lake) is None
    assert step_of(store, [1, 2], lake).run().status == "done"


def test_a_refresh_keeps_the_identity(store: MarkStore) -> None:
    """Else the next batch would meet its own as another's."""
    lake = LedgerSink("lake")
    step_of(store, [1, 2], lake).run()
    before = identity_in(store)
    step_of(store, [1, 2], lake, request=RunRequest(full_refresh=True)).run()
    assert (identity_in(store), step_of(store, [1, 2, 3], lake).run().status) == (before, "done")


def test_a_batch_that_an_earlier_version_began_is_finished_as_it_was(store: MarkStore) -> None:
    """Its intent has no identity, and neither has what sinks recorded of it."""
    lake, copy = LedgerSink("lake"), LedgerSink("copy", pauses=True)
    with pytest.raises(RunPaused):
        step_of(store, [1, 2], lake, copy).run()
    record = store.read("numbers")
    assert record is not None
    assert record.intent is not None
    old = replace(record.intent, extras=replace(record.intent.extras, identity=None))
    lake.ledger[ledger_of("lake")] = replace(lake.ledger[ledger_of("lake")], digest=digest(old.spans))
    lease = store.take_lease("numbers", ME, over=None)
    store.intend(replace(record, intent=old), expected=0, lease=lease)
    store.release(lease)
    copy.pauses = False
    receipt = step_of(store, [1, 2], lake, copy).run()
    assert (receipt.number, receipt.recovered, lake.rows, copy.rows) == (1, True, [1, 2], [1, 2])

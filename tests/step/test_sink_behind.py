"""A sink may forget: what it had confirmed and does not have any more is a decision, never a silent gap."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.errors import SinkBehind
from floodmark.sinks.console import Console
from floodmark.sinks.contract import Recorded
from floodmark.step.engine import Clock, OpenBatch
from floodmark.step.looking import ledgers_of, sink_behind
from floodmark.step.run import accept_sinks, reset_marks, save_decision, set_mark
from floodmark.step.work import RunRequest
from floodmark.stores.extras import IntentExtras, OutsideBatch, SinkLedger
from floodmark.stores.lease import hold
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import Intent
from tests.step.unsparked import LedgerSink, RunPaused, ledger_of, step_of

if TYPE_CHECKING:
    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import JobRecord

LAKE, COPY = ledger_of("lake"), ledger_of("copy")


@pytest.fixture
def store() -> MarkStore:
    return MemoryMarkStore()


def record_in(store: MarkStore) -> JobRecord:
    record = store.read("numbers")
    assert record is not None
    return record


def deliver(store: MarkStore, *sinks: LedgerSink, batches: int = 3) -> list[Any]:
    """Rows 1 to `batches`, each as a batch."""
    rows: list[Any] = []
    for number in range(1, batches + 1):
        rows.append(number)
        step_of(store, rows, *sinks).run()
    return rows


def forget_last(sink: LedgerSink) -> None:
    """The target is restored from a copy of before its last batch."""
    [ledger], number = sink.ledger, len(sink.rows) - 1
    sink.rows.pop()
    sink.ledger[ledger] = Recorded(number, "as it was then")


def test_a_commit_notes_what_each_sink_confirmed(store: MarkStore) -> None:
    """The number, and where it is kept: under which id, in which target."""
    lake = LedgerSink("lake")
    deliver(store, lake, batches=2)
    assert record_in(store).extras.sinks == {"lake": SinkLedger(LAKE, "list of lake", 2)}


@pytest.mark.parametrize(("below", "is_lost", "recorded"), [(2, False, None), (1, True, 1), (0, True, None)])
def test_a_fence_does_not_hide_a_batch_that_was_lost_below_it(
    store: MarkStore, below: int, *, is_lost: bool, recorded: int | None
) -> None:
    """A run that had lost its lease fences a sink that was restored meanwhile: the number is there, and no rows."""
    lake = LedgerSink("lake")
    step_of(store, [1], lake).run()
    step_of(store, [1, 2], lake).run()
    record, fence = store.read("numbers"), Recorded(5, is_fence=True, before=below)
    assert record is not None
    lost = sink_behind(lake, "default", replace(record, number=5), fence, "lake")
    assert (lost is not None, lost.recorded if lost else None) == (is_lost, recorded)


def test_sink_behind(store: MarkStore) -> None:
    """Nothing is read or written: a run would go on above a gap."""
    lake = LedgerSink("lake")
    rows = deliver(store, lake)
    forget_last(lake)
    rows.append(4)
    with pytest.raises(SinkBehind) as stop:
        step_of(store, rows, lake).run()
    assert (stop.value.exit_code, stop.value.sink, stop.value.recorded, stop.value.confirmed) == (5, "lake", 2, 3)
    assert (lake.rows, record_in(store).number) == ([1, 2], 3)


def test_a_target_that_was_made_anew_is_a_decision(store: MarkStore) -> None:
    """It has no entry at all, as one that was dropped."""
    lake = LedgerSink("lake")
    rows = deliver(store, lake)
    rows.append(4)
    with pytest.raises(SinkBehind) as stop:
        step_of(store, rows, LedgerSink("lake")).run()
    assert (stop.value.recorded, stop.value.confirmed) == (None, 3)


def test_an_open_batch_does_not_hide_that_a_sink_is_behind(store: MarkStore) -> None:
    """It would be finished above the gap; and its fence must not be taken for what the sink had."""
    lake = LedgerSink("lake")
    rows = deliver(store, lake)
    lake.pauses = True
    rows.append(4)
    with pytest.raises(RunPaused):
        step_of(store, rows, lake).run()
    lake.pauses = False
    forget_last(lake)
    for code in ("1", "2"):
        with pytest.raises(SinkBehind):
            step_of(store, rows, lake, code=code).run()
    assert lake.ledger[LAKE].number == 2


def test_a_fence_above_what_was_confirmed_is_not_behind(store: MarkStore) -> None:
    """A dropped batch leaves a number that no sink confirmed."""
    lake = LedgerSink("lake")
    rows = deliver(store, lake, batches=1)
    lake.pauses = True
    rows.append(2)
    with pytest.raises(RunPaused):
        step_of(store, rows, lake).run()
    lake.pauses = False
    rows.pop()
    assert step_of(store, rows, lake, code="2").run().status == "nothing_new"
    rows.append(2)
    step_of(store, rows, lake, code="2").run()
    assert lake.rows == [1, 2]


def test_a_fence_at_the_number_that_was_confirmed_hides_nothing(store: MarkStore) -> None:
    """A run that lost its lease fenced the sink after it had been restored; once accepted, the job goes on."""
    lake = LedgerSink("lake")
    rows = [*deliver(store, lake), 4]
    forget_last(lake)
    lake.ledger[LAKE] = Recorded(3, is_fence=True)
    with pytest.raises(SinkBehind) as caught:
        step_of(store, rows, lake).run()
    assert (caught.value.recorded, caught.value.confirmed) == (2, 3)
    accept_sinks(step_of(store, rows, lake))
    step_of(store, rows, lake).run()
    assert lake.rows == [1, 2, 4]


def test_a_new_sink_and_one_with_a_new_target_are_easy(store: MarkStore) -> None:
    """They have confirmed nothing: they take what comes from now on."""
    lake = LedgerSink("lake")
    rows = deliver(store, lake, batches=1)
    elsewhere, copy = LedgerSink("lake", target="another list"), LedgerSink("copy")
    rows.append(2)
    step_of(store, rows, elsewhere, copy).run()
    assert (elsewhere.rows, copy.rows) == ([2], [2])


def test_another_target_that_has_an_older_batch_is_behind(store: MarkStore) -> None:
    """A standby that took over under another address is the same sink, short of its last transaction."""
    rows = deliver(store, LedgerSink("lake"))
    standby = LedgerSink("lake", target="another list", ledger={LAKE: Recorded(2, "b")})
    rows.append(4)
    with pytest.raises(SinkBehind):
        step_of(store, rows, standby).run()


def test_a_full_refresh_rebuilds_a_sink_that_is_behind(store: MarkStore) -> None:
    """And notes what the sinks have then."""
    lake = LedgerSink("lake")
    rows = deliver(store, lake)
    forget_last(lake)
    step_of(store, rows, lake, request=RunRequest(full_refresh=True)).run()
    assert (lake.rows, record_in(store).extras.sinks["lake"].number) == ([1, 2, 3], 4)


def test_accepting_goes_on_above_the_gap(store: MarkStore) -> None:
    """The mark, the number and an open batch stay as they are; what is missing stays missing."""
    lake = LedgerSink("lake")
    rows = deliver(store, lake)
    forget_last(lake)
    before = record_in(store)
    [lost] = accept_sinks(step_of(store, rows, lake))
    assert (lost.recorded, lost.confirmed, record_in(store).number, record_in(store).marks) == (2, 3, 3, before.marks)
    assert accept_sinks(step_of(store, rows, lake)) == []
    rows.append(4)
    step_of(store, rows, lake).run()
    assert lake.rows == [1, 2, 4]


def test_accepting_a_target_that_was_made_anew_forgets_what_it_had(store: MarkStore) -> None:
    """It is a new sink from then on."""
    rows, anew = deliver(store, LedgerSink("lake")), LedgerSink("lake")
    [lost] = accept_sinks(step_of(store, rows, anew))
    assert (lost.recorded, record_in(store).extras.sinks) == (None, {})
    rows.append(4)
    step_of(store, rows, anew).run()
    assert anew.rows == [4]


def test_a_mark_that_is_set_or_reset_accepts_what_the_sinks_have(store: MarkStore) -> None:
    """Whoever takes the mark back has seen what is missing, and gets it delivered again."""
    lake = LedgerSink("lake")
    rows = deliver(store, lake)
    forget_last(lake)
    set_mark(step_of(store, rows, lake), "2")
    step_of(store, rows, lake).run()
    assert lake.rows == [1, 2, 3]
    lake.rows.clear()
    lake.ledger.clear()
    reset_marks(step_of(store, rows, lake))
    step_of(store, rows, lake).run()
    assert lake.rows == [1, 2, 3]


def test_what_sinks_of_another_store_confirmed_is_not_taken_over_with_its_marks(store: MarkStore) -> None:
    """Its numbers are not ours: marks that are imported decide where to go on, and nothing else."""
    lake = LedgerSink("lake")
    rows = deliver(store, lake, batches=1)
    foreign = record_in(store).extras.with_sinks({"lake": SinkLedger(LAKE, "list of lake", 50)})
    step = step_of(store, rows, lake)
    with hold(store, "numbers") as lease:
        save_decision(step, replace(record_in(store), extras=foreign, origin="import"), lease)
    rows.append(2)
    step_of(store, rows, lake).run()
    assert lake.rows == [1, 2]


def test_a_number_that_was_confirmed_under_another_id_says_nothing(store: MarkStore) -> None:
    """The ids of a job may change, as when dots came to be escaped: a ledger that is new is not behind."""
    lake = LedgerSink("lake")
    rows = deliver(store, lake, batches=1)
    old = record_in(store)
    confirmed = old.extras.with_sinks({"lake": SinkLedger("an older id", "list of lake", 1)})
    with hold(store, "numbers") as lease:
        store.intend(replace(old, extras=confirmed), expected=1, lease=lease.lease)
    lake.ledger.clear()
    rows.append(2)
    step_of(store, rows, lake).run()
    assert lake.rows == [1, 2]


def test_a_sink_without_a_ledger_confirms_nothing(store: MarkStore) -> None:
    """A console cannot tell what it has shown, so it is never behind."""
    work = step_of(store, [], LedgerSink("lake"), Console()).work
    assert set(ledgers_of(work, "default", 1)) == {"lake"}


def test_a_repair_confirms_the_one_sink_that_it_wrote(store: MarkStore) -> None:
    """What the others had confirmed stays."""
    lake, copy = LedgerSink("lake"), LedgerSink("copy")
    rows = deliver(store, lake, copy, batches=1)
    outside = IntentExtras(outside=OutsideBatch(sink="copy"))
    intent = Intent(2, "repair", {}, datetime.now(timezone.utc), "attempt", None, {}, outside)
    with hold(store, "numbers") as lease:
        step_of(store, rows, lake, copy).write_batch(OpenBatch(record_in(store), intent, None), lease, Clock())
    confirmed = {name: sink.number for name, sink in record_in(store).extras.sinks.items()}
    assert (confirmed, lake.calls) == ({"lake": 1, "copy": 2}, ["write 1"])


def test_a_record_without_confirmations_is_as_before(store: MarkStore) -> None:
    """It was written by a version that did not keep them."""
    lake = LedgerSink("lake")
    rows = deliver(store, lake, batches=1)
    old = record_in(store)
    with hold(store, "numbers") as lease:
        bare = replace(old, extras=old.extras.without(["@sinks"]))
        store.intend(bare, expected=old.number, lease=lease.lease)
    lake.ledger.clear()
    rows.append(2)
    step_of(store, rows, lake).run()
    assert lake.rows == [1, 2]

"""Which of a job's states are good, which led to which, and what `--to` means: all by what the store keeps."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from floodmark.errors import ConfigError, NoGoodRun, RunNotFound
from floodmark.hwm import ColumnIntHWM
from floodmark.jobs.rollback import Past, Target
from floodmark.jobs.workflow.memory import TaskOutcome, WorkflowState, hold_memory
from floodmark.stores.extras import RecordExtras
from floodmark.stores.lease import hold
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import JobRecord, Origin, Receipt, RuleOutcome

NOON = datetime(2026, 11, 15, 12, tzinfo=timezone.utc)


def state(number: int, origin: Origin = "commit", back_to: int | None = None) -> JobRecord:
    """A job at its batch of that number, which ended so many hours after noon."""
    marks = {"rows": ColumnIntHWM("seq", 10 * number)}
    extras = RecordExtras() if back_to is None else RecordExtras().with_went_back_to(back_to)
    return JobRecord(
        "orders", number, marks, extras=extras, origin=origin, modified_time=NOON + timedelta(hours=number)
    )


def receipt(number: int, *rules: RuleOutcome, error: str | None = None, job: str = "orders") -> Receipt:
    started = NOON + timedelta(hours=number, seconds=-2)
    return Receipt(job, f"{job[0]}{number}aa", "done", started, 2.0, number=number, rules=rules, error=error)


def past(*records: JobRecord, receipts: tuple[Receipt, ...]) -> Past:
    return Past("orders", records, {each.number: each for each in receipts})


WARNED = RuleOutcome("cents_positive", "warn", 3, 10)
HELD = RuleOutcome("cents_positive", "warn", 0, 10)


@pytest.mark.parametrize(
    ("receipt", "flaw"),
    [
        (receipt(1), None),
        (receipt(1, HELD), None),
        (receipt(1, WARNED), "rule cents_positive (warn): 3 of 10 failed"),
        (receipt(1, RuleOutcome("fresh", "fail", 1, 1)), "rule fresh (fail): 1 of 1 failed"),
        (receipt(1, RuleOutcome("id_there", "quarantine", 3, 10), RuleOutcome("old", "drop", 1, 10)), None),
        (receipt(1, error="disk full"), "disk full"),
        (receipt(2), "no receipt of it is kept"),
    ],
)
def test_a_batch_is_good_if_it_ended_and_let_no_row_in_that_a_rule_warned_of(
    receipt: Receipt, flaw: str | None
) -> None:
    """Rows that were put aside or dropped are in no table, and of a batch without a receipt nobody knows."""
    assert (past(state(1), receipts=(receipt,)).flaw(state(1)) or None) == flaw


def test_what_a_rollback_undid_led_to_nothing() -> None:
    """Behind it comes what was there before the batch that it went back to."""
    kept = past(state(5), state(4, "rollback", back_to=2), state(3), state(2), state(1), receipts=())
    assert [each.number for each in kept.leading_to(state(5))] == [5, 4, 1]


def test_the_last_good_state_is_the_newest_whose_batch_is_good() -> None:
    """A rollback is as good as the batch that it went back to; a mark that a person set is not known to be."""
    batches = (receipt(1), receipt(2, HELD), receipt(3, WARNED), receipt(6, WARNED))
    kept = past(
        state(6), state(5, "set"), state(4, "rollback", back_to=2), state(3), state(2), state(1), receipts=batches
    )
    good = kept.last_good(state(6))
    assert good is not None
    assert (good.number, kept.receipt_of(good)) == (4, receipt(2, HELD))


def test_of_a_job_without_a_good_batch_the_newest_flaw_is_told() -> None:
    """With what can be done instead."""
    kept = past(state(2), state(1), receipts=(receipt(2, WARNED),))
    with pytest.raises(NoGoodRun) as caught:
        Target("last-good").goal(kept, state(2))
    assert (caught.value.job, caught.value.looked, caught.value.newest, caught.value.exit_code) == ("orders", 2, 2, 5)
    assert caught.value.message == (
        "job 'orders' has no good run to go back to: batch 2 is not (rule cents_positive (warn): 3 of 10 failed),"
        " and none of the 2 states that are kept of it is."
    )


def store_of(*receipts: Receipt) -> MemoryMarkStore:
    store = MemoryMarkStore()
    for each in receipts:
        store.add_run(each)
    return store


def test_a_run_is_a_batch_of_its_job_and_a_moment_for_others() -> None:
    """Ids are made for each batch, so a run has one job; it may be named by how its id begins."""
    target = Target.parse("c2", store_of(receipt(1), receipt(2, job="customers")))
    assert target == Target("c2aa", ("customers",), 2, NOON + timedelta(hours=2))
    kept = past(state(3), state(2), state(1), receipts=())
    assert target.goal(kept, state(3)).number == 2
    assert Target("x", ("customers",), 9, NOON + timedelta(hours=1, minutes=30)).goal(kept, state(3)).number == 1


def test_digits_are_the_number_of_a_batch_unless_a_run_is_called_so() -> None:
    """An id is twelve hexadecimal digits, which may all be decimal ones."""
    store = store_of(Receipt("orders", "123456789012", "done", NOON, number=4))
    assert Target.parse("4", store) == Target("4", number=4)
    assert Target.parse("123456789012", store).jobs == ("orders",)


def test_a_number_needs_one_job() -> None:
    """Batch 4 of two jobs are two moments."""
    with pytest.raises(ConfigError, match="'4' is the number of a batch, and 2 jobs have batches"):
        Target("4", number=4).require_one_job(["orders", "customers"])
    Target("4", number=4).require_one_job(["orders"])


def test_a_run_of_a_workflow_stands_for_the_end_of_its_last_task() -> None:
    """Its tasks are the jobs that took part; how each ended is in the history of the workflow's record."""
    store = store_of(receipt(1))
    run = WorkflowState("feed00000001", NOON)
    with hold_memory(store, "daily", 1) as memory:
        memory.keep(run.with_outcome(TaskOutcome("orders", "SUCCESS")))
        memory.keep(run.with_outcome(TaskOutcome("orders", "SUCCESS")).with_outcome(TaskOutcome("gold", "SUCCESS")))
        memory.keep(WorkflowState("feed00000002", NOON))
    target = Target.parse("feed00000001", store)
    [newest, *_] = [each for each in store.history("workflow.daily") if each.number == 2]
    assert target == Target("feed00000001", ("orders", "gold"), None, newest.modified_time)


def test_an_unknown_run_is_refused_with_those_that_are_near() -> None:
    """As `floodmark diff` does."""
    with pytest.raises(RunNotFound, match="there is no run 'o9zz'"):
        Target.parse("o9zz", store_of(receipt(1)))


def test_a_state_that_is_no_longer_kept_is_refused_with_those_that_are() -> None:
    """Both of a run whose record was pruned, and of a job that is younger than the run."""
    kept = past(state(9), state(8), receipts=())
    with pytest.raises(ConfigError, match=r"job 'orders' has no batch or run '7' to go back to \(kept: 8, 9\)"):
        Target("7", number=7).goal(kept, state(9))
    with pytest.raises(ConfigError, match=r"'c1aa' \(it ended 2026-11-15 13:00:00\) to go back to \(kept: 8, 9\)"):
        Target("c1aa", ("customers",), 1, NOON + timedelta(hours=1)).goal(kept, state(9))


def test_the_past_is_read_from_the_store() -> None:
    """Records by its history, receipts by its runs."""
    store = store_of(Receipt("orders", "", "failed", NOON, error="disk full"))
    with hold(store, "orders") as held:
        store.commit(state(1), expected=0, lease=held.lease, receipt=receipt(1))
    assert Past.of(store, "orders") == past(state(1), receipts=(receipt(1),))

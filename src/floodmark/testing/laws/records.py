"""The records, marks and receipts of the laws of a store, and the laws about its past: `prune` and `forget`."""

# ruff: noqa: S101 - assert is how a law speaks

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from floodmark.errors import LeaseLost
from floodmark.hwm import HWM, ColumnIntHWM, FileListHWM, Span
from floodmark.stores.extras import IntentExtras, RecordExtras
from floodmark.stores.paged import PruneCounts, surplus
from floodmark.stores.record import Intent, JobRecord, Lease, Owner, Receipt

if TYPE_CHECKING:
    from collections.abc import Callable

    from floodmark.stores.contract import MarkStore


NOON = datetime(2024, 5, 1, 12, 0, tzinfo=timezone.utc)
ME = Owner(host="here", boot="b", namespace="n", pid=1, started="s")
OTHER = Owner(host="there", boot="c", namespace="n", pid=2, started="t")


class OpenStore(Protocol):
    """Opens the store under test again: what it shares with those opened before is what a new process would see."""

    def __call__(self, *, namespace: str = ..., keep_history: int = ..., keep_runs: int = ...) -> MarkStore:
        """A store over the same place."""


def mark(value: int) -> ColumnIntHWM:
    """A mark at a value."""
    return ColumnIntHWM("orders", value, entity="public.orders", expression="id", modified_time=NOON)


def files(*paths: str) -> FileListHWM:
    """A mark that has read these files."""
    return FileListHWM("landing", dict.fromkeys(paths, (7, 1)), directory="/in", modified_time=NOON)


def record(number: int, *, job: str = "orders", landing: FileListHWM | None = None) -> JobRecord:
    """The record after the batch of that number."""
    marks: dict[str, HWM[Any]] = {"table": mark(number * 10)}
    with_files = {**marks, "landing": landing} if landing else marks
    fingerprints = {"table": "postgres db/public.orders by id"}
    return JobRecord(job, number, with_files, fingerprints, RecordExtras({"ties": [1, 2]}), None, "commit", NOON)


def with_open_intent(base: JobRecord) -> JobRecord:
    """The record with its next batch begun."""
    span = Span(base.marks.get("table"), mark(99), {"chunk": 3})
    extras = IntentExtras(unknown_parts={"writers": 2})
    begun = Intent(base.number + 1, "batch", {"table": span}, NOON, "a1", "spool/a1", {"sink": "delta"}, extras)
    return replace(base, intent=begun)


def receipt(number: int, *, job: str = "orders") -> Receipt:
    """What the run of that number did."""
    moment = NOON + timedelta(minutes=number)
    return Receipt(job, f"run-{number}", "done", moment, number=number, rows_written={"lake": 5}, notes=("one",))


def save(store: MarkStore, *records: JobRecord) -> Lease:
    """Commit the records one after the other, each with its receipt; the lease that is still held."""
    job = records[0].job
    lease = store.lease(job) or store.take_lease(job, ME, over=None)
    before = store.read(job) or JobRecord(job)
    for earlier, later in zip([before, *records], records, strict=False):
        store.commit(later, expected=earlier.number, lease=lease, receipt=receipt(later.number, job=job))
    return lease


def dated_record(number: int, *, landing: FileListHWM | None = None) -> JobRecord:
    """The record of a number, saved that many minutes after noon, as its receipt is."""
    return replace(record(number, landing=landing), modified_time=NOON + timedelta(minutes=number))


class PruningLaws:
    """What pruning and forgetting drop, and what they never touch: part of MarkStoreLaws, whose fixtures these use."""

    def test_old_history_and_receipts_are_pruned(self, open_store: OpenStore) -> None:
        """What is older than the limits goes; what was dropped is counted."""
        save(open_store(), *(dated_record(number) for number in range(1, 7)))
        limit = NOON + timedelta(minutes=5)
        pruned = open_store().prune("orders", history_before=limit, keep_at_least=1, runs_before=limit)
        assert pruned == PruneCounts(history=4, runs=4)
        assert [old.number for old in open_store().history("orders")] == [6, 5]
        assert [run.number for run in open_store().runs("orders")] == [6, 5]
        assert open_store().read("orders") == dated_record(6)

    def test_the_newest_runs_may_all_be_of_one_job(self, open_store: OpenStore) -> None:
        """However many jobs there are: what is newest is not shared out among them."""
        for job in ("a", "b", "c", "d"):
            open_store().add_run(replace(receipt(1), job=job))
        save(open_store(), *(dated_record(number) for number in range(2, 9)))
        assert [(run.job, run.number) for run in open_store().runs(limit=4)] == [("orders", n) for n in (8, 7, 6, 5)]

    def test_pruning_keeps_the_newest_however_old(self, open_store: OpenStore) -> None:
        """A job that runs once a year keeps its past."""
        save(open_store(), *(dated_record(number) for number in range(1, 7)))
        late = NOON + timedelta(days=900)
        assert open_store().prune("orders", history_before=late, keep_at_least=4, runs_before=late) == PruneCounts(2, 2)
        assert open_store().prune("orders", history_before=late, keep_at_least=0, runs_before=None) == PruneCounts(3, 0)
        assert [old.number for old in open_store().history("orders")] == [6]

    def test_pruning_without_limits_drops_nothing(self, open_store: OpenStore) -> None:
        """None is no limit."""
        save(open_store(), record(1), record(2))
        assert open_store().prune("orders", history_before=None, keep_at_least=0, runs_before=None) == PruneCounts()
        assert open_store().prune("nobody", history_before=NOON, keep_at_least=0, runs_before=NOON) == PruneCounts()

    def test_what_would_be_pruned_is_known_beforehand(self, open_store: OpenStore) -> None:
        """The same numbers, and nothing is dropped."""
        save(open_store(), *(dated_record(number) for number in range(1, 7)))
        limit = NOON + timedelta(minutes=5)
        expected = surplus(open_store(), "orders", history_before=limit, keep_at_least=1, runs_before=None)
        assert (expected, len(open_store().history("orders"))) == (PruneCounts(4, 0), 6)

    def test_pruning_leaves_the_record_and_its_open_intent(
        self, open_store: OpenStore, stored_bytes: Callable[[str], bytes]
    ) -> None:
        """Not one byte of them."""
        lease = save(open_store(), record(1), record(2))
        open_store().intend(with_open_intent(record(2)), expected=2, lease=lease)
        before = stored_bytes("orders").splitlines()[:2]
        late = NOON + timedelta(days=900)
        open_store().prune("orders", history_before=late, keep_at_least=0, runs_before=late)
        assert stored_bytes("orders").splitlines()[:2] == before
        assert open_store().read("orders") == with_open_intent(record(2))

    def test_lists_of_files_survive_pruning(self, open_store: OpenStore) -> None:
        """The list of the current mark is whole, also if its first rows came with a dropped number."""
        grown = [dated_record(1, landing=files("/in/a")), dated_record(2, landing=files("/in/a", "/in/b"))]
        renewed = [dated_record(3, landing=files("/in/x")), dated_record(4, landing=files("/in/x", "/in/y"))]
        save(open_store(), *grown, *renewed)
        late = NOON + timedelta(days=900)
        assert open_store().prune("orders", history_before=late, keep_at_least=1, runs_before=None) == PruneCounts(3, 0)
        assert open_store().read("orders") == renewed[1]
        assert list(open_store().history("orders")) == [renewed[1]]

    def test_two_lists_of_files_of_one_job_are_kept_apart(self, open_store: OpenStore) -> None:
        """Also where one of them begins anew while the other grows, and for every number of the history."""
        steps = [
            (["/in/a"], ["/in/x"]),
            (["/in/a", "/in/b"], ["/in/x", "/in/y"]),
            (["/in/c"], ["/in/x", "/in/y", "/in/z"]),
        ]
        states = [
            replace(one, marks={**one.marks, "second": files(*second)})
            for number, (first, second) in enumerate(steps, start=1)
            for one in [record(number, landing=files(*first))]
        ]
        save(open_store(), *states)
        assert open_store().read("orders") == states[-1]
        assert list(open_store().history("orders")) == states[::-1]

    def test_a_forgotten_job_is_gone_and_others_stay(self, open_store: OpenStore) -> None:
        """Record, history, receipts, lease and look: as if it had never been."""
        store = open_store()
        save(store, record(1, job="other"))
        lease = save(store, record(1, landing=files("/in/a")))
        store.looked("orders", NOON)
        store.forget("orders", lease=lease)
        for opened in (store, open_store()):
            assert (opened.read("orders"), opened.lease("orders"), opened.last_looked("orders")) == (None, None, None)
            assert (list(opened.history("orders")), list(opened.runs("orders"))) == ([], [])
            assert (list(opened.jobs()), opened.read("other")) == (["other"], record(1, job="other"))

    def test_a_forgotten_job_may_begin_anew(self, open_store: OpenStore) -> None:
        """Its old lists do not come back."""
        store = open_store()
        store.forget("orders", lease=save(store, record(1, landing=files("/in/a"))))
        save(store, record(1, landing=files("/in/b")))
        assert (store.read("orders"), open_store().read("orders")) == (record(1, landing=files("/in/b")),) * 2

    def test_nothing_is_forgotten_under_a_lost_lease(self, open_store: OpenStore) -> None:
        """Another run works with it now."""
        lost = save(open_store(), record(1))
        open_store().take_lease("orders", OTHER, over=lost)
        with pytest.raises(LeaseLost):
            open_store().forget("orders", lease=lost)
        assert open_store().read("orders") == record(1)

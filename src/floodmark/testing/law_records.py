"""The records, marks and receipts that the laws of a store are told with."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Protocol

from floodmark.hwm import HWM, ColumnIntHWM, FileListHWM, Span
from floodmark.stores.record import Intent, JobRecord, Lease, Owner, Receipt

if TYPE_CHECKING:
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
    return JobRecord(job, number, with_files, fingerprints, {"ties": [1, 2]}, None, "commit", NOON)


def intending(base: JobRecord) -> JobRecord:
    """The record with its next batch begun."""
    span = Span(base.marks.get("table"), mark(99), {"chunk": 3})
    begun = Intent(base.number + 1, "batch", {"table": span}, NOON, "a1", "spool/a1", {"sink": "delta"}, {"writers": 2})
    return replace(base, intent=begun)


def receipt(number: int, *, job: str = "orders") -> Receipt:
    """What the run of that number did."""
    moment = NOON + timedelta(minutes=number)
    return Receipt(job, f"run-{number}", "done", moment, number=number, rows_written={"lake": 5}, notes=("one",))


def saved(store: MarkStore, *records: JobRecord) -> Lease:
    """Commit the records one after the other, each with its receipt; the lease that is still held."""
    job = records[0].job
    lease = store.lease(job) or store.take_lease(job, ME, over=None)
    before = store.read(job) or JobRecord(job)
    for earlier, later in zip([before, *records], records, strict=False):
        store.commit(later, expected=earlier.number, lease=lease, receipt=receipt(later.number, job=job))
    return lease

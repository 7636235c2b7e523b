"""Acts on a job's marks by a person: reset and set. They hold the lease and raise the number above every sink's."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from floodmark.errors import ConfigError, MarkUnreadable
from floodmark.hwm import HWM
from floodmark.step.looking import PENDING, part_of, read_ledgers
from floodmark.step.recovery import fence_laggards
from floodmark.step.run import Step, noted_in
from floodmark.stores.lease import HeldLease, hold
from floodmark.stores.record import JobRecord


def reset_marks(step: Step) -> None:
    """Forget every mark and the open batch; the next run reads from the beginning, under new numbers."""
    with hold(step.store, step.work.name) as lease:
        decide(step, replace(readable_record(step), marks={}, sources={}, extras={}, origin="reset"), lease)


def readable_record(step: Step) -> JobRecord:
    """The record, or a blank one in the place of one that cannot be read: a reset is how a person gets rid of it."""
    try:
        return step.read()
    except MarkUnreadable:
        return JobRecord(step.work.name)


def set_mark(step: Step, text: str) -> HWM[Any]:
    """Put the mark of the job's one source to a value that its kind accepts."""
    with hold(step.store, step.work.name) as lease:
        record = step.read()
        if len(record.marks) != 1:
            raise ConfigError(
                f"job '{record.job}' has {len(record.marks)} marks; `set` moves the one mark of a job that has run.",
                hint=f"floodmark run --select {record.job} --from {text}",
            )
        [(source, mark)] = record.marks.items()
        moved = mark.set_value(text)
        known = {name: kept for name, kept in part_of(record.extras, source).items() if name != PENDING}
        extras = {**record.extras, source: known} if source in record.extras else record.extras
        decide(step, replace(record, marks={source: moved}, extras=extras, origin="set"), lease)
        return moved


def decide(step: Step, record: JobRecord, lease: HeldLease) -> None:
    """Save what a person decided, above every number that is known, and fence the sinks with it."""
    ledgers = read_ledgers(step.work, step.store.namespace, step.session)
    used = record.intent.number if record.intent else 0
    expected, number = record.number, max(record.number, used, ledgers.highest) + 1
    decided = replace(record, number=number, intent=None, modified_time=datetime.now(timezone.utc))
    step.store.commit(decided, expected=expected, lease=lease.lease)
    fence_laggards(step.work, step.store.namespace, decided, ledgers, noted_in(lease, step.session))

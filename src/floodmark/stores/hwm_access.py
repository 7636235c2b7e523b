"""Marks that are set from outside of a run, by value and not by a batch: `set_hwm`, and the functions of a silver job.

A job of that name has a record of its own: its one mark is moved in it, and nothing else. A batch that is open may be
in some sinks and not in others, so nothing is moved over it; without one no run can write any more under the numbers
that were given out, and the next run fences the sinks with the new one before it writes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError
from floodmark.hwm.mark import short_mark
from floodmark.stores.lease import hold
from floodmark.stores.record import JobRecord

if TYPE_CHECKING:
    from floodmark.hwm import HWM
    from floodmark.stores.contract import MarkStore


class HwmAccess:
    """Marks by their own name, for users of etl-entities: a record with one mark, named as the mark is.

    And how a store shows itself: where it is, and in a notebook the marks that are in it.
    """

    def __repr__(self: MarkStore) -> str:
        return f"{type(self).__name__}({self.describe()}, namespace {self.namespace!r})"

    def _repr_html_(self: MarkStore) -> str:
        from floodmark.notebook import row_table

        records = [self.read(job) for job in self.jobs()]
        rows = [
            (record.job, source, mark.kind, short_mark(mark.show()), record.number, record.modified_time)
            for record in records
            if record is not None
            for source, mark in record.marks.items()
        ]
        return row_table(repr(self), ("job", "source", "type", "mark", "batch", "changed"), rows)

    def get_hwm(self: MarkStore, name: str) -> HWM[Any] | None:
        """The mark of that name, or the only mark of the job of that name; None if there is none."""
        record = self.read(name)
        if record is None:
            return None
        only = next(iter(record.marks.values())) if len(record.marks) == 1 else None
        return record.marks.get(name, only)

    def set_hwm(self: MarkStore, mark: HWM[Any]) -> None:
        """Save the mark under its own name, under a new number; raises LeaseHeld while a run works with it.

        Over a job of that name it moves the job's one mark, of the same kind. Raises ConfigError where that cannot be.
        """
        with hold(self, mark.name) as lease:
            record = self.read(mark.name) or JobRecord(mark.name)
            changed = with_mark_moved(record, mark) if is_of_a_job(record) else with_plain_mark(record, mark)
            lease.save(changed, after=record, modified_time=mark.modified_time)


def is_of_a_job(record: JobRecord) -> bool:
    """Whether runs keep this record: only they know which source a mark is of, and which sinks have its batches."""
    return bool(record.sources or record.intent or record.extras.sinks)


def with_plain_mark(record: JobRecord, mark: HWM[Any]) -> JobRecord:
    """The record of a mark that no job has, with this one in its place."""
    marks = {**record.marks, mark.name: mark} if len(record.marks) != 1 else {next(iter(record.marks)): mark}
    return replace(record, marks=marks, origin="set")


def with_mark_moved(record: JobRecord, mark: HWM[Any]) -> JobRecord:
    """The record of a job with its one mark at the value of this one, as `floodmark marks set` leaves it.

    Raises ConfigError for an open batch, for several marks or none, and for a mark of another kind.
    """
    require_no_open_batch(record)
    if len(record.marks) != 1:
        raise ConfigError(
            f"'{record.job}' is a job with {len(record.marks)} marks, and one mark was given.",
            hint=f"floodmark marks export {record.job}, change the file, and floodmark marks import it",
        )
    [(source, known)] = record.marks.items()
    if type(known) is not type(mark):
        raise ConfigError(
            f"'{record.job}' is a job whose mark is a {known.kind}, and a {mark.kind} was given.",
            hint=f"get_hwm('{record.job}') gives the mark as it is; set another value in that",
        )
    memory, extras = record.extras.source(source), record.extras
    if memory.pending:  # it was about the old mark
        extras = extras.with_source(source, replace(memory, pending={}))
    return replace(record, marks={source: known.set_value(mark.dump())}, extras=extras, origin="set")


def require_no_open_batch(record: JobRecord) -> None:
    """Raises ConfigError: who gives up a batch that sinks may have has to fence them, and does not do it in passing."""
    if record.intent is not None:
        raise ConfigError(
            f"batch {record.intent.number} of job '{record.job}' is not finished, so its mark is not moved.",
            hint=f"floodmark run --select {record.job}; or give it up: floodmark marks set {record.job} VALUE",
        )

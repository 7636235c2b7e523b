"""What is known of the rows of a batch that is only planned: for `plan`, and some of them for `preview`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from floodmark.jobs.display import Preview
from floodmark.sinks.contract import Shaped, answering_at_once, without_own
from floodmark.sinks.restatement import Restated, Restatement
from floodmark.step.batch import prepare
from floodmark.step.checks import compare
from floodmark.step.intents import new_intent
from floodmark.step.looking import Outlook, read_ledgers, require_a_beginning, require_agreement
from floodmark.step.spool import Spool

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from floodmark.step import Step
    from floodmark.step.work import Work
    from floodmark.stores.record import Intent, JobRecord


@dataclass(frozen=True)
class PlannedRows:
    """The rows of a batch that is only planned: described, and never read but for the dates that a fact touches."""

    step: Step
    intent: Intent

    @cached_property
    def rows(self) -> DataFrame:
        """From the spool of an open batch if it is finished; else as the source gives them, and frozen nowhere."""
        spool = self.intent.spool
        frozen = spool if spool and Spool(spool).counts() else None
        prepared = prepare(self.step.work, replace(self.intent, spool=frozen), self.step.session())
        return prepared.judgement.kept_rows()

    def schema_changes(self) -> tuple[str, ...]:
        """What the rows have that a target has not."""
        session, sinks = self.step.session, self.step.work.sinks
        shaped = [(sink.name, sink.schema(session)) for sink in sinks if isinstance(sink, Shaped)]
        drifts = [(name, compare(self.rows.schema, schema)) for name, schema in shaped if schema is not None]
        absent = [f"{name}: the rows lack column {column}" for name, drift in drifts for column in drift.absent]
        return (*(f"{name}: {what}" for name, drift in drifts for what in drift.differences()), *absent)

    def restated(self, expected_rows: int | None) -> tuple[Restatement, ...]:
        """What the batch writes anew in each sink that does not only add; a refresh rebuilds every target anyway."""
        if self.intent.kind == "refresh":
            return ()
        told = (
            s.restatement(lambda: self.rows, expected_rows) for s in self.step.work.sinks if isinstance(s, Restated)
        )
        return tuple(each for each in told if each is not None)


def preview(step: Step, count: int) -> Preview:
    """The first rows of the next batch: of the open one, or of the one that would be planned now."""
    record = step.read()
    if record.intent is not None:
        return _preview(PlannedRows(step, record.intent), count, f"batch {record.intent.number} is open")
    outlook = step.look(record)
    if outlook.is_empty:
        return Preview(step.job, (), note=outlook.held_reason or "nothing new")
    return _preview(PlannedRows(step, planned_intent(step, record, outlook)), count, None)


def _preview(planned: PlannedRows, count: int, note: str | None) -> Preview:
    rows = without_own(planned.rows)
    taken = tuple(row.asDict(recursive=True) for row in rows.take(count))
    return Preview(planned.step.job, tuple(rows.columns), taken, note)


def planned_intent(step: Step, record: JobRecord, outlook: Outlook) -> Intent:
    """The batch that a run would begin now; everything that it checks before it writes is checked."""
    ledgers = read_ledgers(looked_at(step.work), step.store.namespace, step.session)
    if not step.request.full_refresh:
        require_agreement(step.work, step.store.namespace, record, ledgers)
    require_a_beginning(step.work, record, step.request, step.session, ledgers)
    return new_intent(step.work, record, outlook, ledgers, step.request, step.session)


def looked_at(work: Work) -> Work:
    """The work as it is asked without the lease: nobody is waited for who writes to a sink."""
    return replace(work, sinks=tuple(map(answering_at_once, work.sinks)))

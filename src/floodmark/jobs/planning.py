"""What the next run of a job would do, found out without touching anything."""

from __future__ import annotations

from dataclasses import dataclass, replace

from floodmark.hwm import Json
from floodmark.sinks.contract import Shaped
from floodmark.step import Step
from floodmark.step.batch import prepare
from floodmark.step.checks import compare
from floodmark.step.intents import new_intent
from floodmark.step.looking import Outlook, marks_after, require_a_beginning, require_agreement
from floodmark.step.looking import read_ledgers as ledgers_of
from floodmark.step.work import display_marks
from floodmark.stores.record import Intent, JobRecord


@dataclass(frozen=True)
class Plan:
    """Marks from and to, rows expected (None: not known before they are read), and what would change on the way."""

    job: str
    mark_before: Json
    mark_after: Json
    expected_rows: int | None = None
    rows_held_back: int = 0
    held_reason: str | None = None
    open_batch: int | None = None
    schema_changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    has_work: bool = False


def plan(step: Step) -> Plan:
    """Look and compare; the record, the sinks and the source stay as they are."""
    record = step.read()
    if record.intent:
        return plan_of_open_batch(step, record, record.intent)
    outlook = step.look(record)
    if outlook.is_empty:
        before = display_marks(record.marks)
        return Plan(record.job, before, before, 0, outlook.held_back, outlook.held_reason)
    return plan_of_new_batch(step, record, outlook)


def plan_of_open_batch(step: Step, record: JobRecord, intent: Intent) -> Plan:
    """An open batch is finished first, whatever came since."""
    ledgers = ledgers_of(step.work, step.store.namespace, step.session)
    confirmed = ", ".join(ledgers.sinks_with(intent.number)) or "no sink"
    return Plan(
        job=record.job,
        mark_before=display_marks(record.marks),
        mark_after=display_marks(marks_after(record, intent)),
        open_batch=intent.number,
        notes=(f"batch {intent.number} was begun and not committed; {confirmed} has it; it is finished first",),
        has_work=True,
    )


def plan_of_new_batch(step: Step, record: JobRecord, outlook: Outlook) -> Plan:
    """Everything a run checks before it writes, without writing."""
    ledgers = ledgers_of(step.work, step.store.namespace, step.session)
    if not step.request.full_refresh:
        require_agreement(step.work, record, ledgers)
    require_a_beginning(step.work, record, step.request, step.session)
    intent = new_intent(step.work, record, outlook, ledgers, step.request, step.session)
    return Plan(
        job=record.job,
        mark_before=display_marks(record.marks),
        mark_after=display_marks(marks_after(record, intent)),
        expected_rows=outlook.expected_rows,
        rows_held_back=outlook.held_back,
        held_reason=outlook.held_reason,
        schema_changes=schema_changes(step, intent),
        notes=("every target is rebuilt",) if intent.kind == "refresh" else (),
        rules=tuple(f"{rule.name} ({rule.action}): {rule.describe()}" for rule in step.work.rules.rules),
        has_work=True,
    )


def schema_changes(step: Step, intent: Intent) -> tuple[str, ...]:
    """What the rows have that a target has not; only described, never read."""
    shaped = [(sink.name, sink.schema(step.session)) for sink in step.work.sinks if isinstance(sink, Shaped)]
    targets = [(name, schema) for name, schema in shaped if schema is not None]
    if not targets:
        return ()
    rows = prepare(step.work, replace(intent, spool=None), step.session()).rows.schema
    drifts = [(name, compare(rows, schema)) for name, schema in targets]
    absent = [f"{name}: the rows lack column {column}" for name, drift in drifts for column in drift.absent]
    return (*(f"{name}: {what}" for name, drift in drifts for what in drift.differences()), *absent)

"""Replaying what a job put aside, as a batch of the job; and its dead letters: run again, or given up.

A replay is a batch of the job, under its next number: what a run guarantees after a kill holds for it too, and whoever
comes next finishes it, `run` or another replay. The mark stays. Dead letters go through the job's own transform,
quarantined rows (`quarantine`) are past it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, FloodmarkError, LeaseHeld
from floodmark.hwm import ColumnIntHWM, Json, Span
from floodmark.jobs.backfill import require_takes_parts, run_patiently, sequences_for
from floodmark.jobs.borrowed_events import borrows
from floodmark.jobs.ranges import order_of
from floodmark.logs import get_logger
from floodmark.sinks.contract import Batch, ledger_id
from floodmark.sources.contract import Sight
from floodmark.step import RunRequest, Step
from floodmark.step.engine import OpenBatch, session_under
from floodmark.step.intents import new_attempt, outside_intent, spool_folder
from floodmark.step.looking import Outlook
from floodmark.step.set_aside import Letters, discarded_rows
from floodmark.stores.extras import OutsideBatch, RecordExtras
from floodmark.stores.lease import hold

if TYPE_CHECKING:
    from floodmark.jobs.job import Job
    from floodmark.sinks.contract import Session
    from floodmark.step.looking import Ledgers
    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import Intent, JobRecord, Receipt


log = get_logger(__name__)


@dataclass(frozen=True)
class ReplayStep(Step):
    """Rows that were put aside as one batch, done as the step does any; `chosen` says which they are."""

    chosen: OutsideBatch = field(kw_only=True)

    def look(self, record: JobRecord) -> Outlook:
        """The rows that are open and hold their record; the source itself is not asked."""
        letters, chosen = Letters.of(self.work, record.number + 1, self.chosen.kind), self.chosen
        found = letters.replayable_letters(self.session(), chosen.letters, chosen.where)
        rows = found.count() if found is not None else 0
        detail: dict[str, Json] = {"letters": list(chosen.letters)}
        if chosen.kind == "quarantine":
            detail = {"where": chosen.where, "changes": dict(chosen.changes)}
        span = Span(None, ColumnIntHWM("dead letters", record.number), detail)
        return Outlook({self.work.sources[0].name: Sight(span if rows else None, expected_rows=rows)}, {})

    def plan(self, record: JobRecord, look: Outlook) -> OpenBatch[Outlook]:
        """The table is fenced first: a discard that was paused must not give up rows that are being written."""
        sink, job = Letters.of(self.work, record.number, self.chosen.kind).sink, self.work.name
        sink.fence(ledger_id(self.store.namespace, job, sink.name), record.number, self.session)
        return super().plan(record, look)

    def intent_for(self, record: JobRecord, look: Outlook, ledgers: Ledgers) -> Intent:
        """The batch, always frozen: which rows cannot go on must not change between two attempts."""
        plain = super().intent_for(record, look, ledgers)
        frozen = replace(plain, spool=plain.spool or spool_folder(self.work, plain.number, plain.attempt))
        extras = replace(plain.extras, remember=RecordExtras(), outside=self.chosen)
        return outside_intent(frozen, "replay", extras, self.work)


def replay_letters(job: Job, ids: Sequence[str], session: Session, store: MarkStore) -> Receipt:
    """Run the letters of these ids again, or all that are open: what succeeds is done with, what fails stays open.

    Of the receipt, `rows_read` is how many letters were run and `rows_dead` how many failed again. A replay that was
    killed is finished first. Raises ConfigError for a job whose letters cannot be run by themselves.

    >>> orders = fm.sources.Files(folder, schema="id long")
    >>> job = fm.Job("orders", orders, [fm.testing.ListSink()], dead_letters=f"{folder}/dead")
    >>> replay_letters(job, [], lambda: spark, fm.stores.open("memory")).rows_read  # none is open
    0
    """
    plain = job.step(session, store, RunRequest())
    work = plain.work
    Letters.of(work, 0)
    if len(work.sources) != 1:
        raise ConfigError(
            f"job '{work.name}' has {len(work.sources)} sources: a letter would be joined with nothing.",
            hint=f"fix the records at their source, and `floodmark deadletters discard {work.name}`",
        )
    require_replay_fits(plain)
    sequences = sequences_for(work.sinks, order_of(work.sources[0]), session)
    first, *others = run_replay(plain, OutsideBatch(sequences=sequences, letters=tuple(ids)), run_patiently)
    return first.followed_by(others[0]) if others and others[0].status == "done" else first


def require_replay_fits(plain: Step) -> None:
    """What can be refused before a row is read: a sink that exchanges rows, and a batch that is open."""
    for sink in plain.work.sinks:
        require_takes_parts(sink, plain.work.name)
        if borrows(sink):
            raise ConfigError(
                f"what sink '{sink.name}' of job '{plain.work.name}' holds follows from the source alone.",
                hint="add the repaired rows to the source, and discard these",
            )
    record = plain.read()
    if record.intent is not None and record.intent.kind != "replay":
        require_no_open_batch(plain)


def run_replay(plain: Step, chosen: OutsideBatch, run: Callable[[Step], Receipt]) -> list[Receipt]:
    """The receipt of the replay; where an earlier one had been begun, that one is finished first, with its own."""
    step = ReplayStep(plain.store, plain.session, plain.work, plain.request, chosen=chosen)
    try:
        first = run(step)
        return [first, run(step)] if first.status == "done" and first.recovered else [first]
    except LeaseHeld:
        raise
    except FloodmarkError:
        let_go(step)
        raise


def let_go(step: ReplayStep) -> None:
    """A replay that failed before any sink had it is dropped: the job's own batches must not wait for it."""
    try:
        with hold(step.store, step.work.name) as lease:
            record = step.read()
            intent = record.intent if record.intent and record.intent.kind == "replay" else None
            if intent and not step.ledgers(record).sinks_touched_by(intent.number) and step.is_droppable(intent):
                step.drop(record, lease)
                log.info("replay is dropped: it failed and no sink has it", job=record.job, number=intent.number)
    except FloodmarkError as error:  # what failed the replay is the error to raise
        log.warning("the replay stays open", job=step.work.name, reason=str(error))


def discard_letters(job: Job, ids: Sequence[str], session: Session, store: MarkStore) -> int:
    """Give open letters up; they stay in the table as discarded. Raises LeaseHeld while a run works on the job."""
    return discard(job, OutsideBatch(letters=tuple(ids)), session, store)


def discard(job: Job, chosen: OutsideBatch, session: Session, store: MarkStore) -> int:
    """Give up what was put aside and chosen, also what holds no record; how many rows that were.

    It takes a number of the job, like any batch, and is one commit of one table: after a kill it is done, or it is
    not and can be asked for again. One that was paused until another act used the table is refused there.
    """
    from pyspark.sql import functions as F

    with hold(store, job.name) as lease:
        step = job.step(session_under(lease, session), store, RunRequest())
        require_no_open_batch(step)
        record = step.read()
        letters = Letters.of(step.work, record.number + 1, chosen.kind)
        rows = letters.open_letters(step.session())
        if rows is None:
            return 0
        rows = rows.where(chosen.where)
        given_up = rows.where(F.col("id").isin(list(chosen.letters))) if chosen.letters else rows
        numbered = lease.save(record, after=record, above=step.ledgers(record).highest)
        batch = act_batch(step, numbered.number, "discard")
        return letters.sink.write(discarded_rows(given_up, batch), batch) or 0


def require_no_open_batch(step: Step) -> None:
    """An open batch comes first: its rows may be among those asked for."""
    record = step.read()
    if record.intent is not None:
        raise ConfigError(
            f"batch {record.intent.number} of job '{record.job}' is not finished.",
            hint=f"floodmark run --select {record.job}",
        )


def act_batch(step: Step, number: int, act: str) -> Batch:
    """The batch of an act on what was put aside, under a number of the job; it has no rows for the job's sinks."""
    attempt = new_attempt()
    return Batch(
        namespace=step.store.namespace,
        job=step.work.name,
        number=number,
        attempt=attempt,
        digest=f"{act} {attempt}",
        kind="batch",
        batch_time=datetime.now(timezone.utc),
    )

"""The dead letters of a job: replayed through its own transform into its own sinks, or given up.

A replay is a batch of the job, under its next number: what a run guarantees after a kill holds for it too, and whoever
comes next finishes it, `run` or another replay. The mark stays.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, FloodmarkError, LeaseHeld
from floodmark.hwm import ColumnIntHWM, Span
from floodmark.jobs.backfill import require_takes_parts, run_patiently, sequences_for
from floodmark.jobs.quarantine import require_no_open_batch
from floodmark.jobs.ranges import order_of
from floodmark.logs import get_logger
from floodmark.sinks.contract import Batch
from floodmark.sources.contract import Sight
from floodmark.step import RunRequest, Step
from floodmark.step.engine import session_under
from floodmark.step.intents import new_attempt, outside_intent, spool_folder
from floodmark.step.looking import Outlook
from floodmark.step.refused import Letters, discarded_rows
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
    """Letters as one batch, done as the step does any."""

    ids: tuple[str, ...] = field(kw_only=True)

    def look(self, record: JobRecord) -> Outlook:
        """The letters that are open and hold their record; the source itself is not asked."""
        source = self.work.sources[0].name
        found = Letters.of(self.work, record.number + 1).replayable_letters(self.session(), self.ids)
        letters = found.count() if found is not None else 0
        span = Span(None, ColumnIntHWM("dead letters", record.number), {"letters": list(self.ids)})
        return Outlook({source: Sight(span if letters else None, expected_rows=letters)}, {})

    def intent_for(self, record: JobRecord, look: Outlook, ledgers: Ledgers) -> Intent:
        """The batch, always frozen: which letters it failed on must not change between two attempts."""
        sequences = sequences_for(self.work.sinks, order_of(self.work.sources[0]), self.session)
        plain = super().intent_for(record, look, ledgers)
        frozen = replace(plain, spool=plain.spool or spool_folder(self.work, plain.number, plain.attempt))
        outside = OutsideBatch(sequences=sequences, letters=self.ids)
        extras = replace(plain.extras, remember=RecordExtras(), outside=outside)
        return outside_intent(frozen, "replay", extras, self.work)


def replay_letters(job: Job, ids: Sequence[str], session: Session, store: MarkStore) -> Receipt:
    """Run the letters of these ids again, or all that are open: what succeeds is done with, what fails stays open.

    Of the receipt, `rows_read` is how many letters were run and `rows_dead` how many failed again. A replay that was
    killed is finished first. Raises ConfigError for a job whose letters cannot be run by themselves.
    """
    step = step_of(job, ids, session, store)
    try:
        return finished(step)
    except LeaseHeld:
        raise
    except FloodmarkError:
        let_go(step)
        raise


def step_of(job: Job, ids: Sequence[str], session: Session, store: MarkStore) -> ReplayStep:
    """Everything that can be refused is refused here, before a letter is read."""
    plain = job.step(session, store, RunRequest())
    work = plain.work
    Letters.of(work, 0)
    if len(work.sources) != 1:
        raise ConfigError(
            f"job '{work.name}' has {len(work.sources)} sources: a letter would be joined with nothing.",
            hint=f"fix the records at their source, and `floodmark deadletters discard {work.name}`",
        )
    for sink in work.sinks:
        require_takes_parts(sink, work.name)
    record = plain.read()
    if record.intent is not None and record.intent.kind != "replay":
        require_no_open_batch(plain)
    return ReplayStep(plain.store, plain.session, work, plain.request, ids=tuple(ids))


def finished(step: ReplayStep) -> Receipt:
    """The replay that was asked for; where an earlier one had been begun, that one first."""
    first = run_patiently(step)
    if first.status != "done" or not first.recovered:
        return first
    second = run_patiently(step)
    return first.followed_by(second) if second.status == "done" else first


def let_go(step: ReplayStep) -> None:
    """A replay that failed before any sink had it is dropped: the job's own batches must not wait for it."""
    try:
        with hold(step.store, step.work.name) as lease:
            record = step.read()
            intent = record.intent if record.intent and record.intent.kind == "replay" else None
            if intent and not step.ledgers(record).sinks_touched_by(intent.number):
                step.drop(record, lease)
                log.info("replay is dropped: it failed and no sink has it", job=record.job, number=intent.number)
    except FloodmarkError as error:  # what failed the replay is the error to raise
        log.warning("the replay stays open", job=step.work.name, reason=str(error))


def discard_letters(job: Job, ids: Sequence[str], session: Session, store: MarkStore) -> int:
    """Give open letters up; they stay in the table as discarded. Raises LeaseHeld while a run works on the job."""
    with hold(store, job.name) as lease:
        step = job.step(session_under(lease, session), store, RunRequest())
        require_no_open_batch(step)
        record, sink = step.read(), step.work.dead_letters
        opened = Letters.of(step.work, record.number + 1).open_letters(step.session())
        if opened is None or sink is None:
            return 0
        chosen = opened.where(opened["id"].isin(list(ids))) if ids else opened
        return sink.write(discarded_rows(chosen, record.number), discarding(step, record)) or 0


def discarding(step: Step, record: JobRecord) -> Batch:
    """A batch of its own ledger: it has no rows for the job's sinks, and takes no number of the job's."""
    act = uuid.uuid4().hex[:12]
    return Batch(
        namespace=step.store.namespace,
        job=f"{record.job}/discard/{act}",
        number=1,
        attempt=new_attempt(),
        digest=act,
        kind="batch",
        batch_time=datetime.now(timezone.utc),
    )

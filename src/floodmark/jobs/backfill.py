"""Backfill: rows of a range that the mark has passed are delivered again, chunk by chunk, and the mark stays.

Every chunk is a batch of the job, under its next number: what a run guarantees after a kill holds for it too. How far
the backfill came is committed with each chunk, beside the marks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from floodmark.errors import BackfillOpen, ConfigError, LeaseHeld
from floodmark.jobs.ranges import Bounds, Range, mark_in, order_of, range_of
from floodmark.logs import get_logger
from floodmark.patience import patiently
from floodmark.sinks.contract import Shaped, Sink
from floodmark.sinks.modes import TableSink, merges, replaces
from floodmark.step import Step
from floodmark.step.engine import Clock, nothing_new
from floodmark.step.intents import outside_intent
from floodmark.step.looking import Outlook, require_same_sources
from floodmark.stores.extras import BACKFILL, BackfillProgress, OutsideBatch, RecordExtras
from floodmark.stores.lease import hold

if TYPE_CHECKING:
    from floodmark.sinks.contract import Session
    from floodmark.step.looking import Ledgers
    from floodmark.stores.record import Intent, JobRecord, Receipt


log = get_logger(__name__)
CHUNK_ROWS = 500_000
PATIENCE_SECONDS = 600.0
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class BackfillStep(Step):
    """One chunk of a backfill, done as the step does any batch."""

    bounds: Bounds = field(kw_only=True)
    pieces: Range = field(kw_only=True)
    chunk_rows: int = field(kw_only=True)

    def progress(self, record: JobRecord) -> BackfillProgress:
        """Where this very backfill stands, or its beginning. Raises BackfillOpen while another one is not finished."""
        asked = BackfillProgress(str(self.bounds.start), str(self.bounds.stop))
        found = record.extras.backfill
        if found is None or found.is_done:
            return asked
        if Bounds(found.start, found.stop) != self.bounds:
            raise BackfillOpen(self.work.name, start=found.start, stop=found.stop)
        return found

    def look(self, record: JobRecord) -> Outlook:
        """The next chunk."""
        source, progress = self.work.sources[0], self.progress(record)
        sources = {source.name: source.fingerprint(self.session)}
        require_same_sources(self.work, record, sources)
        sight = self.pieces.piece(progress.after, self.chunk_rows, progress.remembered)
        if sight.span is None and sight.held_back:
            log.warning("rows of the backfill are held back", job=self.work.name, reason=sight.held_reason)
        return Outlook({source.name: sight}, sources)

    def intent_for(self, record: JobRecord, look: Outlook, ledgers: Ledgers) -> Intent:
        """The chunk, and in its intent all that finishing it takes."""
        [(source, sight)] = look.sights.items()
        before = self.progress(record)
        after = replace(before, after=look.spans[source].upto, chunks=before.chunks + 1)
        progress = replace(after, remembered=dict(sight.extras))
        condition = {source: self.pieces.condition} if self.pieces.condition else {}
        outside = OutsideBatch(condition, sequences_for(self.work.sinks, order_of(self.work.sources[0]), self.session))
        plain = super().intent_for(record, look, ledgers)
        extras = replace(plain.extras, remember=RecordExtras().with_backfill(progress), outside=outside)
        return outside_intent(plain, "backfill", extras, self.work)

    def close(self) -> None:
        """Note that nothing of the range is left, so that the same call begins anew the next time."""
        with hold(self.store, self.work.name) as lease:
            record = self.read()
            found = record.extras.backfill
            if record.intent is None and found and not found.is_done:
                extras = record.extras.with_backfill(replace(found, is_done=True))
                self.store.intend(replace(record, extras=extras), expected=record.number, lease=lease.lease)


def backfill(plain: Step, bounds: Bounds, *, chunk_rows: int = CHUNK_ROWS, restart: bool = False) -> Receipt:
    """Deliver the rows of the range again. Killed and called again with the same range, it goes on where it was.

    A range that goes beyond the mark is cut there: what lies above comes by itself. Raises RangeAboveMark for one that
    begins there, BackfillOpen while another range is not finished (unless `restart`), ConfigError for what cannot be.
    """
    step = step_of(plain, bounds, chunk_rows)
    if restart:
        forget(step)
    step.progress(step.read())
    done: Receipt | None = None
    while (receipt := run_patiently(step)).status == "done":
        log.info("chunk of a backfill done", job=receipt.job, rows=receipt.rows_read, span=receipt.span)
        done = done.followed_by(receipt) if done else receipt
    step.close()
    if done is None:
        return nothing_new(step.read(), None, Clock(), ("no row of the source lies in the range",))
    return replace(done, notes=(*done.notes[:1], *notes_on(step)))


def step_of(plain: Step, bounds: Bounds, chunk_rows: int) -> BackfillStep:
    """Everything that can be refused is refused here, before a row is read."""
    work = plain.work
    if bounds.start is None or bounds.stop is None or len(work.sources) != 1:
        raise ConfigError("a backfill is of a job with one source, and has two ends.", hint="give --from and --to")
    for sink in work.sinks:
        require_takes_parts(sink, work.name)
    record = plain.read()
    require_none_of_others_open(record)
    pieces = range_of(work.sources[0], mark_in(record, work.sources[0]), bounds, plain.session)
    return BackfillStep(
        plain.store, plain.session, work, plain.request, bounds=bounds, pieces=pieces, chunk_rows=chunk_rows
    )


def require_none_of_others_open(record: JobRecord) -> None:
    """An open batch of a run comes first: it moves the mark that the range is held against."""
    if record.intent is not None and record.intent.kind != "backfill":
        raise ConfigError(
            f"batch {record.intent.number} of job '{record.job}' is not finished.",
            hint=f"floodmark run --select {record.job}",
        )


def require_takes_parts(sink: Sink, job: str) -> None:
    """A sink that exchanges rows would put a part of them in the place of all."""
    if replaces(sink):
        raise ConfigError(
            f"sink '{sink.name}' of job '{job}' replaces rows: a part would take the place of rows it does not have.",
            hint=f"floodmark run --select {job} --full-refresh rebuilds the target",
        )


def sequences_for(sinks: tuple[Sink, ...], cursor: tuple[str, ...], session: Session) -> dict[str, tuple[str, ...]]:
    """For each merge that cannot tell an older row from a newer one, the source's own order; it must be stored there.

    Raises ConfigError where it is not: an old row could take the place of a newer one.
    """
    merging = [sink for sink in sinks if isinstance(sink, TableSink) and merges(sink) and not sink.sequence]
    found: dict[str, tuple[str, ...]] = {}
    for sink in merging:
        schema = sink.schema(session) if isinstance(sink, Shaped) else None
        if schema is None:
            continue  # there is no table yet, so nothing newer
        if not cursor or not set(map(str.lower, cursor)) <= set(map(str.lower, schema.names)):
            raise ConfigError(
                f"sink '{sink.name}' merges without a `sequence`: an older row could replace a newer one.",
                hint="name the columns that say which row is newer: `sequence: [updated_at]`",
            )
        found[sink.name] = cursor
    return found


def run_patiently(step: Step) -> Receipt:
    """One batch; a run of the job that is at work just now is waited for."""
    return patiently(
        step.run,
        seconds=PATIENCE_SECONDS,
        passing=lambda error: isinstance(error, LeaseHeld),
        pause_seconds=POLL_SECONDS,
    )


def forget(step: BackfillStep) -> None:
    """Give up what another backfill had left to do; what it delivered stays, and what it had begun is finished."""
    if step.read().intent is not None:
        run_patiently(step)
    with hold(step.store, step.work.name) as lease:
        record = step.read()
        extras = record.extras.without([BACKFILL])
        step.store.intend(replace(record, extras=extras), expected=record.number, lease=lease.lease)


def notes_on(step: BackfillStep) -> tuple[str, ...]:
    """What somebody who looks at the targets should know."""
    appending = [sink.name for sink in step.work.sinks if not merges(sink) and not replaces(sink)]
    twice = f"{', '.join(appending)} appends: rows that were there before are there twice now"
    cut = "the range goes beyond the mark and was cut there: what lies above comes with the next run"
    return (*((cut,) if step.pieces.is_cut else ()), *((twice,) if appending else ()))

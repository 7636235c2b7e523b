"""The end of a batch: count it, put aside what was refused, raise the mark.

The order is the sinks, then dead letters, then the quarantine, then the mark, each durable before the next begins: so
a batch of which rows are aside is always one that every sink has, and is never dropped unseen. The mark may move in
the transaction of the last sink, but only for a batch that puts nothing aside: whatever was put aside before that
transaction ends would outlive one that fails, and with it a batch that other code is then free to plan again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol

from floodmark.errors import NumbersDisagree, SourceRewritten
from floodmark.failpoints import reach
from floodmark.hwm import Json
from floodmark.rules import Tally
from floodmark.sinks.contract import Counting
from floodmark.step.batch import (
    PreparedBatch,
    confirmed_by,
    keeps_every_row,
    require_as_many_as_read,
    require_unchanged_sources,
)
from floodmark.step.checks import log_rules
from floodmark.step.engine import Clock, OpenBatch, done
from floodmark.step.listeners import span
from floodmark.step.looking import Outlook, last_confirmed, ledgers_of, marks_after
from floodmark.step.refused import SinkRefusals, letters_sink, puts_rows_aside, quarantine_broken, write_dead_letters
from floodmark.step.spool import RowCounts
from floodmark.step.work import KEY_OF_ASIDE, OUTSIDE_KINDS, gives_same_rows
from floodmark.stores.contract import JoiningStore, MarkStore
from floodmark.stores.extras import RecordExtras
from floodmark.stores.record import Intent, JobRecord, Receipt, RestatedDates, RuleOutcome

if TYPE_CHECKING:
    from psycopg import Connection

    from floodmark.sinks.contract import Batch, Sink
    from floodmark.step.work import Work
    from floodmark.stores.lease import HeldLease
    from floodmark.stores.record import Lease


COUNTED_ANEW = "the rows that were read are counted anew: the source may have changed since the sinks took them"


class Save(Protocol):
    """How the record is saved: the store's own way, or inside somebody's transaction."""

    def __call__(self, record: JobRecord, *, expected: int, lease: Lease, receipt: Receipt) -> None: ...


@dataclass(frozen=True)
class BatchCommit:
    """All that is known of a batch whose sinks are written, and the one act that ends it."""

    work: Work
    store: MarkStore
    open_batch: OpenBatch[Outlook]
    prepared: PreparedBatch
    batch: Batch
    lease: HeldLease
    clock: Clock
    secluded: tuple[str, ...]
    """Sinks whose Spark writer works in a session of its own: what is counted on the way to them is not known here."""

    @cached_property
    def counts(self) -> RowCounts:
        """What was read, dead and judged; asked once the last sink has seen every row."""
        return self.prepared.row_counts(was_executed=self.is_executed)

    @property
    def is_executed(self) -> bool:
        """Whether the rows were counted on their way in this attempt, all of them, to a sink that was not secluded."""
        notes, sinks = self.batch.notes, self.work.sinks
        is_observed = any(s.name not in self.secluded or notes.ways.get(s.name) == "arrow" for s in sinks)
        is_repeat = len(self.open_batch.confirmed_sinks) >= len(sinks)
        return is_observed and not notes.is_partly_observed and not is_repeat

    def puts_rows_aside(self) -> bool:
        """Whether anything but the mark is still to be written."""
        return puts_rows_aside(self.work, self.prepared, self.counts, self.batch)

    def save(self, written: Mapping[str, int | None], save: Save) -> Receipt:
        """Put aside what was refused, and raise the mark with the receipt of it all.

        Raises NumbersDisagree, LeaseLost or SourceRewritten, before the mark is touched.
        """
        self.require_agreement(written)
        exact = self.exact_counts(written)
        counts, batch = exact or self.counts, self.aside_batch
        if puts_rows_aside(self.work, self.prepared, counts, batch):
            self.lease.check()  # as before every write: the table may be another one by now, and not closed to this run
        dead = write_dead_letters(self.work, self.prepared, counts, batch)
        log_rules(counts.tally, self.work.name)
        judgement = self.prepared.judgement
        refusals = SinkRefusals.of(self.work, self.batch, lambda: judgement.marked_rows.sparkSession)
        quarantined = quarantine_broken(self.work, judgement, counts.tally, batch, refusals)
        self.require_unchanged()
        reach("before_commit")
        notes = (*(() if exact else (COUNTED_ANEW,)), *refusals.notes())
        outcome = BatchOutcome(
            refusals.rows_taken(written), counts.read, dead or 0, quarantined or 0, counts.tally, notes
        )
        receipt, expected = receipt_of(self.open_batch, outcome, self.clock), self.open_batch.record.number
        dates = {sink: RestatedDates.of(each) for sink, each in self.batch.notes.restated.items()}
        receipt = replace(receipt, written_by=dict(self.batch.notes.ways), restated=dates)
        if self.prepared.meter is not None:
            receipt = replace(receipt, resources=self.prepared.meter.end())
        letters = letters_sink(self.work)
        aside = [sink for sink, rows in ((letters, dead), (self.work.quarantine, quarantined)) if rows is not None]
        with span("commit"):
            save(self.record_after(filter(None, aside)), expected=expected, lease=self.lease.lease, receipt=receipt)
        return receipt

    def exact_counts(self, written: Mapping[str, int | None]) -> RowCounts | None:
        """What was read then; None if only the rows of now can be counted, which may be others.

        Where every row goes on and none is judged, as many were read as the sinks have.
        """
        if self.can_recount():
            return self.counts
        known = [rows for rows in written.values() if rows is not None]
        may_be_dead = any(reading.dead for reading in self.prepared.readings.values())
        goes_on = keeps_every_row(self.work.transform) and not self.work.rules and not may_be_dead
        return RowCounts(known[0]) if goes_on and known else None

    @property
    def aside_batch(self) -> Batch:
        """The batch in the words of dead letters and quarantine, which may have the name of another sink."""
        record, intent = self.open_batch.record, self.open_batch.intent
        return replace(self.batch, confirmed=confirmed_by(self.aside_by_key, record, intent, self.store.namespace))

    @property
    def aside_by_key(self) -> dict[str, Sink]:
        return {key: sink for key, sink in self.work.by_key().items() if key.startswith(KEY_OF_ASIDE)}

    def require_agreement(self, written: Mapping[str, int | None]) -> None:
        """Sinks that keep every row have committed as many as they were handed. Raises NumbersDisagree.

        Exact are the footers of the spool's parts, what the rules counted over them, and what such a sink reports; they
        are compared as they are. What was observed on the way is not, see `require_as_many_as_read`. Where a transform
        may change the number, and nothing was frozen, sinks are compared with each other. A count that is not known is
        not compared.
        """
        keeping = [sink.name for sink in self.work.sinks if isinstance(sink, Counting) and sink.counts_every_row()]
        found = {f"sink '{name}'": rows for name in keeping if (rows := written.get(name)) is not None}
        job, number, spool = self.work.name, self.batch.number, self.prepared.spool
        if not found:
            return
        if spool is not None:
            tally = self.counts.tally
            handed = (tally.judged if tally.verdicts else spool.rows()) - tally.quarantined - tally.dropped
            require_same(job, number, handed, "the rows that were frozen", found)
        elif keeps_every_row(self.work.transform) and self.can_recount():
            require_as_many_as_read(self.work, number, self.prepared, self.counts, found)
        else:
            first = next(iter(found))
            require_same(job, number, found[first], f"what {first} took", found)

    def can_recount(self) -> bool:
        """Whether the rows of then can be counted: those of a source that changes, only while they are written."""
        is_frozen = self.prepared.frozen_counts is not None
        return is_frozen or self.is_executed or all(gives_same_rows(source) for source in self.work.sources)

    def require_unchanged(self) -> None:
        """Nothing changed in a source while the sinks read from it. Raises SourceRewritten: the mark stays."""
        if self.prepared.spool is not None:
            return  # compared when it was frozen
        try:
            require_unchanged_sources(self.work, self.open_batch.intent)
        except SourceRewritten as error:
            sinks = ", ".join(sink.name for sink in self.work.sinks)
            raise SourceRewritten(
                error.source,
                what=f"{error.what}, and batch {self.batch.number} was written to {sinks} with what was read",
                hint=f"look what is in the sinks; `floodmark run --select {self.work.name} --full-refresh` rebuilds "
                "them, `--abandon` reads the span again as a new batch (append sinks get its rows a second time)",
            ) from error

    def record_after(self, aside_sinks: Iterable[Sink]) -> JobRecord:
        """As `record_after`, with the number that each sink has confirmed by now; `aside_sinks` have rows of it too."""
        record, intent = record_after(self.open_batch), self.open_batch.intent
        namespace, before = self.store.namespace, self.open_batch.record
        confirmed = ledgers_of(self.work, namespace, intent.number, aside_sinks)
        known = {key: last_confirmed(s, namespace, before, key) for key, s in self.aside_by_key.items()}
        kept = before.extras.sinks if intent.kind == "repair" else {}  # it writes to one sink alone
        aside = {key: ledger for key, ledger in known.items() if ledger is not None}
        return replace(record, extras=record.extras.with_sinks({**kept, **aside, **confirmed}))


@dataclass
class JoinedCommit:
    """What the last sink is given, to commit the batch in its own transaction; `receipt`, if it did."""

    commit: BatchCommit
    rows_written: dict[str, int | None]
    """What the sinks before it took, as far as they know."""
    receipt: Receipt | None = None

    def commit_within(self, connection: Connection[Any], rows: int) -> None:
        """Called by the last sink before its own commit: where it leads to the store, the mark moves with the rows.

        Not where rows are put aside: they come between the sink's commit and the mark.
        """
        store, lease = self.commit.store, self.commit.lease.lease
        if not isinstance(store, JoiningStore) or not store.is_reached_by(connection, lease):
            return
        if not self.commit.puts_rows_aside():
            last = self.commit.work.sinks[-1].name
            is_repeat = last in self.commit.open_batch.confirmed_sinks  # which may not know its rows, and says 0
            written = {**self.rows_written, last: rows or (None if is_repeat else 0)}
            self.receipt = self.commit.save(written, partial(store.commit_within, connection))


def require_same(job: str, number: int, expected: int, counted_by: str, found: Mapping[str, int]) -> None:
    """Raises NumbersDisagree."""
    other = {place: rows for place, rows in found.items() if rows != expected}
    if other:
        raise NumbersDisagree(job, number=number, expected=expected, counted_by=counted_by, found=other)


@dataclass(frozen=True)
class BatchOutcome:
    """What the sinks took, as they counted it."""

    rows_written: Mapping[str, int]
    rows_read: int
    rows_dead: int
    rows_quarantined: int
    tally: Tally
    notes: tuple[str, ...] = ()


def record_after(open_batch: OpenBatch[Outlook]) -> JobRecord:
    """The record once every sink has confirmed: marks raised, intent closed, number taken."""
    record, intent = open_batch.record, open_batch.intent
    known, learned = record.extras, intent.extras.remember or RecordExtras()
    return JobRecord(
        job=record.job,
        number=intent.number,
        marks=marks_after(record, intent),
        sources={**record.sources, **(intent.extras.sources or {})},
        extras=learned.with_identity(known.identity) if intent.kind == "refresh" else known.with_parts_of(learned),
        origin="commit",
        modified_time=datetime.now(timezone.utc),
    )


def receipt_of(open_batch: OpenBatch[Outlook], outcome: BatchOutcome, clock: Clock) -> Receipt:
    """What this batch did."""
    record, intent, outlook = open_batch.record, open_batch.intent, open_batch.look
    ends = {name: (span.after.show() if span.after else None, span.upto.show()) for name, span in intent.spans.items()}
    spans: dict[str, Json] = {name: list(both) for name, both in ends.items()}
    return replace(
        done(record, intent.number, marks_after(record, intent), clock),
        rows_read=outcome.rows_read,
        rows_written=dict(outcome.rows_written),
        rows_refused=outcome.rows_quarantined + outcome.tally.dropped,
        rows_quarantined=outcome.rows_quarantined,
        rows_dropped=outcome.tally.dropped,
        rules=tuple(RuleOutcome(**asdict(verdict)) for verdict in outcome.tally.verdicts),
        rows_dead=outcome.rows_dead,
        rows_held_back=outlook.held_back if outlook else 0,
        span=spans,
        notes=(*receipt_notes(outlook, intent), *outcome.notes),
        recovered=outlook is None,
    )


def receipt_notes(outlook: Outlook | None, intent: Intent) -> tuple[str, ...]:
    """What a reader of the receipt would wonder about; no outlook means that the batch had been begun before."""
    outside = (f"a {intent.kind}: the mark stays where it is",) if intent.kind in OUTSIDE_KINDS else ()
    if outlook is None:
        return (*outside, "finished a batch that an earlier run had begun")
    return (*outside, *outlook.idle_notes, *outlook.notes)

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

from floodmark.failpoints import reach
from floodmark.hwm import Json
from floodmark.rules import Tally
from floodmark.step.batch import PreparedBatch
from floodmark.step.checks import log_rules
from floodmark.step.engine import Clock, OpenBatch, done
from floodmark.step.looking import Outlook, ledgers_of, marks_after
from floodmark.step.refused import letters_sink, puts_rows_aside, quarantine_broken, write_dead_letters
from floodmark.step.spool import RowCounts
from floodmark.step.work import OUTSIDE_KINDS
from floodmark.stores.contract import JoiningStore, MarkStore
from floodmark.stores.extras import RecordExtras
from floodmark.stores.record import Intent, JobRecord, Receipt, RuleOutcome

if TYPE_CHECKING:
    from psycopg import Connection

    from floodmark.sinks.contract import Batch, Sink
    from floodmark.step.work import Work
    from floodmark.stores.lease import HeldLease
    from floodmark.stores.record import Lease


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
    is_observed: bool
    """Whether what is counted on the way to the sinks will be known here."""

    @cached_property
    def counts(self) -> RowCounts:
        """What was read, dead and judged; asked once the last sink has seen every row."""
        was_executed = self.is_observed and len(self.open_batch.confirmed_sinks) < len(self.work.sinks)
        return self.prepared.row_counts(was_executed=was_executed)

    def puts_rows_aside(self) -> bool:
        """Whether anything but the mark is still to be written."""
        return puts_rows_aside(self.work, self.prepared, self.counts, self.batch)

    def save(self, written: Mapping[str, int], save: Save) -> Receipt:
        """Put aside what was refused, and raise the mark with the receipt of it all."""
        counts = self.counts
        dead = write_dead_letters(self.work, self.prepared, counts, self.batch)
        log_rules(counts.tally, self.work.name)
        quarantined = quarantine_broken(self.work, self.prepared.judgement, counts.tally, self.batch)
        reach("before_commit")
        outcome = BatchOutcome(written, counts.read, dead or 0, quarantined or 0, counts.tally)
        receipt, expected = receipt_of(self.open_batch, outcome, self.clock), self.open_batch.record.number
        letters = letters_sink(self.work)
        aside = [sink for sink, rows in ((letters, dead), (self.work.quarantine, quarantined)) if rows is not None]
        save(self.record_after(filter(None, aside)), expected=expected, lease=self.lease.lease, receipt=receipt)
        return receipt

    def record_after(self, aside: Iterable[Sink]) -> JobRecord:
        """As `record_after`, with the number that each sink has confirmed by now; `aside` took rows of this batch."""
        record, intent = record_after(self.open_batch), self.open_batch.intent
        confirmed = ledgers_of(self.work, self.store.namespace, intent.number, aside)
        before, names = self.open_batch.record.extras.sinks, {sink.name for sink in self.work.aside_sinks}
        if intent.kind != "repair":  # it writes to one sink alone
            before = {name: ledger for name, ledger in before.items() if name in names}
        return replace(record, extras=record.extras.with_sinks({**before, **confirmed}))


@dataclass
class JoinedCommit:
    """What the last sink is given, to commit the batch in its own transaction; `receipt`, if it did."""

    commit: BatchCommit
    rows_written: dict[str, int]
    """What the sinks before it took."""
    receipt: Receipt | None = None

    def commit_within(self, connection: Connection[Any], rows: int) -> None:
        """Called by the last sink before its own commit: where it leads to the store, the mark moves with the rows.

        Not where rows are put aside: they come between the sink's commit and the mark.
        """
        store, lease = self.commit.store, self.commit.lease.lease
        if not isinstance(store, JoiningStore) or not store.is_reached_by(connection, lease):
            return
        if not self.commit.puts_rows_aside():
            written = {**self.rows_written, self.commit.work.sinks[-1].name: rows}
            self.receipt = self.commit.save(written, partial(store.commit_within, connection))


@dataclass(frozen=True)
class BatchOutcome:
    """What the sinks took, as they counted it."""

    rows_written: Mapping[str, int]
    rows_read: int
    rows_dead: int
    rows_quarantined: int
    tally: Tally


def record_after(open_batch: OpenBatch[Outlook]) -> JobRecord:
    """The record once every sink has confirmed: marks raised, intent closed, number taken."""
    record, intent = open_batch.record, open_batch.intent
    known, learned = record.extras, intent.extras.remember or RecordExtras()
    return JobRecord(
        job=record.job,
        number=intent.number,
        marks=marks_after(record, intent),
        sources={**record.sources, **(intent.extras.sources or {})},
        extras=learned if intent.kind == "refresh" else known.with_parts_of(learned),
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
        notes=receipt_notes(outlook, intent),
        recovered=outlook is None,
    )


def receipt_notes(outlook: Outlook | None, intent: Intent) -> tuple[str, ...]:
    """What a reader of the receipt would wonder about; no outlook means that the batch had been begun before."""
    outside = (f"a {intent.kind}: the mark stays where it is",) if intent.kind in OUTSIDE_KINDS else ()
    if outlook is None:
        return (*outside, "finished a batch that an earlier run had begun")
    return (*outside, *outlook.idle_notes, *outlook.notes)

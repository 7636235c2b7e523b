"""The end of a batch: count it, make its receipt, raise the mark; once, alone or together with the last sink's rows."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Protocol

from floodmark.failpoints import reach
from floodmark.hwm import Json
from floodmark.rules import Tally
from floodmark.step.batch import Prepared
from floodmark.step.checks import tell_rules
from floodmark.step.looking import Outlook, marks_after
from floodmark.step.refused import bury_dead, put_aside
from floodmark.step.work import OUTSIDE, shown
from floodmark.stores.contract import Joining, MarkStore
from floodmark.stores.record import Intent, JobRecord, Receipt, RuleOutcome

if TYPE_CHECKING:
    from psycopg import Connection

    from floodmark.sinks.contract import Batch
    from floodmark.step.work import Work
    from floodmark.stores.lease import HeldLease
    from floodmark.stores.record import Lease


# What a batch leaves behind: the next record and the receipt.
@dataclass(frozen=True)
class Clock:
    """How long each part of a batch took."""

    started: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    begun: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timing(self, what: str) -> Iterator[None]:
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[what] = round(time.monotonic() - begun, 3)

    def elapsed(self) -> float:
        return round(time.monotonic() - self.begun, 3)


@dataclass(frozen=True)
class Begun:
    """A batch that may be written: the record it starts from, its intent, and which sinks had it before a crash.

    `outlook` is None where an open batch is being finished; `intent` is None where there was nothing to do.
    """

    record: JobRecord
    intent: Intent | None
    outlook: Outlook | None
    confirmed: tuple[str, ...] = ()

    @property
    def batch(self) -> Intent:
        if self.intent is None:
            raise LookupError("nothing was begun")
        return self.intent


@dataclass(frozen=True)
class Outcome:
    """What the sinks took, as they counted it."""

    written: Mapping[str, int]
    read: int
    dead: int
    quarantined: int
    tally: Tally


def record_after(begun: Begun) -> JobRecord:
    """The record once every sink has confirmed: marks raised, intent closed, number taken."""
    record, intent = begun.record, begun.batch
    remembered, sources = intent.extras.get("remember"), intent.extras.get("sources")
    kept = {} if intent.kind == "refresh" else dict(record.extras)
    return JobRecord(
        job=record.job,
        number=intent.number,
        marks=marks_after(record, intent),
        sources={**record.sources, **as_texts(sources)},
        extras={**kept, **(remembered if isinstance(remembered, dict) else {})},
        origin="commit",
        modified_time=datetime.now(timezone.utc),
    )


def as_texts(stored: Json) -> dict[str, str]:
    """Fingerprints, as they come out of a stored intent."""
    return {name: str(text) for name, text in stored.items()} if isinstance(stored, dict) else {}


def receipt_of(begun: Begun, outcome: Outcome, clock: Clock) -> Receipt:
    """What this batch did."""
    record, intent, outlook = begun.record, begun.batch, begun.outlook
    ends = {name: (span.after.show() if span.after else None, span.upto.show()) for name, span in intent.spans.items()}
    spans: dict[str, Json] = {name: list(both) for name, both in ends.items()}
    return Receipt(
        job=record.job,
        run=uuid.uuid4().hex[:12],
        status="done",
        started=clock.started,
        seconds=clock.elapsed(),
        batches=1,
        number=intent.number,
        rows_read=outcome.read,
        rows_written=dict(outcome.written),
        rows_refused=outcome.quarantined + outcome.tally.dropped,
        rows_quarantined=outcome.quarantined,
        rows_dropped=outcome.tally.dropped,
        rules=tuple(RuleOutcome(**asdict(verdict)) for verdict in outcome.tally.verdicts),
        rows_dead=outcome.dead,
        rows_held_back=outlook.held_back if outlook else 0,
        mark_before=shown(record.marks),
        mark_after=shown(marks_after(record, intent)),
        span=spans,
        durations=dict(clock.seconds),
        notes=told_of(outlook, intent),
        recovered=outlook is None,
    )


def told_of(outlook: Outlook | None, intent: Intent) -> tuple[str, ...]:
    """What a reader of the receipt would wonder about; no outlook means that the batch had been begun before."""
    outside = (f"a {intent.kind}: the mark stays where it is",) if intent.kind in OUTSIDE else ()
    if outlook is None:
        return (*outside, "finished a batch that an earlier run had begun")
    return (*outside, *told_by(outlook), *outlook.notes)


class Waiting(Protocol):
    """What a look says of rows that are there and have to wait."""

    @property
    def held_back(self) -> int: ...
    @property
    def held_reason(self) -> str | None: ...


def told_by(waiting: Waiting) -> tuple[str, ...]:
    """Why rows wait, if any do."""
    return (waiting.held_reason,) if waiting.held_reason else ()


def nothing_new(record: JobRecord, outlook: Waiting | None, clock: Clock, notes: tuple[str, ...] = ()) -> Receipt:
    """A look that found nothing to do, and what has to wait."""
    return Receipt(
        job=record.job,
        run="",
        status="nothing_new",
        started=clock.started,
        seconds=clock.elapsed(),
        number=record.number,
        rows_held_back=outlook.held_back if outlook else 0,
        mark_before=shown(record.marks),
        mark_after=shown(record.marks),
        notes=(*(told_by(outlook) if outlook else ()), *notes),
    )


class Commit(Protocol):
    """How the record is saved: the store's own way, or inside somebody's transaction."""

    def __call__(self, record: JobRecord, *, expected: int, lease: Lease, receipt: Receipt) -> None: ...


@dataclass
class Closing:
    """What is known of a batch while its sinks are written, and the one act that ends it."""

    work: Work
    store: MarkStore
    begun: Begun
    prepared: Prepared
    batch: Batch
    lease: HeldLease
    clock: Clock
    is_watched: bool = True
    """Whether what is observed on the way to the sinks will be told."""
    written: dict[str, int] = field(default_factory=dict)
    receipt: Receipt | None = None

    def within(self, connection: Connection[Any], rows: int) -> None:
        """Called by the last sink in its own transaction: where it leads to the store, the mark moves with the rows."""
        store = self.store
        if isinstance(store, Joining) and store.is_reached_by(connection, self.lease.lease):
            self.written[self.work.sinks[-1].name] = rows
            self._close(lambda record, **facts: store.commit_within(connection, record, **facts))

    def finish(self) -> Receipt:
        """Raise the mark, unless it was raised together with the rows."""
        if self.receipt is None:
            self._close(self.store.commit)
        if self.receipt is None:
            raise LookupError("a commit that did not raise has made its receipt")
        return self.receipt

    def _close(self, commit: Commit) -> None:
        was_executed = self.is_watched and len(self.begun.confirmed) < len(self.work.sinks)
        counted = self.prepared.counted(was_executed=was_executed)
        dead = bury_dead(self.work, self.prepared, counted, self.batch)
        tell_rules(counted.tally, self.work.name)
        aside = put_aside(self.work, self.prepared.judgement, counted.tally, self.batch)
        outcome = Outcome(self.written, counted.read, dead, aside, counted.tally)
        reach("before_commit")
        receipt = receipt_of(self.begun, outcome, self.clock)
        record, number = record_after(self.begun), self.begun.record.number
        commit(record, expected=number, lease=self.lease.lease, receipt=receipt)
        self.receipt = receipt

"""The end of a batch: count it, make its receipt, raise the mark; once, alone or together with the last sink's rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from floodmark.failpoints import reach
from floodmark.step.batch import Prepared
from floodmark.step.burying import bury_dead
from floodmark.step.judging import tell_rules
from floodmark.step.quarantine import put_aside
from floodmark.step.summary import Begun, Clock, Outcome, receipt_of, record_after
from floodmark.stores.contract import Joining, MarkStore

if TYPE_CHECKING:
    from psycopg import Connection

    from floodmark.sinks.contract import Batch
    from floodmark.step.work import Work
    from floodmark.stores.lease import HeldLease
    from floodmark.stores.record import JobRecord, Lease, Receipt


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

"""What the store keeps of a job's past: the states it was in, which of them are good, and which was when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from floodmark.stores.record import JobRecord, Receipt

if TYPE_CHECKING:
    from floodmark.stores.contract import MarkStore

READ = 10_000
WENT_BACK_TO = "went back to"
"""Under this name, which no source can have, the record of a rollback holds the batch that its tables are as."""
LETS_ROWS_IN = ("warn", "fail")
"""Actions of rules that keep no single row out of the tables; `quarantine` and `drop` do."""


@dataclass(frozen=True)
class Past:
    """The records of a job, newest first, and the receipts of their batches by number."""

    job: str
    records: tuple[JobRecord, ...] = ()
    receipts: Mapping[int, Receipt] = field(default_factory=dict)

    @classmethod
    def of(cls, store: MarkStore, job: str) -> Past:
        receipts = {each.number: each for each in store.runs(job, READ) if each.status == "done"}
        return cls(job, tuple(store.history(job, READ)), receipts)

    def numbered(self, number: int) -> JobRecord | None:
        return next((each for each in self.records if each.number == number), None)

    def as_of(self, moment: datetime) -> JobRecord | None:
        """The state in which the job was then."""
        return next((each for each in self.records if each.modified_time and each.modified_time <= moment), None)

    def leading_to(self, record: JobRecord) -> Iterator[JobRecord]:
        """The record and those before it, newest first; what a rollback undid is left out."""
        here: JobRecord | None = record
        while here is not None:
            yield here
            below = batch_of(here)
            here = next((each for each in self.records if each.number < below), None)

    def receipt_of(self, record: JobRecord) -> Receipt | None:
        """Of the batch that the tables are as."""
        return self.receipts.get(batch_of(record))

    def flaw(self, record: JobRecord) -> str | None:
        """Why its batch is not good; None if it is: it ended, and no row is in the tables that a rule warned of."""
        receipt = self.receipt_of(record)
        if receipt is None:
            return "no receipt of it is kept"
        if receipt.error:
            return receipt.error
        broken = [rule for rule in receipt.rules if rule.failed and rule.action in LETS_ROWS_IN]
        return "; ".join(f"rule {rule.name} ({rule.action}): {rule.failed} of {rule.checked} failed" for rule in broken)

    def last_good(self, record: JobRecord) -> JobRecord | None:
        """The newest state on the way to this one, or this one, whose batch is good."""
        return next((each for each in self.leading_to(record) if not self.flaw(each)), None)


def batch_of(record: JobRecord) -> int:
    """The batch that the tables are as: its own, or the one that a rollback went back to."""
    number = record.extras.get(WENT_BACK_TO) if record.origin == "rollback" else None
    return number if isinstance(number, int) else record.number

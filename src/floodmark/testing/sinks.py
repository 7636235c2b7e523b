"""A sink in memory, with a real ledger, that can be told to fail."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from floodmark.sinks.contract import Atomic, Batch, Recorded, Session
from floodmark.sinks.own_columns import without_own
from floodmark.testing.rows import InjectedFailure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class ListSink(Atomic):
    """Collects rows as dicts in `rows`; a repeated number adds nothing. The first `fail_times` writes fail."""

    name: str = "list"
    fail_times: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    ledger: dict[str, Recorded] = field(default_factory=dict)
    written: dict[tuple[str, int], int] = field(default_factory=dict)

    def describe(self) -> str:
        return f"list '{self.name}' in memory"

    def fingerprint(self) -> str:
        return f"list {self.name}"

    def recorded(self, ledger: str, session: Session) -> Recorded | None:
        return self.ledger.get(ledger)

    def holds_rows(self, session: Session) -> bool:
        return bool(self.rows)

    def write(self, rows: DataFrame, batch: Batch) -> int | None:
        ledger = batch.ledger(self.name)
        if ledger in self.ledger and self.ledger[ledger].number >= batch.number:
            return self.written.get((ledger, batch.number))
        if self.fail_times > 0:
            self.fail_times -= 1
            raise InjectedFailure(f"sink '{self.name}' was told to fail")
        taken = [row.asDict(recursive=True) for row in without_own(rows).collect()]
        self.rows[:] = taken if batch.kind == "refresh" else [*self.rows, *taken]
        self.ledger[ledger] = Recorded(batch.number, batch.digest)
        self.written[ledger, batch.number] = len(taken)
        return len(taken)

    def fence(self, ledger: str, number: int, session: Session) -> None:
        if ledger not in self.ledger or self.ledger[ledger].number < number:
            self.ledger[ledger] = Recorded(number)

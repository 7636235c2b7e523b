"""Where rows go in the model: targets with a ledger and a guard, and the kinds of sinks that write to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from floodmark.errors import SinkUnreachable
from floodmark.sinks.contract import Atomic, Batch, Recorded, is_written, require_own_number
from tests.model.scheduling import Guard, Scheduler

if TYPE_CHECKING:
    from tests.model.doubles import Frame, Row


@dataclass(eq=False)
class Target:
    """What a sink writes to: rows with the number that wrote them, a ledger, a guard; and copies of earlier days."""

    guard: Guard
    place: str
    rows: list[tuple[int, str, int]] = field(default_factory=list)
    ledger: dict[str, Recorded] = field(default_factory=dict)
    parts: dict[str, tuple[int, str, list[Row]]] = field(default_factory=dict)
    """By ledger: the number and digest of a batch of which part is out, and the rows that are."""
    copies: list[tuple[list[tuple[int, str, int]], dict[str, Recorded]]] = field(default_factory=list)
    loses_rows: bool = False
    """Whether the last row of a batch never arrives, as where a disk is not shared."""

    def put(self, rows: list[Row], batch: Batch) -> None:
        self.rows += [(place, value, batch.number) for place, value in rows]

    def has_some_of(self, number: int | None) -> bool:
        """Whether the batch, which may have no rows, or part of it is here."""
        written = any(entry.number == number and not entry.is_fence for entry in self.ledger.values())
        return written or any(row[2] == number for row in self.rows)

    def keep_copy(self) -> None:
        self.copies.append((list(self.rows), dict(self.ledger)))

    def restore(self) -> None:
        """As it was before its last batch."""
        if self.copies:
            rows, ledger = self.copies.pop()
            self.rows, self.ledger = list(rows), dict(ledger)
            self.parts = {}


@dataclass(frozen=True)
class TargetSink(Atomic):
    """All or nothing: number and digest go with the rows."""

    name: str
    target: Target
    scheduler: Scheduler

    def describe(self) -> str:
        return self.target.place

    def fingerprint(self) -> str:
        return f"{self.target.place}, append"

    def recorded(self, ledger: str, session: object) -> Recorded | None:
        self.scheduler.reach(f"{self.name}: recorded")
        return self.target.ledger.get(ledger)

    def holds_rows(self, session: object) -> bool:
        return bool(self.target.rows)

    def counts_every_row(self) -> bool:
        return True

    def write(self, rows: Frame, batch: Batch) -> int | None:
        self.scheduler.reach(f"{self.name}: before the guard")
        taken = rows.collect()[: -1 if self.target.loses_rows else None]
        with self.target.guard:
            if self._has(batch):
                return sum(number == batch.number for _, _, number in self.target.rows)
            self.scheduler.reach(f"{self.name}: under the guard")
            self.target.keep_copy()
            self.target.put(taken, batch)
            self.target.ledger[batch.ledger(self.name)] = Recorded(batch.number, batch.digest)
        self.scheduler.reach(f"{self.name}: after its commit")
        return len(taken)

    def fence(self, ledger: str, number: int, session: object) -> None:
        self.scheduler.reach(f"{self.name}: fence")
        with self.target.guard:
            entry = self.target.ledger.get(ledger)
            if entry is None or entry.number < number:
                self.target.ledger[ledger] = Recorded(number, is_fence=True, before=entry.last_batch if entry else 0)

    def _has(self, batch: Batch) -> bool:
        return is_written(self.target.ledger.get(batch.ledger(self.name)), batch, self.name, self.target.place)


@dataclass(frozen=True)
class JoiningSink(TargetSink):
    """As PostgreSQL where the store is the same database: the mark goes with the rows of the last sink."""

    def write_joined(self, rows: Frame, batch: Batch, in_transaction: Callable[[Any, int], None]) -> int | None:
        self.scheduler.reach(f"{self.name}: before the guard")
        taken, at_commit = rows.collect(), Transaction()
        with self.target.guard:
            if self._has(batch):
                return sum(number == batch.number for _, _, number in self.target.rows)
            in_transaction(at_commit, len(taken))
            self.scheduler.reach(f"{self.name}: under the guard")
            at_commit.end()
            self.target.keep_copy()
            self.target.put(taken, batch)
            self.target.ledger[batch.ledger(self.name)] = Recorded(batch.number, batch.digest)
        self.scheduler.reach(f"{self.name}: after its commit")
        return len(taken)


class Transaction:
    """What happens together, once it is committed."""

    def __init__(self) -> None:
        self.acts: list[Callable[[], None]] = []

    def end(self) -> None:
        for act in self.acts:
            act()


@dataclass(frozen=True)
class PieceSink:
    """A batch in several transactions, one row each, as Kafka's: part of one may be out."""

    name: str
    target: Target
    scheduler: Scheduler

    describe = TargetSink.describe
    fingerprint = TargetSink.fingerprint
    recorded = TargetSink.recorded
    holds_rows = TargetSink.holds_rows
    fence = TargetSink.fence
    counts_every_row = TargetSink.counts_every_row
    _has = TargetSink._has

    def freeze(self, session: object) -> dict[str, Any]:
        return {"writers": 1}

    def partial_batch(self, ledger: str, session: object) -> int | None:
        part = self.target.parts.get(ledger)
        return part[0] if part else None

    def write(self, rows: Frame, batch: Batch) -> int | None:
        self.scheduler.reach(f"{self.name}: before the guard")
        taken, ledger = rows.collect(), batch.ledger(self.name)
        for place in range(len(taken) + 1):
            with self.target.guard:
                if self._has(batch):
                    return sum(number == batch.number for _, _, number in self.target.rows)
                if place < self._rows_out(taken, batch):
                    continue
                if place > self._rows_out(taken, batch):
                    raise SinkUnreachable(self.describe(), reason="it does not have what this producer sent before")
                self.scheduler.reach(f"{self.name}: piece {place + 1} under the guard")
                if place == 0:
                    self.target.keep_copy()
                self.target.put(taken[place : place + 1], batch)
                self.target.parts[ledger] = (batch.number, batch.digest, taken[: place + 1])
                if place == len(taken):
                    self.target.ledger[ledger] = Recorded(batch.number, batch.digest)
                    del self.target.parts[ledger]
        self.scheduler.reach(f"{self.name}: after its commit")
        return len(taken)

    def _rows_out(self, rows: list[Row], batch: Batch) -> int:
        """How many rows of this batch are out. Raises SinkDisagrees if they are others than are to be sent."""
        number, digest, out = self.target.parts.get(batch.ledger(self.name), (0, "", []))
        if number != batch.number:
            return 0
        require_own_number(Recorded(number, digest if out == rows[: len(out)] else "other rows"), batch, self.name)
        return len(out)


@dataclass(frozen=True)
class SmallPieceSink(PieceSink):
    """As Kafka's where a batch is known to be small: it goes out in one transaction."""

    def freeze_at_once(self, session: object, size: object) -> dict[str, Any]:
        return {"writers": 1, "at_once": True}

    def write(self, rows: Frame, batch: Batch) -> int | None:
        is_at_once = batch.frozen[self.name].get("at_once")
        return TargetSink.write(self, rows, batch) if is_at_once else super().write(rows, batch)  # type: ignore[arg-type]

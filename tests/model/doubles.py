"""A source, sinks, rows and a store for the model: they follow the contracts, in memory, and stop where they are told.

What decides (the step, its intents, the marks, the lease) is the real code; only rows are not Spark's.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

from floodmark.hwm import ColumnIntHWM, Span
from floodmark.sinks.contract import Atomic, Batch, Recorded, is_written, require_own_number
from floodmark.sources.contract import Immutable, Reading, Request, Sight
from floodmark.step.spool import RowCounts, remove_spools
from floodmark.stores.memory import MemoryMarkStore, MemoryPages
from floodmark.stores.record import JobRecord, Lease, Owner
from tests.model.scheduling import Guard, Scheduler, current_run

Row = tuple[int, str]
"""Which row of the source it is, and its value."""
MALFORMED = "malformed"


@dataclass(frozen=True)
class Frame:
    """Rows that are read when somebody asks for them, and read anew each time: as lazy as Spark's."""

    collect: Callable[[], list[Row]]
    columns: tuple[str, ...] = ("id", "value")

    @property
    def sparkSession(self) -> Session:  # noqa: N802 - as Spark spells it
        return Session()

    def where(self, holds: Callable[[Row], bool]) -> Frame:
        return Frame(lambda: [row for row in self.collect() if holds(row)])

    def each(self, change: Callable[[str], str]) -> Frame:
        return Frame(lambda: [(place, change(value)) for place, value in self.collect()])

    def drop(self, *_: str) -> Frame:
        return self

    def count(self) -> int:
        return len(self.collect())


class Session:
    """In the place of Spark's: nobody may ask it for anything."""


@dataclass(frozen=True)
class Reason:
    """Why a row cannot be parsed, as a column."""

    def isNull(self) -> Callable[[Row], bool]:  # noqa: N802 - as Spark spells it
        return lambda row: row[1] != MALFORMED


@dataclass
class Table:
    """A source whose mark is the number of rows delivered; `rows` may change under it, and so may `title`."""

    scheduler: Scheduler
    rows: list[Row] = field(default_factory=list)
    title: str = "table A"
    name: str = "rows"

    def fingerprint(self, session: object) -> str:
        return self.title

    def row_options(self) -> dict[str, object]:
        """None but what its title tells: the rows themselves may change."""
        return {}

    def look(self, mark: Any, request: Request, session: object) -> Sight:  # noqa: ANN401 - as the contract says
        self.scheduler.reach("look")
        delivered = mark.value if mark else 0
        last = max((place for place, _ in self.rows), default=0)
        if last <= delivered:
            return Sight(None)
        after = ColumnIntHWM(self.name, delivered) if delivered else None
        return Sight(Span(after, ColumnIntHWM(self.name, last)))

    def read(self, spark: object, span: Span) -> Reading:
        self.scheduler.reach("read the source")
        after, upto = span.after.value if span.after else 0, span.upto.value

        def found() -> list[Row]:
            return [row for row in self.rows if after < row[0] <= upto]

        frame = Frame(found)
        dead = frame.where(lambda row: row[1] == MALFORMED)
        return Reading(frame, Reason(), dead=lambda: dead)  # type: ignore[arg-type,return-value]

    def read_saved(self, saved: object) -> Reading:
        """What could not be parsed can be tried again, which no story does."""
        raise NotImplementedError


@dataclass
class Log(Table, Immutable):
    """A source that gives the same rows for the same span, always."""


@dataclass(frozen=True)
class Code:
    """The user's transform: its version is seen in every value."""

    version: str

    def apply(self, frames: dict[str, Frame], **_: object) -> Frame:
        [frame] = frames.values()
        return frame.each(lambda value: f"{value} by {self.version}")

    def fingerprint(self) -> str:
        return f"code {self.version}"

    def is_deterministic(self) -> bool:
        return True

    def is_row_by_row(self) -> bool:
        return True


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
                self.target.ledger[ledger] = Recorded(number, is_fence=True)

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

    def begun(self, ledger: str, session: object) -> int | None:
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


class WatchedStore(MemoryMarkStore):
    """The real store; each run opens one of its own over the same pages, as a process does."""

    def __init__(self, pages: MemoryPages, scheduler: Scheduler) -> None:
        super().__init__(pages, namespace="default")
        self.scheduler = scheduler

    def read(self, job: str, known: JobRecord | None = None) -> JobRecord | None:
        self.scheduler.reach("store: read")
        return super().read(job, known)

    def intend(self, record: JobRecord, **how: Any) -> None:  # noqa: ANN401 - handed on
        self.scheduler.reach("store: intend")
        super().intend(record, **how)

    def commit(self, record: JobRecord, **how: Any) -> None:  # noqa: ANN401 - handed on
        self.scheduler.reach("store: commit")
        self.before_commit(record)
        super().commit(record, **how)

    def commit_within(self, transaction: Transaction, record: JobRecord, **how: Any) -> None:  # noqa: ANN401
        """With the rows: if it fails then, nothing is written."""
        transaction.acts.append(lambda: super(WatchedStore, self).commit(record, **how))

    def is_reached_by(self, transaction: object, lease: Lease) -> bool:
        return isinstance(transaction, Transaction)

    def before_commit(self, record: JobRecord) -> None:
        """A place for the world to look at what is there."""

    def lease(self, job: str) -> Lease | None:
        found = super().lease(job)
        self.scheduler.reach("store: lease was read")
        return found

    def take_lease(self, job: str, owner: Owner, *, over: Lease | None) -> Lease:
        lease, run = super().take_lease(job, owner, over=over), current_run()
        if run:
            run.token = lease.token
        return lease

    def release(self, lease: Lease) -> None:
        self.scheduler.reach("store: release")
        super().release(lease)


class FrameCounter:
    """Counts rows in the pass that reads them, where Spark would observe them."""

    def __init__(self, reading: Reading, rows: Any) -> None:  # noqa: ANN401 - a Frame
        self.source: Any = rows
        self.rows = Frame(self._collect)
        self.counts: RowCounts | None = None

    def _collect(self) -> list[Row]:
        rows: list[Row] = self.source.collect()
        self.counts = RowCounts(len(rows), sum(value == MALFORMED for _, value in rows))
        return rows

    def result(self, *, was_executed: bool) -> RowCounts:
        if self.counts is None or not was_executed:
            self._collect()
        assert self.counts is not None
        return self.counts


def write_frame(spool: Any, rows: Frame) -> None:  # noqa: ANN401 - a Spool
    """The rows of a spool as one part, where Spark would write several."""
    reach("write the spool")
    folder, taken = Path(spool.folder), rows.collect()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    columns = {"id": [place for place, _ in taken], "value": [value for _, value in taken]}
    pq.write_table(pa.table(columns), folder / "part-0.parquet")


def read_frame(spool: Any, spark: object) -> Frame:  # noqa: ANN401 - a Spool
    """As lazy as Spark: a part that is gone by then fails the write."""
    part = Path(spool.folder) / "part-0.parquet"
    return Frame(lambda: [(row["id"], row["value"]) for row in pq.read_table(part).to_pylist()])


def reach(point: str) -> None:
    """A boundary that no object of the model stands at."""
    if run := current_run():
        run.scheduler.reach(point)


def remove_spools_late(jobs_folder: str, upto: int) -> None:
    reach("remove the spools")
    remove_spools(jobs_folder, upto)


class StillHeart:
    """In the place of the thread that beats for a lease: a run of the model is over, or stands still, before a beat."""

    def __init__(self, **_: object) -> None:
        """Whatever a thread is made with."""

    def start(self) -> None: ...

    def join(self) -> None: ...


@contextmanager
def without_spark() -> Iterator[None]:
    """The few places where the step itself names something of Spark's."""
    with (
        patch("floodmark.stores.lease.threading", SimpleNamespace(Thread=StillHeart, Event=threading.Event)),
        patch("os.fsync", lambda descriptor: None),  # no story has a power cut
        patch("floodmark.step.engine.jvm_pid", lambda spark: None),
        patch("floodmark.step.batch.observe_rows", FrameCounter),
        patch("floodmark.step.refused.letter_rows", lambda frame, *_: frame),
        patch("floodmark.step.batch.saved_letters", lambda frame, _: frame),
        patch("floodmark.step.spool.Spool.write", write_frame),
        patch("floodmark.step.spool.Spool.read", read_frame),
        patch("floodmark.step.run.remove_spools", remove_spools_late),
    ):
        yield

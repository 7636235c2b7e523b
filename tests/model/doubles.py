"""A source, rows and a store for the model: they follow the contracts, in memory, and stop where they are told.

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
from floodmark.sources.contract import Immutable, Reading, Request, Sight
from floodmark.step.spool import RowCounts, remove_spools
from floodmark.stores.memory import MemoryMarkStore, MemoryPages
from floodmark.stores.record import JobRecord, Lease, Owner
from tests.model.scheduling import Scheduler, current_run
from tests.model.targets import Transaction

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

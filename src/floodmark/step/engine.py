"""The frame of every batch: look, hold the lease, recover or plan, intend, carry out.

What is read and where it goes is not here: `step.run.Step` moves rows through a transform into sinks, the healer of
streams runs records one by one. Both fill in the same verbs, so that a kill is finished the same way everywhere.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from floodmark.failpoints import reach
from floodmark.hwm import HWM
from floodmark.hwm.mark import mark_text
from floodmark.logs import get_logger
from floodmark.phases import phase
from floodmark.sources.contract import Session
from floodmark.spark.remote import end_work, noting_sessions, session_address
from floodmark.spark.session import jvm_pid
from floodmark.step.listeners import span
from floodmark.step.work import display_marks
from floodmark.stores.contract import LevelledStore, MarkStore
from floodmark.stores.lease import HeldLease, hold
from floodmark.stores.record import Intent, JobRecord, Receipt, new_run_id
from floodmark.stores.run_logs import begin_log, keeping_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = get_logger(__name__)


class Look(Protocol):
    """What a look found above the mark."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do: then no lease is taken and nothing is written."""

    @property
    def held_back(self) -> int:
        """Rows that are there and have to wait."""

    @property
    def idle_notes(self) -> tuple[str, ...]:
        """What a receipt says if there is nothing to do: why rows wait, if any do."""


LookT = TypeVar("LookT", bound=Look)


@dataclass(frozen=True)
class OpenBatch(Generic[LookT]):
    """A batch that may be carried out: the record it starts from, its intent, and the look that it was planned by.

    `look` is None where a batch is finished that an earlier run had begun; `confirmed_sinks` had it before that.
    """

    record: JobRecord
    intent: Intent
    look: LookT | None
    confirmed_sinks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Clock:
    """How long each part of a batch took."""

    started: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    start_seconds: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)
    run: str = field(default_factory=new_run_id)
    """The id of the run that is timed: its receipt and its log have it."""

    @contextmanager
    def timing(self, part: str) -> Iterator[None]:
        """Note under this name how long the block takes."""
        start = time.monotonic()
        try:
            with span(part):
                yield
        finally:
            self.seconds[part] = round(time.monotonic() - start, 3)

    def elapsed(self) -> float:
        """Seconds since the run began."""
        return round(time.monotonic() - self.start_seconds, 3)


@dataclass
class LastSeen:
    """What this process knows of a job from its last run, so that an idle tick of a loop need not parse it again."""

    record: JobRecord | None = None
    logged_record: JobRecord | None = None
    """The record whose mark was shown in the log."""
    ahead: float | None = None
    """The share of what lay above the mark that the last look left for later batches."""


@dataclass(frozen=True)
class Engine(ABC, Generic[LookT]):
    """One job, one store, one session: `run` does one batch, exactly once.

    A subclass says what its job is called, and fills in `look`, `recover`, `plan` and `carry_out`; `remember`, where
    a look that found nothing still learned something.
    """

    store: MarkStore
    session: Session
    last_seen: LastSeen = field(default_factory=LastSeen, kw_only=True)

    @property
    @abstractmethod
    def job(self) -> str:
        """The name under which the store keeps the record and the lease."""

    @abstractmethod
    def look(self, record: JobRecord) -> LookT:
        """What lies above the marks of this record; cheap, without the lease, and nothing is written.

        Called once per run, and again under the lease if the record has changed meanwhile.
        """

    def remember(self, record: JobRecord, look: LookT) -> None:
        """A look found nothing to do: save what must outlive this process all the same. Called without the lease."""

    @abstractmethod
    def recover(self, record: JobRecord) -> OpenBatch[LookT] | None:
        """The open batch of the record under a new attempt, or None if it is to be dropped and planned again.

        Called under the lease, only if there is an open batch. Nothing may be written here but fences, without which
        nobody can say what a run that is paused with the batch will have written.
        """

    @abstractmethod
    def plan(self, record: JobRecord, look: LookT) -> OpenBatch[LookT]:
        """The next batch, over what the look found. Called under the lease, before anything of it is written."""

    @abstractmethod
    def carry_out(self, batch: OpenBatch[LookT], lease: HeldLease, clock: Clock) -> Receipt:
        """Read, write, and commit the record with the receipt as the last act.

        The intent is durable: whoever comes after a crash gets the same batch out of `recover` and calls this again.
        """

    def run(self) -> Receipt:
        """Look; hold the lease; finish the open batch or plan the next; make it durable; carry it out."""
        clock = Clock()
        with keeping_log(self.store, self.job, clock.run), span("run", job=self.job, run=clock.run):
            return self.run_timed(clock)

    def run_timed(self, clock: Clock) -> Receipt:
        """The run, with what it logs kept under the id of the clock."""
        record = self.read()
        self.log_mark(record)
        with clock.timing("look"), phase("looking", self.job):
            look = None if record.intent else self.look(record)
        if look and look.is_empty:
            self.remember(record, look)
            return nothing_new(record, look, clock)
        with hold(self.store, self.job) as lease:
            return replace(self, session=session_under(lease, self.session)).run_held(record, look, lease, clock)

    def run_held(self, record: JobRecord, look: LookT | None, lease: HeldLease, clock: Clock) -> Receipt:
        """The part that only one run of a job may do at a time; a look at a record that was changed since is void."""
        current = self.read()
        if current != record:
            look = None
        if current.intent:
            lease.check()  # a run that stood still since it took the lease must not fence its successor's batch
        batch = self.recover(current) if current.intent else None
        if batch is None:
            current = self.drop(current, lease)
            look = look or self.look(current)
            if look.is_empty:
                return nothing_new(current, look, clock)
            with clock.timing("plan"):
                batch = self.plan(current, look)
        else:
            number, confirmed = batch.intent.number, batch.confirmed_sinks
            log.info("finishing an open batch", job=self.job, number=number, confirmed=confirmed)
        return self.write_batch(batch, lease, clock)

    def write_batch(self, batch: OpenBatch[LookT], lease: HeldLease, clock: Clock) -> Receipt:
        """The one way in for every batch: durable before its first write, so that a crash from here on is finished."""
        record = replace(batch.record, intent=batch.intent)
        with clock.timing("intent"):
            self.store.intend(record, expected=batch.record.number, lease=lease.lease)
        reach("after_intent")
        with keeping_log(self.store, self.job, clock.run), noting_sessions(lease.with_session):
            begin_log()
            return self.carry_out(batch, lease, clock)

    def read(self) -> JobRecord:
        """The record as it is now; a blank one if there is none. What was read last is not parsed again."""
        self.last_seen.record = self.store.read(self.job, self.last_seen.record) or JobRecord(self.job)
        return self.last_seen.record

    def drop(self, record: JobRecord, lease: HeldLease) -> JobRecord:
        """Close an open batch without its rows. Its number is used up, so that whoever still holds it is fenced."""
        if record.intent is None:
            return record
        dropped = replace(record, number=record.intent.number, intent=None, modified_time=datetime.now(timezone.utc))
        self.store.commit(dropped, expected=record.number, lease=lease.lease)
        return dropped

    def log_mark(self, record: JobRecord) -> None:
        """Which mark is used and where it came from: it is easy to use the wrong store, and this is how one sees it."""
        write = log.debug if record == self.last_seen.logged_record else log.info
        mark, store = mark_text(display_marks(record.marks)) if record.marks else None, self.store
        place = store.served_by(self.job) if isinstance(store, LevelledStore) else store.describe()
        write("using the mark", job=self.job, mark=mark, number=record.number, store=place)
        self.last_seen.logged_record = record


def session_under(lease: HeldLease, session: Session) -> Session:
    """The session, with its JVM or its server's address in the lease before it is used: it may outlive this process.

    What such a session still does for the owner before us is ended first.
    """

    def use() -> SparkSession:
        spark = session()
        if lease.left_over:
            end_work(spark, lease.left_over, lease.lease.job)
            lease.end_left_over()
        if address := session_address(spark):
            lease.with_session(address)
        lease.with_jvm(jvm_pid(spark))
        return spark

    return use


def done(record: JobRecord, number: int, marks: Mapping[str, HWM[Any]], clock: Clock) -> Receipt:
    """A batch that was carried out from this record, and where its marks are now; what it did is for its own kind."""
    return Receipt(
        job=record.job,
        run=clock.run,
        status="done",
        started=clock.started,
        seconds=clock.elapsed(),
        batches=1,
        number=number,
        mark_before=display_marks(record.marks),
        mark_after=display_marks(marks),
        durations=dict(clock.seconds),
    )


def nothing_new(record: JobRecord, look: Look | None, clock: Clock, notes: tuple[str, ...] = ()) -> Receipt:
    """A look that found nothing to do, and what has to wait."""
    return Receipt(
        job=record.job,
        run="",
        status="nothing_new",
        started=clock.started,
        seconds=clock.elapsed(),
        number=record.number,
        rows_held_back=look.held_back if look else 0,
        mark_before=display_marks(record.marks),
        mark_after=display_marks(record.marks),
        notes=(*(look.idle_notes if look else ()), *notes),
    )

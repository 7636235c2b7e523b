"""The step: read above the mark, transform, judge, write every sink, and only then raise the mark."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError, FloodmarkError, LeaseHeld, MarkUnreadable, SinkFailed
from floodmark.failpoints import half_way, reach
from floodmark.hwm import HWM
from floodmark.logs import get_logger
from floodmark.sinks.contract import Batch, Secluded, Sink, Transactional
from floodmark.sources.contract import Session
from floodmark.spark.session import jvm_pid
from floodmark.step.batch import Prepared, batch_of, explained, prepare
from floodmark.step.checks import fit
from floodmark.step.commit import Begun, Clock, Closing, nothing_new
from floodmark.step.intents import drop, fence_laggards, new_intent, next_attempt, open_intent, work_of
from floodmark.step.looking import (
    PENDING,
    Ledgers,
    Outlook,
    look,
    part_of,
    read_ledgers,
    require_a_beginning,
    require_agreement,
)
from floodmark.step.spool import Spool
from floodmark.step.transform import first_lines
from floodmark.step.work import RunRequest, Work, shown
from floodmark.stores.contract import Levelled, MarkStore
from floodmark.stores.lease import HeldLease, hold
from floodmark.stores.record import Intent, JobRecord, Receipt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


log = get_logger(__name__)


# What the record learns although nothing was read: a fence that is waited for has to outlive this process.
#
# It is kept in the record, for a loop as for a run by itself, so that there is one place to look and a restart forgets
# nothing. It is written only when a source says that there is something else to remember, so an idle tick writes
# nothing.
def keep_pending(store: MarkStore, record: JobRecord, outlook: Outlook) -> None:
    """Lay what is pending over the extras of the record; marks and number stay as they are.

    A run that holds the lease looks for itself, and so does the next one if the record is another by now: both know
    better, so nothing is kept then.
    """
    extras = {**record.extras, **outlook.remembered(record.extras)}
    if extras == record.extras:
        return
    try:
        with hold(store, record.job) as lease:
            if (store.read(record.job, record) or replace(record, extras={})) == record:
                store.intend(replace(record, extras=extras), expected=record.number, lease=lease.lease)
    except LeaseHeld:
        return


LONGEST_MARK_TOLD = 200
"""A mark may be a list of files; a line of a log shows how it begins."""


@dataclass
class LastSeen:
    """The record as this process last read it, so that an idle tick of a loop need not parse it again."""

    record: JobRecord | None = None
    told: JobRecord | None = None
    outlook: Outlook | None = None
    """What the sources showed last."""


@dataclass(frozen=True)
class Step:
    """One job, one store, one session: `run` does one batch, exactly once."""

    work: Work
    store: MarkStore
    session: Session
    request: RunRequest = field(default_factory=RunRequest)
    last_seen: LastSeen = field(default_factory=LastSeen)

    def run(self) -> Receipt:
        """Look; hold the lease; finish the open batch or intend the next; read, judge, write; then raise the mark."""
        clock, record = Clock(), self.read()
        self.tell_mark(record)
        outlook = None if record.intent else self.look(record)
        if outlook and outlook.is_empty:
            keep_pending(self.store, record, outlook)
            return nothing_new(record, outlook, clock)
        with hold(self.store, self.work.name) as lease:
            return replace(self, session=noted_in(lease, self.session)).run_held(record, outlook, lease, clock)

    def run_held(self, seen: JobRecord, outlook: Outlook | None, lease: HeldLease, clock: Clock) -> Receipt:
        """The part that only one run of a job may do at a time."""
        record = self.read()
        if record is not seen:  # another run moved the mark before we had the lease
            outlook = None
        begun = self.recover(record, lease) or self.plan(record, outlook, lease)
        if begun.intent is None:
            return nothing_new(begun.record, begun.outlook, clock)
        reach("after_intent")
        work = work_of(begun.intent, self.work)
        step = self if work is self.work else replace(self, work=work)
        return step.carry_out(begun, lease, clock)

    def carry_out(self, begun: Begun, lease: HeldLease, clock: Clock) -> Receipt:
        """Read, judge, write, and raise the mark: the batch is intended, so a crash from here on is finished."""
        with clock.timing("read"):
            prepared = self.prepare(begun)
        begun = self.settled(begun, prepared, lease)
        reach("after_read")
        batch = batch_of(self.work, begun.record, begun.batch, self.store.namespace)
        closing = Closing(self.work, self.store, begun, prepared, batch, lease, clock)
        self.write(closing)
        receipt = closing.finish()
        reach("after_commit")
        Spool(f"{self.work.spool_folder}/{self.work.name}").remove()
        return receipt

    def read(self) -> JobRecord:
        """The record as it is now: the very object seen last, if nobody changed it; a blank one if there is none."""
        known = self.last_seen.record
        stored = self.store.read(self.work.name, known)
        blank = JobRecord(self.work.name)
        self.last_seen.record = stored or (known if known == blank else blank)
        return self.last_seen.record or blank

    def tell_mark(self, record: JobRecord) -> None:
        """Which mark is used and where it came from: it is easy to use the wrong store, and this is how one sees it."""
        tell = log.debug if record is self.last_seen.told else log.info
        mark = str(shown(record.marks))[:LONGEST_MARK_TOLD]
        tell("using the mark", job=self.work.name, mark=mark, number=record.number, store=self.origin())
        self.last_seen.told = record

    def origin(self) -> str:
        return self.store.served_by(self.work.name) if isinstance(self.store, Levelled) else self.store.describe()

    def look(self, record: JobRecord) -> Outlook:
        outlook = look(self.work, record, self.request, self.session)
        self.last_seen.outlook = outlook
        return outlook

    def recover(self, record: JobRecord, lease: HeldLease) -> Begun | None:
        """The open batch under a new attempt, or None if there is none to finish."""
        if record.intent is None or self.request.drops_open_batch:
            return None
        ledgers = self.ledgers(record)
        intent = open_intent(work_of(record.intent, self.work), record, ledgers, self.request)
        if intent is None:
            return None
        again, confirmed = next_attempt(self.work, intent), tuple(ledgers.confirmed(intent.number))
        log.info("finishing an open batch", job=self.work.name, number=again.number, confirmed=confirmed)
        self.store.intend(replace(record, intent=again), expected=record.number, lease=lease.lease)
        return Begun(record, again, None, confirmed)

    def plan(self, record: JobRecord, outlook: Outlook | None, lease: HeldLease) -> Begun:
        """Fix the next batch and make it durable before the first write."""
        ledgers = self.ledgers(record)
        record = drop(record, self.store, lease)
        outlook = outlook or self.look(record)
        if outlook.is_empty:
            return Begun(record, None, outlook)
        require_a_beginning(self.work, record, self.request, self.session)
        fence_laggards(self.work, self.store.namespace, record, ledgers, self.session)
        intent = self.intended(record, outlook, ledgers)
        log.info("batch begins", job=self.work.name, number=intent.number, store=self.store.describe())
        self.store.intend(replace(record, intent=intent), expected=record.number, lease=lease.lease)
        return Begun(record, intent, outlook)

    def intended(self, record: JobRecord, outlook: Outlook, ledgers: Ledgers) -> Intent:
        """The batch over what the look saw."""
        return new_intent(self.work, record, outlook, ledgers, self.request, self.session)

    def ledgers(self, record: JobRecord) -> Ledgers:
        ledgers = read_ledgers(self.work, self.store.namespace, self.session)
        if not self.request.full_refresh:
            require_agreement(self.work, record, ledgers)
        return ledgers

    def prepare(self, begun: Begun) -> Prepared:
        spark = self.session()
        try:
            return prepare(self.work, begun.batch, spark)
        except Exception as error:
            raise self.explained(error, "spool", begun, spark) from error

    def settled(self, begun: Begun, prepared: Prepared, lease: HeldLease) -> Begun:
        """The batch as its rows turned out: a step whose rows can end it early makes the shorter one durable here."""
        return begun

    def write(self, closing: Closing) -> None:
        """Every sink in order. Whether the rows fit is judged for all of them before the first is written."""
        rows, batch = closing.prepared.rows, closing.batch
        fitted = {sink.name: self.fit(rows, sink, batch) for sink in self.work.sinks}
        apart = [isinstance(sink, Secluded) and sink.is_secluded(batch, self.session) for sink in self.work.sinks]
        closing.is_watched = not all(apart)
        for place, sink in enumerate(self.work.sinks, start=1):
            closing.lease.check()
            with closing.clock.timing(sink.name):
                self.write_one(sink, half_way(fitted[sink.name], f"during_sink:{place}"), closing)
            reach(f"after_sink:{place}")

    def fit(self, rows: DataFrame, sink: Sink, batch: Batch) -> DataFrame:
        if batch.kind == "refresh":
            return rows
        return fit(rows, sink, job=self.work.name, policy=self.work.on_schema_change, session=self.session)

    def write_one(self, sink: Sink, rows: DataFrame, closing: Closing) -> None:
        """The last sink may take the mark into its own transaction."""
        is_last = sink is self.work.sinks[-1]
        try:
            if is_last and isinstance(sink, Transactional):
                written = sink.write_joined(rows, closing.batch, closing.within)
            else:
                written = sink.write(rows, closing.batch)
        except Exception as error:
            raise self.explained(error, sink.name, closing.begun, rows.sparkSession) from error
        closing.written[sink.name] = written or 0

    def explained(self, error: Exception, sink: str, begun: Begun, spark: SparkSession) -> FloodmarkError:
        """The error a person should see; the whole of it is in the debug log."""
        if isinstance(error, FloodmarkError):
            return error
        log.debug("write failed", job=self.work.name, sink=sink, exc_info=error)
        known = explained(error, self.work, begun.batch.spans, spark)
        return known or SinkFailed(self.work.name, sink=sink, reason=first_lines(error))


def noted_in(lease: HeldLease, session: Session) -> Session:
    """The session, with its JVM written into the lease the first time it is asked for: it may outlive this process."""

    def asked() -> SparkSession:
        spark = session()
        lease.with_jvm(jvm_pid(spark))
        return spark

    return asked


# Acts on a job's marks by a person: reset and set. They hold the lease and raise the number above every sink's.
def reset_marks(step: Step) -> None:
    """Forget every mark and the open batch; the next run reads from the beginning, under new numbers."""
    with hold(step.store, step.work.name) as lease:
        decide(step, replace(readable_record(step), marks={}, sources={}, extras={}, origin="reset"), lease)


def readable_record(step: Step) -> JobRecord:
    """The record, or a blank one in the place of one that cannot be read: a reset is how a person gets rid of it."""
    try:
        return step.read()
    except MarkUnreadable:
        return JobRecord(step.work.name)


def set_mark(step: Step, text: str) -> HWM[Any]:
    """Put the mark of the job's one source to a value that its kind accepts."""
    with hold(step.store, step.work.name) as lease:
        record = step.read()
        if len(record.marks) != 1:
            raise ConfigError(
                f"job '{record.job}' has {len(record.marks)} marks; `set` moves the one mark of a job that has run.",
                hint=f"floodmark run --select {record.job} --from {text}",
            )
        [(source, mark)] = record.marks.items()
        moved = mark.set_value(text)
        known = {name: kept for name, kept in part_of(record.extras, source).items() if name != PENDING}
        extras = {**record.extras, source: known} if source in record.extras else record.extras
        decide(step, replace(record, marks={source: moved}, extras=extras, origin="set"), lease)
        return moved


def decide(step: Step, record: JobRecord, lease: HeldLease) -> None:
    """Save what a person decided, above every number that is known, and fence the sinks with it."""
    ledgers = read_ledgers(step.work, step.store.namespace, step.session)
    used = record.intent.number if record.intent else 0
    expected, number = record.number, max(record.number, used, ledgers.highest) + 1
    decided = replace(record, number=number, intent=None, modified_time=datetime.now(timezone.utc))
    step.store.commit(decided, expected=expected, lease=lease.lease)
    fence_laggards(step.work, step.store.namespace, decided, ledgers, noted_in(lease, step.session))

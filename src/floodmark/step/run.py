"""The step: read above the mark, transform, judge, write every sink, and only then raise the mark.

The frame of a batch is `engine`; what a person does to a job's marks (reset, set) stands below the step.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from floodmark.errors import (
    DiskNotShared,
    FloodmarkError,
    LeaseHeld,
    LeaseLost,
    MarkUnreadable,
    SinkBehind,
    SinkFailed,
    SinkShared,
    SourceEmpty,
    SourceUnreadable,
    TransformFailed,
)
from floodmark.errors.causes import Cause, cause_of, reason_of
from floodmark.failpoints import half_way, reach
from floodmark.hwm import HWM
from floodmark.logs import get_logger
from floodmark.patience import raise_interruption_behind
from floodmark.phases import phase
from floodmark.sinks.contract import Batch, Secluded, Sink, Transactional
from floodmark.spark.faults import fault_in
from floodmark.spark.gateway import jvm_loss
from floodmark.spark.usage import Meter
from floodmark.step.batch import PreparedBatch, batch_of, prepare, size_of, source_error
from floodmark.step.checks import fit, require_columns
from floodmark.step.commit import BatchCommit, JoinedCommit
from floodmark.step.engine import Clock, Engine, OpenBatch, session_under
from floodmark.step.intents import (
    end_transactions,
    fence_all_below,
    fence_below,
    fence_each,
    fence_open_batch,
    fence_until_found,
    make_ledgers_good,
    named_as_begun,
    named_by_target,
    new_intent,
    next_attempt,
    open_intent,
    spool_flaw,
    work_of,
)
from floodmark.step.listeners import tell
from floodmark.step.looking import (
    Ledgers,
    Outlook,
    identified,
    ledgers_of,
    look,
    read_ledgers,
    require_a_beginning,
    require_agreement,
    sinks_behind,
    sinks_shared,
)
from floodmark.step.spool import Spool, is_damage, remove_spools
from floodmark.step.transform import Identity
from floodmark.step.work import RunRequest, Work
from floodmark.stores.extras import SINKS, RecordExtras
from floodmark.stores.lease import HeldLease, hold
from floodmark.stores.record import Intent, JobRecord, Receipt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession


log = get_logger(__name__)
SPOOL = "spool"


@dataclass(frozen=True)
class Step(Engine[Outlook]):
    """Rows of a job's sources, through its transform and its rules, into its sinks.

    >>> work = Work("orders", (fm.testing.RowsSource([], "id long"),), (fm.testing.ListSink(),))
    >>> Step(work=work, store=fm.stores.open("memory"), session=fm.spark_session).run().status
    'nothing_new'
    """

    work: Work
    request: RunRequest = field(default_factory=RunRequest)

    @property
    def job(self) -> str:
        return self.work.name

    def look(self, record: JobRecord) -> Outlook:
        """One cheap probe of each source; a run that has time waits for files that are still settling."""
        outlook = look(self.work, record, self.request, self.session)
        if outlook.settles_in_seconds and self.request.waits_for_settling:
            time.sleep(outlook.settles_in_seconds)
            outlook = look(self.work, record, self.request, self.session)
        if self.request.full_refresh and not outlook.spans and not outlook.held_back:
            raise SourceEmpty(self.job)
        self.last_seen.ahead = outlook.ahead
        return outlook

    def remember(self, record: JobRecord, look: Outlook) -> None:
        """Lay what is pending over the extras of the record; marks and number stay as they are.

        A fence that is waited for has to outlive this process. An idle tick has nothing new to remember and writes
        nothing; nor is anything saved beside a run that holds the lease, or over a record that changed: both know more.
        """
        extras = record.extras.with_parts_of(look.extras_after(record.extras))
        if extras == record.extras:
            return
        try:
            with hold(self.store, self.job) as lease:
                if (self.store.read(self.job, record) or replace(record, extras=RecordExtras())) == record:
                    self.store.intend(replace(record, extras=extras), expected=record.number, lease=lease.lease)
        except LeaseHeld:
            return

    def recover(self, record: JobRecord) -> OpenBatch[Outlook] | None:
        """The open batch under a new attempt; None if it is to be dropped: somebody said so, or the code changed.

        A run that is paused with the batch may write it until the sinks are fenced: so where it would be dropped, they
        are fenced first, asked again, and only then is it decided.
        """
        if record.intent is None:
            return None
        work = named_as_begun(self.work, record.intent)
        end_transactions(work, self.store.namespace, self.session)
        if not self.request.drops_open_batch:
            make_ledgers_good(work, batch_of(work, record, record.intent, self.store.namespace), self.session)
        ledgers = self.ledgers(record)
        again = self.attempt_to_finish(record, ledgers)
        if again is None:
            ledgers = self.fence_batch(record.intent)
            again = self.attempt_to_finish(record, ledgers)
        return OpenBatch(record, again, None, tuple(ledgers.sinks_with(again.number))) if again else None

    def attempt_to_finish(self, record: JobRecord, ledgers: Ledgers) -> Intent | None:
        """The open batch under a new attempt, or None to drop it. Raises CodeChanged, SpoolLost or BatchClosed."""
        if record.intent is None or self.request.drops_open_batch:
            return None
        work, flaw = work_of(record.intent, self.work), spool_flaw(record.intent)
        intent = open_intent(work, record.intent, ledgers, self.request, self.session, flaw)
        return next_attempt(self.work, intent, flaw) if intent else None

    def fence_batch(self, intent: Intent) -> Ledgers:
        """Fence the sinks against the batch, and ask what they have now; killed after this, it is dropped all the same.

        Somebody who gives the batch up has all of them fenced: one that has it must not get company.
        """
        fence = fence_all_below if self.request.drops_open_batch else fence_until_found
        ledgers = fence(named_as_begun(self.work, intent), self.store.namespace, intent.number, self.session)
        reach("after_fence")
        return ledgers

    def is_droppable(self, intent: Intent) -> bool:
        """Whether the batch may be dropped: the sinks are fenced against it, and none of them had it."""
        return not self.fence_batch(intent).sinks_touched_by(intent.number)

    def plan(self, record: JobRecord, look: Outlook) -> OpenBatch[Outlook]:
        """The batch over what the look saw, once every sink agrees with the record and no older run can write."""
        ledgers = self.settled_ledgers(record)
        require_a_beginning(self.work, record, self.request, self.session, ledgers)
        intent = self.intent_for(record, look, ledgers)
        log.info("batch begins", job=self.job, number=intent.number, store=self.store.describe())
        return OpenBatch(identified(record, ledgers), intent, look)

    def intent_for(self, record: JobRecord, look: Outlook, ledgers: Ledgers) -> Intent:
        """What is made durable of the batch; a batch of another kind has more to keep."""
        return new_intent(self.work, record, look, ledgers, self.request, self.session)

    def ledgers(self, record: JobRecord) -> Ledgers:
        """What every sink has recorded. Raises SinkAhead, SinkBehind or SinkDisagrees, unless all is to be rebuilt."""
        work = named_as_begun(self.work, record.intent)
        ledgers = read_ledgers(work, self.store.namespace, self.session)
        if not self.request.full_refresh:
            require_agreement(work, self.store.namespace, record, ledgers)
            self.require_what_was_confirmed(record)
        return ledgers

    def require_what_was_confirmed(self, record: JobRecord) -> None:
        """A sink that was renamed since its last batch is asked under the old name, too. Raises SinkBehind."""
        work = named_by_target(self.work, record.extras.sinks)
        if work is not self.work:
            ledgers = read_ledgers(work, self.store.namespace, self.session)
            for behind in sinks_behind(work, self.store.namespace, record, ledgers).values():
                raise behind

    def settled_ledgers(self, record: JobRecord) -> Ledgers:
        """As `ledgers`; a sink that has not recorded the last number is fenced with it, and asked after that."""
        ledgers = self.ledgers(record)
        below = ledgers.sinks_below({sink.name: sink for sink in self.work.sinks}, record.number)
        fence_each(below, self.job, self.store.namespace, record.number, self.session)
        return self.ledgers(record) if below else ledgers

    def write_batch(self, batch: OpenBatch[Outlook], lease: HeldLease, clock: Clock) -> Receipt:
        """As every engine; the intent keeps where the batch goes, so that it is found again under other names."""
        intent, record = batch.intent, batch.record
        if intent.extras.sinks is None:
            record = record if record.extras.identity else identified(record, Ledgers({}))
            sinks = ledgers_of(work_of(intent, self.work), self.store.namespace, intent.number)
            owner = record.extras.identity.id if record.extras.identity else None
            intent = replace(intent, extras=replace(intent.extras, sinks=sinks, identity=owner))
        if intent.spool:
            self.begin_spool(intent.spool)
        tell(self.request.listeners, lambda each: each.began(self.job, clock.run, clock.started))
        receipt = super().write_batch(replace(batch, record=record, intent=intent), lease, clock)
        tell(self.request.listeners, lambda each: each.ended(receipt))
        return receipt

    def begin_spool(self, folder: str) -> None:
        """Make the place for the frozen rows; a disk that does not take it fails the run before the batch is open."""
        try:
            Spool(folder).begin()
        except OSError as error:
            raise SinkFailed(self.job, sink=SPOOL, reason=reason_of(error)) from error

    def carry_out(self, batch: OpenBatch[Outlook], lease: HeldLease, clock: Clock) -> Receipt:
        """Read, judge, write every sink, and raise the mark."""
        step = replace(self, work=work_of(batch.intent, self.work))
        with clock.timing("read"), phase("reading", self.job):
            prepared = step.prepare(batch.intent)
        batch = step.cut_short(batch, prepared, lease)
        reach("after_read")
        receipt = step.write(batch, prepared, lease, clock)
        log.debug("where the time went", job=self.job, number=receipt.number, parts=dict(clock.seconds))
        reach("after_commit")
        remove_spools(f"{self.work.spool_folder}/{self.work.name}", batch.intent.number)
        return receipt

    def prepare(self, intent: Intent) -> PreparedBatch:
        """The rows of the batch, transformed and judged; frozen, if they might be others when they are read again."""
        spark = self.session()
        meter = Meter.begin(spark, intent.attempt)
        try:
            return replace(prepare(self.work, intent, spark), meter=meter)
        except Exception as error:
            raise self.error_for(error, None, intent, spark) from error

    def cut_short(self, batch: OpenBatch[Outlook], prepared: PreparedBatch, lease: HeldLease) -> OpenBatch[Outlook]:
        """The batch as its rows turned out: a step whose rows can end it early makes the shorter one durable here."""
        return batch

    def write(self, batch: OpenBatch[Outlook], prepared: PreparedBatch, lease: HeldLease, clock: Clock) -> Receipt:
        """Every sink in order, then the mark. Whether the rows fit is judged for all sinks before the first write."""
        sinks, rows = self.work.sinks, prepared.judgement.kept_rows()
        sink_batch = batch_of(self.work, batch.record, batch.intent, self.store.namespace)
        sink_batch = replace(sink_batch, size=size_of(self.work, batch.look, prepared))
        fitted = {sink.name: self.fit(rows, sink, sink_batch) for sink in sinks}
        apart = [s.name for s in sinks if isinstance(s, Secluded) and s.is_secluded(sink_batch, self.session)]
        commit = BatchCommit(self.work, self.store, batch, prepared, sink_batch, lease, clock, secluded=tuple(apart))
        joined = JoinedCommit(commit, {})
        try:
            return self.write_in_order(fitted, joined)
        except LeaseLost as lost:
            raise LeaseLost(self.job, holder=lost.holder, written=tuple(joined.rows_written)) from lost

    def write_in_order(self, fitted: Mapping[str, DataFrame], joined: JoinedCommit) -> Receipt:
        """Each sink with the rows as it can take them, then the mark. Raises LeaseLost before a write of another's."""
        commit, written = joined.commit, joined.rows_written
        for place, sink in enumerate(self.work.sinks, start=1):
            commit.lease.check()
            words = f"writing sink '{sink.name}' ({place} of {len(self.work.sinks)})"
            with commit.clock.timing(sink.name), phase(words, self.job):
                sink_rows = half_way(fitted[sink.name], f"during_sink:{place}")
                written[sink.name] = self.write_one(sink, sink_rows, joined)
            way, seconds = commit.batch.notes.ways.get(sink.name), commit.clock.seconds[sink.name]
            log.debug("sink has the batch", job=self.job, sink=sink.name, written_by=way, seconds=seconds)
            reach(f"after_sink:{place}")
        return joined.receipt or commit.save(written, self.store.commit)

    def fit(self, rows: DataFrame, sink: Sink, batch: Batch) -> DataFrame:
        """The rows as this sink can take them."""
        require_columns(rows, sink, self.job)
        if batch.kind == "refresh":
            return rows
        return fit(rows, sink, job=self.job, policy=self.work.on_schema_change, session=self.session)

    def write_one(self, sink: Sink, rows: DataFrame, joined: JoinedCommit) -> int | None:
        """How many rows one sink took, if it knows; the last may take the mark into its own transaction."""
        commit = joined.commit
        try:
            if sink is self.work.sinks[-1] and isinstance(sink, Transactional):
                return sink.write_joined(rows, commit.batch, joined.commit_within)
            return sink.write(rows, commit.batch)
        except Exception as error:
            raise self.error_for(error, sink.name, commit.open_batch.intent, rows.sparkSession) from error

    def error_for(self, error: Exception, sink: str | None, intent: Intent, spark: SparkSession) -> FloodmarkError:
        """The error a person should see; the whole of it is in the debug log. No sink: before the first was written."""
        raise_interruption_behind(error)
        if isinstance(error, FloodmarkError):
            return error
        log.debug("write failed" if sink else "read failed", job=self.job, sink=sink, exc_info=error)
        if loss := jvm_loss(error):
            return loss
        if host := fault_in(error, "disk"):
            return DiskNotShared(self.job, sink=sink or SPOOL, reason=host)
        if intent.spool and is_damage(error, intent.spool):
            self.condemn_spool(intent.spool, intent)
        known = source_error(error, self.work, intent.spans, spark)
        return known or self.failure(cause_of(error), sink)

    def failure(self, cause: Cause, sink: str | None) -> FloodmarkError:
        """The cause with the part of the job that it belongs to: what runs in a write is the transform as well."""
        is_transformed = not isinstance(self.work.transform, Identity)
        if cause.blame == "code" or (cause.blame == "values" and is_transformed):
            return TransformFailed(self.job, reason=cause.reason, hint=cause.hint)
        if sink is None and cause.blame != "disk":
            names = ", ".join(f"'{source.name}'" for source in self.work.sources)
            place, hint = f"source {names} of job '{self.job}'", cause.hint or "floodmark check asks the source itself"
            return SourceUnreadable(place, reason=cause.reason.rstrip("."), hint=hint)
        return SinkFailed(self.job, sink=sink or SPOOL, reason=cause.reason, hint=cause.hint)

    def condemn_spool(self, folder: str, intent: Intent) -> None:
        """Give up a damaged spool, unless another attempt has the batch by now: then it is for that one to see."""
        try:
            stored = self.store.read(self.job)
        except FloodmarkError:
            return  # the next run meets the damage again
        if stored and stored.intent and stored.intent.attempt == intent.attempt:
            Spool(folder).condemn()


def reset_marks(step: Step) -> None:
    """Forget every mark and the open batch; the next run reads from the beginning, under new numbers.

    A record that cannot be read is replaced too: a reset is how a person gets rid of it.
    """
    with hold(step.store, step.job) as lease:
        try:
            record = step.read()
        except MarkUnreadable:
            record = JobRecord(step.job)
        save_decision(step, replace(record, marks={}, sources={}, extras=RecordExtras(), origin="reset"), lease)


def set_mark(step: Step, text: str) -> HWM[Any]:
    """Put the mark of the job's one source to a value that its kind accepts."""
    with hold(step.store, step.job) as lease:
        record = step.read()
        source, moved = record.mark_moved_to(text)
        known, extras = record.extras.source(source), record.extras
        if known.pending:  # it was about the old mark
            extras = extras.with_source(source, replace(known, pending={}))
        save_decision(step, replace(record, marks={source: moved}, extras=extras, origin="set"), lease)
        return moved


def accept_sinks(step: Step) -> list[SinkBehind | SinkShared]:
    """Take what the sinks have now for what they confirmed, and batches of another record for this one's.

    Returns which sinks had lost something, or had another's batch. An open batch stays open, and the mark where it is:
    what was lost comes again only if somebody asks for it.
    """
    with hold(step.store, step.job) as lease:
        record = step.read()
        work = named_by_target(step.work, record.extras.sinks)
        ledgers = read_ledgers(work, step.store.namespace, session_under(lease, step.session))
        behind = sinks_behind(work, step.store.namespace, record, ledgers)
        known = record.extras.sinks
        for key, lost in behind.items():
            kept = known.pop(key if key in known else lost.sink)
            if lost.recorded is not None:
                known[key] = replace(kept, number=lost.recorded, target=lost.target)
        shared = sinks_shared(work, record, ledgers)
        if behind or shared:
            accepted = replace(record, extras=record.extras.with_sinks(known))
            accepted = identified(accepted, ledgers) if shared else accepted
            step.store.intend(accepted, expected=record.number, lease=lease.lease)
        return [*behind.values(), *shared.values()]


def save_decision(step: Step, record: JobRecord, lease: HeldLease) -> None:
    """Save what a person decided, above every number that is known, with the sinks fenced before it and after it.

    Before it, against the open batch, which is given up: a run that is paused with it must not write once the number
    is chosen. Not with the new number: a fence above an open batch would hide which sinks have it, if we die here.
    What sinks had confirmed is forgotten: whoever decides where to go on has seen what they have.
    """
    record = replace(record, extras=record.extras.without([SINKS]))
    session = session_under(lease, step.session)
    ledgers = fence_open_batch(step.work, record, step.store.namespace, session)
    decided = lease.save(record, after=record, above=ledgers.highest)
    fence_below(step.work, step.store.namespace, decided.number, session)

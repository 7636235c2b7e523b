"""A turn of the mill: the step's own protocol, with spans that are cut by the horizon and an end that may come soon.

A process function may return the end of the stream: then the output stops there, and so do the marks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from floodmark.errors import FloodmarkError
from floodmark.hwm import Json, Span
from floodmark.logs import get_logger
from floodmark.mill.brokers import VALUE, Cuttable, Message
from floodmark.mill.horizon import NOTHING, Level, count_skipped, level_to_json, past
from floodmark.mill.inputs import TurnDetail, with_mark_kept
from floodmark.mill.join_tree import MARKER
from floodmark.mill.pending import PendingInput, count_late, memory_of, without_streams
from floodmark.mill.planning import Inputs, Planner, Turn
from floodmark.mill.process import ENDS, NEXT, ProcessTransform
from floodmark.mill.progress import RunState
from floodmark.mill.scan import ScanResult, scan, surveyed_messages
from floodmark.sinks.contract import POSITION, Batch, Sink
from floodmark.sources.contract import Reading, Sight
from floodmark.spark.faults import element_error_in
from floodmark.step import Step, Work
from floodmark.step.batch import PreparedBatch
from floodmark.step.checks import Judgement
from floodmark.step.engine import OpenBatch
from floodmark.step.looking import Outlook, look
from floodmark.step.spool import RowCounts, Spool, observe_rows
from floodmark.stores.extras import RecordExtras
from floodmark.stores.lease import HeldLease
from floodmark.stores.record import Intent, JobRecord, Receipt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = get_logger(__name__)
END_TEXT = f'{{"{MARKER}": true}}'


@runtime_checkable
class EndTaking(Protocol):
    """A sink that sends on the end of a stream: it finds a row in which the column `_fm_ends` is true."""

    def takes_end(self) -> bool: ...


def takes_end(sink: Sink) -> bool:
    """Whether the end of a stream is sent on there, as a message among others: a table has no row for it."""
    return isinstance(sink, EndTaking) and sink.takes_end()


@dataclass(frozen=True)
class MillWork(Work):
    """The work of a mill; its function may give other output the second time, so every turn is spooled."""

    def why_spooled(self, *, at_once: bool = False) -> str | None:
        return "the process function may give other output the second time"


@dataclass(frozen=True)
class ReturnedEnd:
    """Where a function ended the stream: the element that it was given, and the offset behind it."""

    place: Mapping[str, Any]
    next: int

    @property
    def partition(self) -> int:
        return int(self.place["partition"])


@dataclass(frozen=True)
class TurnOutput(PreparedBatch):
    """The output of a turn, and where the function ended the stream, if it did."""

    end: ReturnedEnd | None = None


@dataclass(frozen=True)
class MillStep(Step):
    """One turn: look at every stream, plan up to the horizon, join and call, write, and commit all marks together."""

    planner: Planner = field(kw_only=True)
    run_state: RunState = field(kw_only=True)

    def run(self) -> Receipt:
        """What the look has cached is for this turn alone; what it found is looked at again if the turn fails."""
        try:
            return super().run()
        except BaseException:
            self.run_state.forget_look()
            raise
        finally:
            self.run_state.cache.clear()

    def look(self, record: JobRecord) -> Outlook:
        """The spans of the next turn; none if nothing that the horizon waits for has risen since the last look.

        A look that is too small is taken again, twice as large: one that holds no two different keys, or one behind
        whose end there is what the horizon waits for.
        """
        state = self.run_state
        while True:
            outlook = look(self.work, record, replace(self.request, max_rows=state.limit), self.session)
            inputs = self.pending_inputs(record, outlook)
            if state.is_over or not state.is_worth_reading(record.number, state.whom_not_to_wait_for()):
                if state.is_full(inputs) and self.is_more_behind(record, inputs):
                    state.widen(inputs)
                    continue
                return replace(outlook, sights={}) if state.is_over else with_pending(outlook, state.waiting_sights())
            turn = self.plan_turn(inputs)
            state.note_turn(record.number, turn)
            if turn.moves or not state.widen(inputs):
                return with_pending(outlook, self.sights(turn, outlook) if turn.moves else state.waiting_sights())

    def is_more_behind(self, record: JobRecord, inputs: Inputs) -> bool:
        """Whether a look without bounds finds what this one lacks: elements that would be worth reading."""
        outlook = look(self.work, record, replace(self.request, max_rows=None), self.session)
        spans = {name: outlook.sights[name].span for name in inputs}
        whole = {name: replace(each, span=spans[name]) for name, each in inputs.items()}
        if self.run_state.is_over:
            return any(pending.has_risen for pending in whole.values())
        return self.run_state.are_waited_for(whole)

    def pending_inputs(self, record: JobRecord, outlook: Outlook) -> dict[str, PendingInput]:
        """What lies behind every mark; the mill is over if it has come to its end and nothing was added since."""
        state, streams = self.run_state, self.planner.streams
        memories = {name: memory_of(record, name).in_terms_of(stream.expressions) for name, stream in streams.items()}
        spans = {name: outlook.sights[name].span for name in streams}
        behind = {name: PendingInput(stream, spans[name], memories[name]) for name, stream in streams.items()}
        seen = state.windows.seen_upto if state.windows is not None else {}
        inputs = {name: each.reaching_what_was_seen(seen.get(name)) for name, each in behind.items()}
        state.note_offsets(inputs)
        not_waited_for = state.whom_not_to_wait_for()
        inputs = {name: replace(each, not_waited_for=not_waited_for) for name, each in inputs.items()}
        has_stopped = memories[self.planner.root.name].has_stopped
        state.is_over = has_stopped and not any(pending.has_risen for pending in inputs.values())
        if not has_stopped or state.is_over:
            return inputs
        return {name: replace(each, memory=each.memory.for_next_run()) for name, each in inputs.items()}

    def plan_turn(self, inputs: Inputs) -> Turn:
        """The turn that can be done now, from the elements that are there."""
        scans, windows = self.scan_all(inputs), self.run_state.windows
        if windows is not None:
            own = inputs[self.planner.root.name]
            windows.begin_at({partition: first for partition, (first, _) in own.offsets.items()})
            below, results = self.planner.level_to_ask(inputs, scans), scans.get(own.stream.name, {})
            windows.known_ends = {number for number, result in results.items() if result.end is not None}
            if self.planner.root.branches:
                windows.note_seen({name: pending.offsets for name, pending in inputs.items()})
            if self.planner.root.branches or windows.lack_any(own.unread_ends(results)):
                windows.take(self.elements_to_ask_about(own, results, below))
            windows.poll()
        return self.planner.plan(inputs, scans, windows)

    def elements_to_ask_about(
        self, own: PendingInput, results: Mapping[int, ScanResult], below: Level
    ) -> Iterable[Message]:
        """Elements of the master that a window function was not asked about, below a level."""
        windows = self.run_state.windows
        asked = dict(windows.taken_upto) if windows is not None else {}
        return own.elements_from(asked, self.session(), results, below)

    def scan_all(self, inputs: Inputs) -> dict[str, dict[int, ScanResult]]:
        """The keys and ends of every stream that has any, all of them at once."""
        unread = {name: each.unread for name, each in inputs.items()}
        spans = {
            name: span
            for name, span in unread.items()
            if span and (inputs[name].stream.keys or inputs[name].stream.has_end_messages)
        }
        if not spans:
            return {}
        spark = self.session()
        with ThreadPoolExecutor(len(spans)) as pool:
            results = pool.map(lambda name: self.scan_one(inputs[name], spans[name], spark), spans)
            return dict(zip(spans, results, strict=True))

    def scan_one(self, pending: PendingInput, span: Span, spark: SparkSession) -> dict[int, ScanResult]:
        stream = pending.stream
        ordered = not (stream.name == self.planner.root.name and self.planner.is_in_runs(pending))
        try:
            rows = surveyed_messages(stream, spark, span, ordered=ordered)
            return scan(stream, self.run_state.cache.add(stream, span, rows), ordered=ordered)
        except Exception as error:
            raise (element_error_in(error) or error) from error

    def sights(self, turn: Turn, outlook: Outlook) -> dict[str, Sight]:
        """The turn in the words of the step, with what the record has to remember of every stream."""
        self.log_skipped(turn)
        spans, late = turn.spans(), self.late_notes(turn)
        return {
            name: Sight(spans.get(name), extras={**outlook.sights[name].extras, **memory.to_json()}, notes=late[name])
            for name, memory in turn.memories().items()
        }

    def log_skipped(self, turn: Turn) -> None:
        """Once, when the streams are seen for the first time: they may begin at different keys."""
        is_first = not any(pending.memory.next_unseen for pending in turn.inputs.values())
        skipped = count_skipped(self.planner.root, turn.partitions) if is_first else {}
        if skipped:
            log.info("streams begin at different keys, elements are skipped", mill=self.job, **skipped)

    def late_notes(self, turn: Turn) -> dict[str, tuple[str, ...]]:
        """By stream, what is left out because it came too late: in the log once, and in the turn's receipt."""
        notes: dict[str, tuple[str, ...]] = dict.fromkeys(turn.inputs, ())
        for name, pending in turn.inputs.items():
            for number, count in count_late(pending, turn.partitions[name], self.session).items():
                notes[name] += (f"{count} elements of partition {number} of {name} came too late and are left out",)
                if not self.run_state.is_reported(name, number):
                    log.warning("elements came too late", mill=self.job, stream=name, partition=number, count=count)
        return notes

    def prepare(self, intent: Intent) -> PreparedBatch:
        """The turn's output, from the spool if an earlier attempt finished it; nothing behind a returned end."""
        spark, spool = self.session(), Spool(str(intent.spool))
        try:
            counted = spool.counts() or self.process(intent, spool, spark)
        except Exception as error:
            raise self.error_for(error, "spool", intent, spark) from error
        rows = spool.read(spark)
        end = first_end(rows) if spool.holds(ENDS) else None
        before = only_before(rows, end) if end else rows.where(f"not {ENDS}")
        is_sent_on = any(takes_end(sink) for sink in self.work.sinks)
        output = with_end(before) if is_sent_on and (end or self.stops(intent)) else before
        return TurnOutput(Judgement(self.work.rules, output, intent.batch_time), (), counted, {}, end=end)

    def process(self, intent: Intent, spool: Spool, spark: SparkSession) -> RowCounts:
        """Run the process function over the elements of the turn, once for this attempt."""
        frames, spans, transform = self.frames(intent, spark), intent.spans, self.work.transform
        uncounted = {name: frames[name] for name in spans if self.is_uncounted(name)}
        counters = {name: observe_rows(Reading(rows), rows) for name, rows in uncounted.items()}
        frames |= {name: counter.rows for name, counter in counters.items()}
        numbered = replace(transform, number=intent.number) if isinstance(transform, ProcessTransform) else transform
        spool.write(numbered.apply(frames, job=self.job, attempt=intent.attempt, batch_time=intent.batch_time))
        observed = {name: counter.result(was_executed=True).read for name, counter in counters.items()}
        self.run_state.note_elements(observed)
        counted = RowCounts(read=sum(TurnDetail.of(spans[name]).elements + observed.get(name, 0) for name in spans))
        spool.finish(counted)
        return counted

    def frames(self, intent: Intent, spark: SparkSession) -> dict[str, DataFrame]:
        """The elements of the turn, by stream."""
        cache, spans = self.run_state.cache, intent.spans
        return {
            name: cache.elements(stream, spark, spans[name]) if name in spans else stream.no_elements(spark)
            for name, stream in self.planner.streams.items()
        }

    def is_uncounted(self, name: str) -> bool:
        """Whether the plan could not say how many elements a turn reads: offsets tell, and a table has none."""
        return not isinstance(self.planner.streams[name].inlet.source, Cuttable)

    def cut_short(self, batch: OpenBatch[Outlook], prepared: PreparedBatch, lease: HeldLease) -> OpenBatch[Outlook]:
        """Where the function returned the end of the stream, the marks stay behind the element that it did so for.

        The commit drops the marks of streams that are no longer in the tree.
        """
        shorter = replace(batch, record=self.without_old_streams(batch.record))
        if not isinstance(prepared, TurnOutput) or prepared.end is None:
            return shorter
        intent = cut_at(prepared.end, batch.intent, self.planner)
        self.store.intend(replace(batch.record, intent=intent), expected=batch.record.number, lease=lease.lease)
        return replace(shorter, intent=intent)

    def without_old_streams(self, record: JobRecord) -> JobRecord:
        """The record, without streams that are no longer in the tree."""
        old = sorted(record.marks.keys() - self.planner.streams.keys())
        if not old:
            return record
        log.info("streams are no longer in the tree, their marks are dropped", mill=self.job, streams=old)
        return without_streams(record, old)

    def fit(self, rows: DataFrame, sink: Sink, batch: Batch) -> DataFrame:
        """Only a sink that can send it on gets the end of the stream."""
        return super().fit(rows if takes_end(sink) else rows.where(f"not {ENDS}"), sink, batch)

    def error_for(self, error: Exception, sink: str | None, intent: Intent, spark: SparkSession) -> FloodmarkError:
        return element_error_in(error) or super().error_for(error, sink, intent, spark)

    def stops(self, intent: Intent) -> bool:
        """Whether the end of the streams is in this turn."""
        remember = intent.extras.remember or RecordExtras()
        return remember.source(self.planner.root.name).extras.get("stopped") is True


def with_pending(outlook: Outlook, sights: Mapping[str, Sight]) -> Outlook:
    """What the turn makes of the look, with all that a source wants remembered whether it is read or not."""
    pending = {name: sight.pending for name, sight in outlook.sights.items() if sight.pending}
    waiting = {name: replace(sights.get(name, Sight(None)), pending=own) for name, own in pending.items()}
    return replace(outlook, sights={**sights, **waiting})


def first_end(rows: DataFrame) -> ReturnedEnd | None:
    """The first end among a turn's output, in master order."""
    from pyspark.sql import functions as F

    found = rows.where(ENDS).agg(F.min(F.struct(POSITION, NEXT)).alias("first")).collect()[0]["first"]
    return ReturnedEnd(found[POSITION].asDict(), found[NEXT]) if found else None


def only_before(rows: DataFrame, end: ReturnedEnd) -> DataFrame:
    """The output that stands before the end."""
    from pyspark.sql import functions as F

    kinds = {field.name: field.dataType for field in rows.schema[POSITION].dataType.fields}  # type: ignore[attr-defined]
    place = F.struct(*(F.lit(value).cast(kinds[name]).alias(name) for name, value in end.place.items()))
    return rows.where(F.col(POSITION) < place).where(~F.col(ENDS))


def with_end(rows: DataFrame) -> DataFrame:
    """The rows and, behind all of them, one that stands for the end."""
    from pyspark.sql import functions as F

    fields = rows.schema[POSITION].dataType.fields  # type: ignore[attr-defined]
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in fields[1:]]
    end = rows.sparkSession.range(1).select(
        F.lit(END_TEXT).alias(VALUE),
        F.struct(F.lit(1).alias("last"), *nulls).alias(POSITION),
        F.lit(True).alias(ENDS),
    )
    return rows.unionByName(end, allowMissingColumns=True)


def cut_at(end: ReturnedEnd, intent: Intent, planner: Planner) -> Intent:
    """The intent whose master stops behind the element that ended it; what is joined to it stays where it was."""
    root = planner.root.name
    spans = {name: _with_old_mark(planner, name, span) for name, span in intent.spans.items()}
    spans[root] = _cut_master(planner, intent.spans[root], end)
    remember = intent.extras.remember or RecordExtras()
    done, has_rest = level_to_json(_done(planner, spans[root], end)), _has_rest(planner, spans[root], end)
    stop: dict[str, Json] = {"stopped": True, "done": done, "ended": {}, "has_rest": has_rest}
    stopped = remember.with_part(root, {**(remember.part(root) or {}), **stop})
    return replace(intent, spans=spans, extras=replace(intent.extras, remember=stopped))


def _with_old_mark(planner: Planner, name: str, span: Span) -> Span:
    """Another stream keeps its mark: what of it is still needed was planned for more than is given out now."""
    source = planner.streams[name].inlet.source
    if not isinstance(source, Cuttable):
        return with_mark_kept(span)
    offsets = source.offsets(span)
    reads, passes = {n: upto for n, (_, upto) in offsets.items()}, {n: first for n, (first, _) in offsets.items()}
    return source.cut(span, reads=reads, passes=passes)


def _cut_master(planner: Planner, span: Span, end: ReturnedEnd) -> Span:
    """The master's mark: behind the element, and in partitions that come later in the order before everything."""
    stream = planner.streams[planner.root.name]
    source, turn = stream.inlet.source, TurnDetail.of(span)
    if not isinstance(source, Cuttable):
        return turn.added_to(with_mark_kept(span))
    offsets = source.offsets(span)
    passes = {number: first for number, (first, _) in offsets.items()}
    if turn.windows is not None:
        passes |= {number: upto for window in turn.windows[: end.place["k0"] + 1] for number, _, upto in window}
    elif not stream.keys or turn.is_in_runs:
        passes |= {number: upto for number, (_, upto) in offsets.items() if number < end.partition}
        passes[end.partition] = end.next
    cut = source.cut(span, reads={n: upto for n, (_, upto) in offsets.items()}, passes=passes)
    return turn.added_to(cut)


def _done(planner: Planner, span: Span, end: ReturnedEnd) -> Level:
    """The level below which masters were given out."""
    turn = TurnDetail.of(span)
    if not planner.streams[planner.root.name].keys or turn.is_in_runs:
        return NOTHING
    if turn.windows is not None:
        return turn.levels[0]
    if planner.has_window:
        return past(end.place["k0"])
    return (0, end.place["k0"], end.partition, end.next)


def _has_rest(planner: Planner, span: Span, end: ReturnedEnd) -> bool:
    """Whether elements that were read stand behind the end; with several partitions that is assumed."""
    offsets = planner.streams[planner.root.name].offsets(span)
    return not offsets or any(
        upto > (end.next if n == end.partition else first) for n, (first, upto) in offsets.items()
    )

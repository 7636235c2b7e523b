"""A turn of the mill: the step's own protocol, with spans that are cut by the horizon and an end that may come soon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from floodmark.errors import FloodmarkError
from floodmark.hwm import Json, Span
from floodmark.logs import get_logger
from floodmark.mill.brokers import VALUE, Cuttable
from floodmark.mill.horizon import NOTHING, Level, Memory, begun_apart, forgotten, level_to_json, past
from floodmark.mill.inputs import DETAIL, elements_in, is_in_runs, levels_in, windows_in
from floodmark.mill.join_tree import MARKER
from floodmark.mill.pending import Found, Stretch, count_late, scout, surveyed
from floodmark.mill.planning import Planner, Turn, asked_below, held, plan_timed
from floodmark.mill.process import ENDS, NEXT, Milling
from floodmark.mill.progress import Watch
from floodmark.sinks.contract import POSITION, Batch, Sink
from floodmark.sources.contract import Sight
from floodmark.spark.faults import element_error_in
from floodmark.step import Step, Work
from floodmark.step.batch import Prepared
from floodmark.step.checks import Judgement
from floodmark.step.engine import OpenBatch
from floodmark.step.looking import Outlook, look
from floodmark.step.spool import RowCounts, Spool
from floodmark.stores.extras import RecordExtras
from floodmark.stores.lease import HeldLease
from floodmark.stores.record import Intent, JobRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


log = get_logger(__name__)
# The end of a stream that a process function returned: the output stops there, and so do the marks.
END_TEXT = f'{{"{MARKER}": true}}'


@dataclass(frozen=True)
class Returned:
    """Where a function ended the stream: the element that it was given, and the offset behind it."""

    place: Mapping[str, Any]
    next: int

    @property
    def partition(self) -> int:
        return int(self.place["partition"])


def first_end(rows: DataFrame) -> Returned | None:
    """The first end among a turn's output, in master order."""
    from pyspark.sql import functions as F

    found = rows.where(ENDS).agg(F.min(F.struct(POSITION, NEXT)).alias("first")).collect()[0]["first"]
    return Returned(found[POSITION].asDict(), found[NEXT]) if found else None


def only_before(rows: DataFrame, end: Returned) -> DataFrame:
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


def cut_at(end: Returned, intent: Intent, planner: Planner) -> Intent:
    """The intent whose master stops behind the element that ended it; what is joined to it stays where it was."""
    root = planner.root.name
    spans = {name: _stayed(planner, name, span) for name, span in intent.spans.items()}
    spans[root] = _stopped(planner, root, intent.spans[root], end)
    remember = intent.extras.remember or RecordExtras()
    done = level_to_json(_done(planner, spans[root], end))
    has_rest = _has_rest(spans[root], end, planner)
    ended: dict[str, Json] = {"stopped": True, "done": done, "ended": {}, "has_rest": has_rest}
    stopped = remember.with_part(root, {**(remember.part(root) or {}), **ended})
    return replace(intent, spans=spans, extras=replace(intent.extras, remember=stopped))


def _has_rest(span: Span, end: Returned, planner: Planner) -> bool:
    """Whether elements that were read stand behind the end; with several partitions that is assumed."""
    source = planner.feeds[planner.root.name].inlet.source
    if not isinstance(source, Cuttable):
        return False
    return any(upto > (end.next if n == end.partition else first) for n, (first, upto) in source.lanes(span).items())


def _done(planner: Planner, span: Span, end: Returned) -> Level:
    if not planner.feeds[planner.root.name].keys or is_in_runs(span):
        return NOTHING
    if windows_in(span) is not None:
        return levels_in(span)[0]
    if planner.has_window:
        return past(end.place["k0"])
    return (0, end.place["k0"], end.partition, end.next)


def _stayed(planner: Planner, name: str, span: Span) -> Span:
    """Another stream keeps its mark: what of it is still needed was planned for more than is given out now."""
    source = planner.feeds[name].inlet.source
    if not isinstance(source, Cuttable):
        return replace(span, upto=span.after or span.upto.reset())
    ranges = source.lanes(span)
    return source.cut(
        span, reads={n: upto for n, (_, upto) in ranges.items()}, passes={n: first for n, (first, _) in ranges.items()}
    )


def _stopped(planner: Planner, name: str, span: Span, end: Returned) -> Span:
    """The master's mark: behind the element, and in partitions that come later in the order before everything."""
    feed = planner.feeds[name]
    if not isinstance(feed.inlet.source, Cuttable):
        return span
    ranges, windows = feed.inlet.source.lanes(span), windows_in(span)
    if windows is not None:
        passes = _behind(windows[: end.place["k0"] + 1], ranges)
    elif feed.keys and not is_in_runs(span):
        passes = {number: first for number, (first, _) in ranges.items()}
    else:
        passes = {number: _upto(number, bounds, end) for number, bounds in ranges.items()}
    cut = feed.inlet.source.cut(span, reads={n: upto for n, (_, upto) in ranges.items()}, passes=passes)
    return replace(cut, detail={**cut.detail, DETAIL: span.detail.get(DETAIL)})


def _behind(windows: Sequence[Any], ranges: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """The offsets behind these windows, as they are stored."""
    passes = {number: first for number, (first, _) in ranges.items()}
    return passes | {number: upto for window in windows for number, _, upto in window}


def _upto(number: int, bounds: tuple[int, int], end: Returned) -> int:
    first, upto = bounds
    return end.next if number == end.partition else upto if number < end.partition else first


@runtime_checkable
class EndTaking(Protocol):
    """A sink that sends on the end of a stream: it finds a row in which the column `_fm_ends` is true."""

    def takes_end(self) -> bool: ...


@dataclass(frozen=True)
class MillWork(Work):
    """The work of a mill; its function may give other output the second time, so every turn is spooled."""

    def why_spooled(self) -> str | None:
        return "the process function may give other output the second time"


@dataclass(frozen=True)
class Ground(Prepared):
    """The output of a turn, and where the function ended the stream, if it did."""

    end: Returned | None = None


@dataclass(frozen=True)
class MillStep(Step):
    """One turn: look at every stream, plan up to the horizon, join and call, write, and commit all marks together."""

    planner: Planner = field(kw_only=True)
    watch: Watch = field(kw_only=True)

    def look(self, record: JobRecord) -> Outlook:
        """The spans of the next turn; none if nothing that the horizon waits for has risen since the last look."""
        request = replace(self.request, max_rows=self.watch.limit)
        outlook = look(self.work, record, request, self.session)
        stretches = self.stretches(record, outlook)
        if stretches is None:
            return replace(outlook, sights={})
        if not self.watch.is_worth_reading(record.number, self.watch.waiting()):
            return with_pending(outlook, self.watch.waiting_sights())
        self.watch.shelf.clear()
        turn = self.planned(stretches)
        self.watch.saw(record.number, turn)
        self.tell_skipped(turn)
        if not turn.moves and self.watch.widened(stretches):
            return self.look(record)
        if not turn.moves:
            self.watch.shelf.clear()
            reason = held(turn)
            return with_pending(outlook, {turn.root: Sight(None, held_reason=reason)})
        memories, spans, late = turn.memories(), turn.spans(), self.late(turn)
        sights = {
            name: Sight(spans.get(name), extras={**outlook.sights[name].extras, **memory.to_json()}, notes=late[name])
            for name, memory in memories.items()
        }
        return with_pending(outlook, sights)

    def late(self, turn: Turn) -> dict[str, tuple[str, ...]]:
        """By stream, what is left out because it came too late: told in the log once, and in the turn's receipt."""
        notes: dict[str, tuple[str, ...]] = dict.fromkeys(turn.stretches, ())
        for name, stretch in turn.stretches.items():
            for lane, count in count_late(stretch, turn.lanes[name], self.session).items():
                notes[name] += (f"{count} elements of partition {lane} of {name} came too late and are left out",)
                if not self.watch.is_told(name, lane):
                    log.warning("elements came too late", mill=self.work.name, stream=name, partition=lane, count=count)
        return notes

    def tell_skipped(self, turn: Turn) -> None:
        """Once, when the streams are seen for the first time: they may begin at different keys."""
        is_first = turn.moves and not any(stretch.memory.seen for stretch in turn.stretches.values())
        skipped = begun_apart(self.planner.root, turn.lanes) if is_first else {}
        if skipped:
            log.info("streams begin at different keys, elements are skipped", mill=self.work.name, **skipped)

    def planned(self, stretches: Mapping[str, Stretch]) -> Turn:
        """The turn that can be done now, from the elements that are there."""
        found, windows = self.scouted(stretches), self.watch.timed
        if windows is None:
            return self.planner.plan(stretches, found)
        own = stretches[self.planner.root.name]
        windows.begin_at({lane: first for lane, (first, _) in own.ranges.items()})
        below = asked_below(self.planner, stretches, found)
        windows.take(own.unseen(self.session(), windows.seen, found.get(own.feed.name, {}), below))
        windows.poll()
        return plan_timed(self.planner, stretches, found, windows)

    def stretches(self, record: JobRecord, outlook: Outlook) -> dict[str, Stretch] | None:
        """What lies behind every mark; None if the mill has come to its end and nothing was added since."""
        feeds = self.planner.feeds
        memories = {name: remembered(record, name).in_terms_of(feed.expressions) for name, feed in feeds.items()}
        found = {name: Stretch(feed, outlook.sights[name].span, memories[name]) for name, feed in feeds.items()}
        self.watch.note(found)
        found = {name: replace(each, waiting=self.watch.waiting()) for name, each in found.items()}
        if not memories[self.planner.root.name].stopped:
            return found
        if not any(has_risen(stretch) for stretch in found.values()):
            self.watch.is_over = True
            return None
        self.watch.is_over = False
        return {name: replace(each, memory=each.memory.begun_anew()) for name, each in found.items()}

    def scouted(self, stretches: Mapping[str, Stretch]) -> dict[str, dict[int, Found]]:
        """The keys and ends of every stream that has any, all of them at once."""
        asked = [each for each in stretches.values() if each.unread and (each.feed.keys or each.feed.has_end_messages)]
        if not asked:
            return {}
        spark = self.session()
        with ThreadPoolExecutor(len(asked)) as pool:
            found = list(pool.map(lambda each: self.scouted_one(each, spark), asked))
        return {each.feed.name: own for each, own in zip(asked, found, strict=True)}

    def scouted_one(self, stretch: Stretch, spark: SparkSession) -> dict[int, Found]:
        in_runs = stretch.feed.name == self.planner.root.name and self.planner.is_in_runs(stretch)
        if stretch.unread is None:
            return {}
        try:
            rows = surveyed(stretch.feed, spark, stretch.unread, ordered=not in_runs)
            return scout(stretch.feed, self.watch.shelf.keep(stretch.feed, stretch.unread, rows), ordered=not in_runs)
        except Exception as error:
            raise (element_error_in(error) or error) from error

    def prepare(self, intent: Intent) -> Prepared:
        """The turn's output, from the spool if an earlier attempt finished it; nothing behind a returned end."""
        spark, spool = self.session(), Spool(str(intent.spool))
        try:
            counted = spool.counts() or self.ground(intent, spool, spark)
        except Exception as error:
            raise self.error_for(error, "spool", intent, spark) from error
        finally:
            self.watch.shelf.clear()
        rows = spool.read(spark)
        end = first_end(rows) if spool.holds(ENDS) else None
        kept = only_before(rows, end) if end else rows.where(f"not {ENDS}")
        output = with_end(kept) if end or self.stops(intent) else kept
        return Ground(Judgement(self.work.rules, output, intent.batch_time), (), counted, {}, end=end)

    def ground(self, intent: Intent, spool: Spool, spark: SparkSession) -> RowCounts:
        """Run the process function over the elements of the turn, once for this attempt."""
        shelf = self.watch.shelf
        frames = {
            name: shelf.elements(feed, spark, intent.spans[name]) if name in intent.spans else feed.nothing(spark)
            for name, feed in self.planner.feeds.items()
        }
        transform = self.work.transform
        numbered = replace(transform, number=intent.number) if isinstance(transform, Milling) else transform
        rows = numbered.apply(frames, job=self.work.name, attempt=intent.attempt, batch_time=intent.batch_time)
        spool.write(rows)
        counted = RowCounts(read=sum(elements_in(span) for span in intent.spans.values()))
        spool.finish(counted)
        return counted

    def cut_short(self, batch: OpenBatch[Outlook], prepared: Prepared, lease: HeldLease) -> OpenBatch[Outlook]:
        """Where the function returned the end of the stream, the marks stay behind the element that it did so for.

        The commit drops the marks of streams that are no longer in the tree.
        """
        left = replace(batch, record=self.without_gone(batch.record))
        if not isinstance(prepared, Ground) or prepared.end is None:
            return left
        intent = cut_at(prepared.end, batch.intent, self.planner)
        self.store.intend(replace(batch.record, intent=intent), expected=batch.record.number, lease=lease.lease)
        return replace(left, intent=intent)

    def without_gone(self, record: JobRecord) -> JobRecord:
        """The record, without streams that are no longer in the tree."""
        gone = sorted(record.marks.keys() - self.planner.feeds.keys())
        if not gone:
            return record
        log.info("streams are no longer in the tree, their marks are dropped", mill=self.work.name, streams=gone)
        return forgotten(record, gone)

    def fit(self, rows: DataFrame, sink: Sink, batch: Batch) -> DataFrame:
        """Only a sink that can send it on gets the end of the stream."""
        takes_end = isinstance(sink, EndTaking) and sink.takes_end()
        return super().fit(rows if takes_end else rows.where(f"not {ENDS}"), sink, batch)

    def error_for(self, error: Exception, sink: str, intent: Intent, spark: SparkSession) -> FloodmarkError:
        return element_error_in(error) or super().error_for(error, sink, intent, spark)

    def stops(self, intent: Intent) -> bool:
        """Whether the end of the streams is in this turn."""
        remember = intent.extras.remember or RecordExtras()
        return remember.source(self.planner.root.name).extras.get("stopped") is True


def with_pending(outlook: Outlook, sights: Mapping[str, Sight]) -> Outlook:
    """What the turn makes of the look, with all that a source wants remembered whether it is read or not."""
    pending = {name: sight.pending for name, sight in outlook.sights.items() if sight.pending}
    kept = {name: replace(sights.get(name, Sight(None)), pending=pending[name]) for name in pending}
    return replace(outlook, sights={**sights, **kept})


def remembered(record: JobRecord, name: str) -> Memory:
    """What the record holds of a stream."""
    return Memory.from_json(record.extras.part(name) or {})


def has_risen(stretch: Stretch) -> bool:
    """Whether a stream has elements that no turn has seen."""
    risen = any(upto > stretch.memory.seen.get(lane, 0) for lane, (_, upto) in stretch.ranges.items())
    return risen or stretch.memory.has_rest

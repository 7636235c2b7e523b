"""A turn of the mill: the step's own protocol, with spans that are cut by the horizon and an end that may come soon."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from floodmark.errors import FloodmarkError
from floodmark.hwm import Json
from floodmark.logs import get_logger
from floodmark.mill.ending import Returned, cut_at, first_end, only_before, with_end
from floodmark.mill.feeds import elements_in
from floodmark.mill.horizon import begun_apart
from floodmark.mill.lateness import count_late
from floodmark.mill.milling import ENDS, Milling
from floodmark.mill.mishaps import mishap_in
from floodmark.mill.planning import Planner, Turn, held
from floodmark.mill.progress import Watch
from floodmark.mill.remembering import Memory, forgotten
from floodmark.mill.scouting import Found, scout, surveyed
from floodmark.mill.stretches import Stretch
from floodmark.mill.timed_turns import asked_below, plan_timed
from floodmark.sinks.contract import Batch, Sink
from floodmark.sources.contract import Sight
from floodmark.step import Step, Work
from floodmark.step.batch import Prepared
from floodmark.step.judging import Judgement
from floodmark.step.looking import Outlook, look_once
from floodmark.step.spool import Counted, Spool
from floodmark.step.summary import Begun
from floodmark.stores.lease import HeldLease
from floodmark.stores.record import Intent, JobRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = get_logger(__name__)


@runtime_checkable
class EndTaking(Protocol):
    """A sink that sends on the end of a stream: it finds a row in which the column `_fm_ends` is true."""

    def takes_end(self) -> bool: ...


@dataclass(frozen=True)
class MillWork(Work):
    """The work of a mill; its function may give other output the second time, so every turn is spooled."""

    def needs_spool(self) -> bool:
        return True


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
        outlook = look_once(self.work, record, request, self.session)
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
            raise (mishap_in(error) or error) from error

    def prepare(self, begun: Begun) -> Prepared:
        """The turn's output, from the spool if an earlier attempt finished it; nothing behind a returned end."""
        spark, spool = self.session(), Spool(str(begun.batch.spool))
        try:
            counted = spool.counted() or self.ground(begun.batch, spool, spark)
        except Exception as error:
            raise self.explained(error, "spool", begun, spark) from error
        finally:
            self.watch.shelf.clear()
        rows = spool.read(spark)
        end = first_end(rows) if spool.holds(ENDS) else None
        kept = only_before(rows, end) if end else rows.where(f"not {ENDS}")
        output = with_end(kept) if end or self.stops(begun.batch) else kept
        return Ground(Judgement(self.work.rules, output, begun.batch.batch_time), (), counted, {}, end=end)

    def ground(self, intent: Intent, spool: Spool, spark: SparkSession) -> Counted:
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
        counted = Counted(read=sum(elements_in(span) for span in intent.spans.values()))
        spool.finish(counted)
        return counted

    def settled(self, begun: Begun, prepared: Prepared, lease: HeldLease) -> Begun:
        """Where the function returned the end of the stream, the marks stay behind the element that it did so for.

        The commit drops the marks of streams that are no longer in the tree.
        """
        left = replace(begun, record=self.without_gone(begun.record))
        if not isinstance(prepared, Ground) or prepared.end is None:
            return left
        intent = cut_at(prepared.end, begun.batch, self.planner)
        self.store.intend(replace(begun.record, intent=intent), expected=begun.record.number, lease=lease.lease)
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

    def explained(self, error: Exception, sink: str, begun: Begun, spark: SparkSession) -> FloodmarkError:
        return mishap_in(error) or super().explained(error, sink, begun, spark)

    def stops(self, intent: Intent) -> bool:
        """Whether the end of the streams is in this turn."""
        remember = intent.extras.get("remember")
        own = remember.get(self.planner.root.name) if isinstance(remember, dict) else None
        return isinstance(own, dict) and own.get("stopped") is True


def with_pending(outlook: Outlook, sights: Mapping[str, Sight]) -> Outlook:
    """What the turn makes of the look, with all that a source wants remembered whether it is read or not."""
    pending = {name: sight.pending for name, sight in outlook.sights.items() if sight.pending}
    kept = {name: replace(sights.get(name, Sight(None)), pending=pending[name]) for name in pending}
    return replace(outlook, sights={**sights, **kept})


def remembered(record: JobRecord, name: str) -> Memory:
    """What the record holds of a stream."""
    stored: Json = record.extras.get(name)
    return Memory.from_json(stored if isinstance(stored, dict) else {})


def has_risen(stretch: Stretch) -> bool:
    """Whether a stream has elements that no turn has seen."""
    risen = any(upto > stretch.memory.seen.get(lane, 0) for lane, (_, upto) in stretch.ranges.items())
    return risen or stretch.memory.has_rest

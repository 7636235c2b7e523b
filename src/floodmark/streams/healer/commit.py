"""The end of a turn: put aside what is given up, move the marks, and only then publish, and feed what follows healing.

What a turn leaves to read is here too: its receipt, and which records keep its marks from moving.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

from floodmark.errors import PublicationFailed
from floodmark.failpoints import reach
from floodmark.hwm import Json
from floodmark.logs import get_logger
from floodmark.probes.kafka import Place
from floodmark.probes.kafka.group import GroupOffsets
from floodmark.step.engine import Clock, OpenBatch, done
from floodmark.stores.contract import MarkStore
from floodmark.stores.lease import HeldLease
from floodmark.stores.record import Intent, JobRecord, Receipt
from floodmark.streams.elements import HealedElement, RecordId
from floodmark.streams.healer.dead_letters import DeadLetter, DeadLetters
from floodmark.streams.healer.progress import Progress, StreamProgress, extras_with, marks_with
from floodmark.streams.healer.turn import PartitionResult, Turn
from floodmark.streams.healer.unsettled import HeldRecords, TurnPlan, UnsettledRecords
from floodmark.streams.healing_step import Verdict
from floodmark.streams.policy import FailedRecords
from floodmark.streams.program import DriverRun, Program
from floodmark.streams.task.folder import StateFolder
from floodmark.streams.task.journal import FailedRecord, keep_failures
from floodmark.streams.task.kept import read_healed_rows

if TYPE_CHECKING:
    from floodmark.streams.healer import TurnLook

log = get_logger(__name__)
MOST_NOTES = 10


@dataclass
class TurnCommit:
    """What happens to the outcomes of a turn, in this order and no other."""

    store: MarkStore
    program: Program
    group: GroupOffsets
    unsettled_records: UnsettledRecords
    prints_records: bool = field(default=False, kw_only=True)
    now: Callable[[], float] = field(default=time.time, kw_only=True)

    @cached_property
    def driver(self) -> DriverRun:
        """What follows healing; it may hold elements from turn to turn."""
        return self.program.driver.start()

    @property
    def state(self) -> StateFolder:
        return self.unsettled_records.state

    def close(
        self, batch: OpenBatch[TurnLook], plan: TurnPlan, turn: Turn | None, lease: HeldLease, clock: Clock
    ) -> Receipt:
        """Commit the turn; what is only for others to know comes after it."""
        rows_dead = self.put_aside(turn, batch.intent.attempt) if turn else 0
        results = {place: turn.result(place) for place in plan.places} if turn else {}
        after = {**plan.progress, **{place: each.progress for place, each in results.items()}}
        record = record_after(batch.record, batch.intent, plan.progress, after)
        notes = stuck_lines(self.unsettled_records.failed_records(after), self.now())[:MOST_NOTES]
        receipt = receipt_of(batch.record, record, plan, results, clock, rows_dead=rows_dead, notes=notes)
        lease.check()
        reach("before_commit")
        self.store.commit(record, expected=batch.record.number, lease=lease.lease, receipt=receipt)
        reach("after_commit")
        self.report(plan, turn, after)
        refusal = self.publish(record)
        self.deliver(plan, after, refusal)
        self.tidy(plan, turn, results)
        if refusal is not None and not self.program.ignores:
            raise refusal
        return receipt

    def close_unhealed(self, record: JobRecord, plan: TurnPlan, turn: Turn, clock: Clock) -> Receipt:
        """The end of a turn that moves no mark: failures are logged, and nothing is remembered."""
        results = {place: turn.result(place) for place in plan.places}
        notes = stuck_lines({place: turn.failures(place) for place in plan.places}, self.now())[:MOST_NOTES]
        for note in notes:
            log.warning("a record failed", stream=self.group.group, record=note)
        self.tidy(plan, turn, {p: replace(each, progress=Progress.beginning(0)) for p, each in results.items()})
        return receipt_of(record, record, plan, results, clock, rows_dead=0, notes=notes)

    @property
    def dead_letters(self) -> DeadLetters:
        return DeadLetters(self.state.dead_letters, self.group.group)

    def fence(self, number: int, attempt: str) -> None:
        """A turn that was begun before is this attempt's from now on: a run that was paused in it gives nothing up."""
        if self.unsettled_records.budget.policy.puts_aside:
            self.dead_letters.fence(number, attempt)

    def put_aside(self, turn: Turn, attempt: str) -> int:
        """Keep what is given up as dead letters, if that is the policy; durable before the mark passes it."""
        records = self.unsettled_records.to_put_aside({place: turn.failures(place) for place in turn.plan.places})
        number = turn.plan.number
        letters = [letter_of(place, each, number) for place, own in records.items() for each in own]
        if letters:
            self.dead_letters.add(letters, attempt)
        for place, own in records.items():
            turn.mark_dead(place, [each.offset for each in own])
        return len(letters)

    def report(self, plan: TurnPlan, turn: Turn | None, after: StreamProgress) -> None:
        """A stream that cannot advance says so."""
        if turn is not None and self.prints_records:
            lines = [f"{p[0]} {p[1]} {offset}\n" for p in plan.places for offset in turn.taken_offsets(p)]
            sys.stdout.write("".join(lines))
        for place, own in self.unsettled_records.failed_records(after).items():
            first = own[min(own)]
            log.warning("a record waits", stream=self.group.group, record=stuck_line(place, first, self.now()))

    def publish(self, record: JobRecord) -> PublicationFailed | None:
        """The group's offsets in Kafka, for lag tools; returns why Kafka refused them, if it did."""
        offsets = {(topic, part): at for topic, mark in record.marks.items() for part, at in mark.value.items()}
        try:
            if self.program.asynchronous:
                self.group.publish_later(offsets)
            else:
                self.group.publish(offsets)
        except PublicationFailed as error:
            if self.program.ignores:
                log.warning(error.message, stream=self.group.group)
            return error
        return None

    def deliver(self, plan: TurnPlan, after: StreamProgress, refusal: PublicationFailed | None) -> None:
        """Give the results of healing to what follows it; what that raises is raised when all of them had theirs."""

        def verdict(record: RecordId) -> Verdict:
            place = record[:2]
            return verdict_of(record.offset, plan.progress[place], after[place], refusal)

        for place in plan.places:
            for healed in self.healed_rows(plan.number, place):
                self.driver.push(healed, verdict)
        for healed in read_healed_rows(self.state.stream_healed_rows(plan.number)):
            self.driver.push(healed, verdict)
        raise_first(self.driver.take_errors())

    def healed_rows(self, number: int, place: Place) -> Iterable[HealedElement]:
        """What one partition healed, in its order; records that ran side by side are put in order first."""
        files = self.state.all_healed_rows(number, place)
        rows = chain.from_iterable(map(read_healed_rows, files))
        is_scattered = self.program.tasks.scatters_at_once() is not None
        return sorted(rows, key=attrgetter("at")) if is_scattered else rows

    def tidy(self, plan: TurnPlan, turn: Turn | None, results: Mapping[Place, PartitionResult]) -> None:
        """Forget what the commit made needless; a crash before this leaves files that the next turn removes."""
        held = self.unsettled_records.held_records
        for place, result in results.items():
            held.pop(place, None)
            if result.held_offsets and turn is not None:
                held[place] = HeldRecords(plan.number, result.held_offsets, turn.due_at, plan.flushes)
            with self.state.lock(place):
                keep_failures(self.state.failures(place), frozenset(result.progress.unsettled_offsets()))
        needed = {self.state.carried_state(each.number) for each in held.values()}
        for path in (self.state.root / "carried").glob("*"):
            if path not in needed:
                path.unlink(missing_ok=True)
        if turn is not None and self.program.tasks.remembers:
            for path in self.state.memories.glob("*"):
                if path.name != str(plan.number):
                    path.unlink(missing_ok=True)
        shutil.rmtree(self.state.turns, ignore_errors=True)

    def tick(self) -> None:
        """A poll has passed: what follows healing goes on by the clock too."""
        self.driver.tick()
        raise_first(self.driver.take_errors())

    def end(self) -> None:
        """The stream stops: what follows healing lets go, and what is under way to Kafka arrives."""
        self.driver.flush()
        raise_first(self.driver.take_errors())
        try:
            self.group.flush()
        except PublicationFailed as error:
            if not self.program.ignores:
                raise
            log.warning(error.message, stream=self.group.group)
        finally:
            self.group.close()


def record_after(record: JobRecord, intent: Intent, before: StreamProgress, after: StreamProgress) -> JobRecord:
    """The record once the turn is done: marks and what is settled above them move together, the intent is closed."""
    return replace(
        record,
        number=intent.number,
        marks=marks_with(record, before, after),
        sources={**record.sources, **(intent.extras.sources or {})},
        extras=extras_with(record, after),
        intent=None,
        origin="commit",
        modified_time=datetime.now(timezone.utc),
    )


def receipt_of(
    before: JobRecord,
    after: JobRecord,
    plan: TurnPlan,
    results: Mapping[Place, PartitionResult],
    clock: Clock,
    *,
    rows_dead: int,
    notes: Sequence[str],
) -> Receipt:
    """What a turn did."""
    own = results.values()
    reads = sorted(plan.reads.items())
    span: dict[str, Json] = {f"{topic}/{part}": [low, high] for (topic, part), (low, high) in reads}
    return replace(
        done(before, after.number, after.marks, clock),
        rows_read=sum(each.rows_taken for each in own),
        rows_written={"healed": sum(each.rows_healed for each in own)},
        rows_refused=sum(each.rows_dropped for each in own),
        rows_dead=rows_dead,
        rows_held_back=sum(each.rows_failed + len(each.held_offsets) for each in own),
        span=span,
        notes=tuple(notes),
    )


def stuck_lines(failed: FailedRecords, now: float) -> list[str]:
    """Which records keep the marks from moving, the first of each partition before the others."""
    every = [(place, each) for place, own in failed.items() for each in own.values()]
    firsts = {place: min(own) for place, own in failed.items() if own}
    ordered = sorted(every, key=lambda entry: (entry[1].offset != firsts[entry[0]], entry[0], entry[1].offset))
    return [stuck_line(place, each, now) for place, each in ordered]


def stuck_line(place: Place, failed: FailedRecord, now: float) -> str:
    """One of them: where it is, since when, how often it was tried, and why it failed."""
    age, times = round(now - failed.first_at), failed.attempts
    attempts = f"{times} attempts" if times > 1 else "1 attempt"
    return f"{place[0]}/{place[1]}, offset {failed.offset}, since {age} s, {attempts}: {failed}"


def verdict_of(offset: int, before: Progress, after: Progress, refusal: PublicationFailed | None) -> Verdict:
    """What healing says of a record: success, once the mark has passed it."""
    if offset < before.mark:
        return Verdict(False, "already committed")
    if offset >= after.mark:
        return Verdict(False, f"waiting for offset {after.mark}")
    if refusal is not None:
        return Verdict(False, f"commit failed: {refusal.reason}")
    return Verdict(True, "committed")


def letter_of(place: Place, failed: FailedRecord, number: int) -> DeadLetter:
    """A failed record as the turn of this number puts it aside."""
    return DeadLetter(
        record=RecordId(*place, failed.offset),
        **failed.raw._asdict(),
        step=failed.step,
        error=failed.error,
        attempts=failed.attempts,
        first_at=failed.first_at,
        last_at=failed.last_at,
        number=number,
    )


def raise_first(errors: list[BaseException]) -> None:
    """What user code raised in the driver; the others are in the log."""
    for error in errors[1:]:
        log.error("a step after healing raised", error=repr(error))
    if errors:
        raise errors[0]

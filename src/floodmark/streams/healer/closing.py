"""The end of a turn: bury what is given up, move the marks, and only then tell Kafka, and whatever follows healing."""

from __future__ import annotations

import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from floodmark.errors import PublicationFailed
from floodmark.failpoints import reach
from floodmark.hwm import HWM, Json
from floodmark.logs import get_logger
from floodmark.probes.kafka import Place
from floodmark.step.engine import Clock
from floodmark.step.work import display_marks
from floodmark.stores.contract import MarkStore
from floodmark.stores.lease import HeldLease
from floodmark.stores.record import JobRecord, Receipt
from floodmark.streams.elements import RecordId
from floodmark.streams.healer import journal as failures
from floodmark.streams.healer.dead_letters import DeadLetter, DeadLetters
from floodmark.streams.healer.journal import Failed, StateFolder, read_arrivals
from floodmark.streams.healer.looking import GroupOffsets
from floodmark.streams.healer.progress import Progress, Range, extras_with, marks_with
from floodmark.streams.healer.turn import Agenda, Tallied, Turn
from floodmark.streams.healer.unsettled import FailedRecords, Held, Ward
from floodmark.streams.program import DriverRun, Program, Verdict

log = get_logger(__name__)


# What a turn of a stream leaves to read: its receipt, and which records keep its marks from moving.
def receipt_of(
    record: JobRecord,
    marks: Mapping[str, HWM[Any]],
    reads: Mapping[Place, Range],
    tallied: Iterable[Tallied],
    clock: Clock,
    *,
    dead: int,
    notes: Sequence[str],
) -> Receipt:
    """What a turn did."""
    own = tuple(tallied)
    span: dict[str, Json] = {f"{topic}/{part}": [low, high] for (topic, part), (low, high) in sorted(reads.items())}
    return Receipt(
        job=record.job,
        run=uuid.uuid4().hex[:12],
        status="done",
        started=clock.started,
        seconds=clock.elapsed(),
        batches=1,
        number=record.intent.number if record.intent else record.number,
        rows_read=sum(each.taken for each in own),
        rows_written={"healed": sum(each.healed for each in own)},
        rows_refused=sum(each.dropped for each in own),
        rows_dead=dead,
        rows_held_back=sum(each.failed + len(each.held) for each in own),
        mark_before=display_marks(record.marks),
        mark_after=display_marks(marks),
        span=span,
        durations=dict(clock.seconds),
        notes=tuple(notes),
    )


def stuck_lines(failed: FailedRecords, now: float) -> list[str]:
    """Which records keep the marks from moving, the first of each partition before the others."""
    every = [(place, each) for place, own in failed.items() for each in own.values()]
    firsts = {place: min(own) for place, own in failed.items() if own}
    ordered = sorted(every, key=lambda entry: (entry[1].offset != firsts[entry[0]], entry[0], entry[1].offset))
    return [stuck_line(place, each, now) for place, each in ordered]


def stuck_line(place: Place, failed: Failed, now: float) -> str:
    """One of them: where it is, since when, how often it was tried, and why it failed."""
    age, times = round(now - failed.first_at), failed.attempts
    tried = f"{times} attempts" if times > 1 else "1 attempt"
    return f"{place[0]}/{place[1]}, offset {failed.offset}, since {age} s, {tried}: {failed}"


MOST_NOTES = 10


@dataclass
class Closing:
    """What happens to the outcomes of a turn, in this order and no other."""

    store: MarkStore
    program: Program
    group: GroupOffsets
    state: StateFolder
    tells_every_record: bool = False
    now: Callable[[], float] = time.time
    driver: DriverRun = field(init=False)

    def __post_init__(self) -> None:
        self.driver = self.program.driver.start()

    def close(
        self, begun: JobRecord, agenda: Agenda, turn: Turn | None, ward: Ward, lease: HeldLease, clock: Clock
    ) -> Receipt:
        """Commit the turn; what is only for others to know comes after it."""
        dead = self.bury(turn, ward) if turn else 0
        tallied = {place: turn.tally(place) for place in agenda.places} if turn else {}
        after = {**agenda.standing, **{place: each.progress for place, each in tallied.items()}}
        record = committed(begun, agenda.standing, after)
        notes = stuck_lines(ward.failed(after), self.now())[:MOST_NOTES]
        receipt = receipt_of(begun, record.marks, agenda.reads, tallied.values(), clock, dead=dead, notes=notes)
        lease.check()
        reach("before_commit")
        self.store.commit(record, expected=begun.number, lease=lease.lease, receipt=receipt)
        reach("after_commit")
        self.tell(agenda, turn, ward, after)
        refused = self.publish(record)
        self.deliver(agenda, after, refused)
        self.tidy(agenda, turn, ward, tallied)
        if refused is not None and not self.program.ignores:
            raise refused
        return receipt

    def close_unhealed(self, record: JobRecord, agenda: Agenda, turn: Turn, ward: Ward, clock: Clock) -> Receipt:
        """The end of a turn that moves no mark: failures are told, and nothing is remembered."""
        tallied = {place: turn.tally(place) for place in agenda.places}
        failed = {place: turn.failing(place) for place in agenda.places}
        notes = stuck_lines(failed, self.now())[:MOST_NOTES]
        for note in notes:
            log.warning("a record failed", stream=self.group.group, record=note)
        self.tidy(agenda, turn, ward, {p: replace(each, progress=Progress(0, 0)) for p, each in tallied.items()})
        return receipt_of(record, record.marks, agenda.reads, tallied.values(), clock, dead=0, notes=notes)

    def bury(self, turn: Turn, ward: Ward) -> int:
        """Put aside what is given up, if that is the policy; durable before the mark passes it."""
        if ward.tries.policy.then != "dead_letter":
            return 0
        given_up = ward.tries.given_up({place: turn.failing(place) for place in turn.agenda.places})
        letters = [letter(place, each) for place, own in given_up.items() for each in own]
        if letters:
            DeadLetters(self.state.dead).add(letters)
        for place, own in given_up.items():
            turn.bury(place, [each.offset for each in own])
        return len(letters)

    def tell(self, agenda: Agenda, turn: Turn | None, ward: Ward, after: Mapping[Place, Progress]) -> None:
        """A stream that cannot advance says so."""
        if turn is not None and self.tells_every_record:
            lines = [f"{p[0]} {p[1]} {offset}\n" for p in agenda.places for offset in turn.delivered(p)]
            sys.stdout.write("".join(lines))
        for place, own in ward.failed(after).items():
            first = own[min(own)]
            log.warning("a record waits", stream=self.group.group, record=stuck_line(place, first, self.now()))

    def publish(self, record: JobRecord) -> PublicationFailed | None:
        """The group's offsets in Kafka, for lag tools."""
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

    def deliver(self, agenda: Agenda, after: Mapping[Place, Progress], refused: PublicationFailed | None) -> None:
        """Give the results of healing to what follows it; what that raises is raised when all of them had theirs."""

        def verdict(record: RecordId) -> Verdict:
            place = record[:2]
            return verdict_of(record.offset, agenda.standing[place], after[place], refused)

        for place in agenda.places:
            for arrival in read_arrivals(self.state.arrivals(agenda.number, place)):
                self.driver.push(arrival, verdict)
        raise_first(self.driver.take_errors())

    def tidy(self, agenda: Agenda, turn: Turn | None, ward: Ward, tallied: Mapping[Place, Tallied]) -> None:
        """Forget what the commit made needless; a crash before this leaves files that the next turn removes."""
        for place, each in tallied.items():
            ward.held.pop(place, None)
            if each.held and turn is not None:
                ward.held[place] = Held(agenda.number, each.held, turn.due_at.get(place))
            with self.state.alone_with(place):
                failures.keep_only(self.state.failures(place), frozenset(each.progress.unsettled()))
        kept = {self.state.carried(held.number, place) for place, held in ward.held.items()}
        for path in (self.state.root / "carried").glob("*"):
            if path not in kept:
                path.unlink(missing_ok=True)
        shutil.rmtree(self.state.turns, ignore_errors=True)

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


def committed(begun: JobRecord, before: Mapping[Place, Progress], after: Mapping[Place, Progress]) -> JobRecord:
    """The record once the turn is done: marks and what is settled above them move together, the intent is closed."""
    intent = begun.intent
    if intent is None:
        raise LookupError("a turn is closed that was not begun")
    return replace(
        begun,
        number=intent.number,
        marks=marks_with(begun, before, after),
        sources={**begun.sources, **(intent.extras.sources or {})},
        extras=extras_with(begun, after),
        intent=None,
        origin="commit",
        modified_time=datetime.now(timezone.utc),
    )


def verdict_of(offset: int, before: Progress, after: Progress, refused: PublicationFailed | None) -> Verdict:
    """What healing says of a record: success, once the mark has passed it."""
    if offset < before.mark:
        return Verdict(False, "already committed")
    if offset >= after.mark:
        return Verdict(False, f"waiting for offset {after.mark}")
    if refused is not None:
        return Verdict(False, f"commit failed: {refused.reason}")
    return Verdict(True, "committed")


def letter(place: Place, failed: Failed) -> DeadLetter:
    """A failed record as it is put aside."""
    raw = failed.raw
    return DeadLetter(
        record=RecordId(*place, failed.offset),
        key=raw.key,
        value=raw.value,
        headers=raw.headers,
        timestamp=raw.timestamp,
        step=failed.step,
        error=failed.error,
        attempts=failed.attempts,
        first_at=failed.first_at,
        last_at=failed.last_at,
    )


def raise_first(errors: list[BaseException]) -> None:
    """What user code raised in the driver; the others are in the log."""
    for error in errors[1:]:
        log.error("a step after healing raised", error=repr(error))
    if errors:
        raise errors[0]

"""Healing a stream, turn by turn: look, hold the lease, run what is new and what is due again, then move the mark."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from floodmark.failpoints import reach
from floodmark.logs import get_logger
from floodmark.probes.kafka import Offsets, Place
from floodmark.sources.contract import Session
from floodmark.step.engine import LONGEST_MARK_SHOWN, Clock, nothing_new, session_under
from floodmark.step.work import display_marks
from floodmark.stores.contract import MarkStore
from floodmark.stores.extras import IntentExtras
from floodmark.stores.lease import HeldLease, hold
from floodmark.stores.record import Intent, JobRecord, Receipt
from floodmark.streams.healer.closing import Closing, stuck_lines
from floodmark.streams.healer.journal import StateFolder
from floodmark.streams.healer.looking import Lookout, Outlook, reads_in
from floodmark.streams.healer.progress import Progress, extras_with, standing_in
from floodmark.streams.healer.turn import Agenda, Order, Turn
from floodmark.streams.healer.unsettled import Tries, Ward
from floodmark.streams.healing_step import OnError
from floodmark.streams.program import Program

log = get_logger(__name__)


@dataclass(frozen=True)
class Reach:
    """How far a turn may go: up to these offsets, if any are given; there, steps let go what they hold if asked to."""

    upto: Offsets | None = None
    flushes: bool = False


@dataclass
class Healer:
    """One stream, one store, one session. A turn is one batch: an intent, jobs on Spark, and one commit."""

    group: str
    program: Program
    lookout: Lookout
    store: MarkStore
    session: Session
    state: StateFolder
    policy: OnError
    closing: Closing
    rows_at_once: int | None = None
    side_by_side: int | None = None
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    known: JobRecord | None = None
    passed: dict[Place, Progress] = field(default_factory=dict)
    now: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self.ward = Ward(self.state, Tries(self.policy))

    def begin(self) -> None:
        """A run begins: records that failed in earlier ones are tried again."""
        record = self.read()
        mark = str(display_marks(record.marks))[:LONGEST_MARK_SHOWN]
        log.info("using the mark", stream=self.group, mark=mark, number=record.number, store=self.store.describe())
        self.ward.begin({*self.standing(), *standing_in(planned(record), self.lookout.topics)})

    def turn(self, limit: Reach) -> Receipt:
        """Do what there is to do now; `nothing_new` if that is nothing, and then no lease is taken."""
        clock, record = Clock(), self.read()
        if not self.program.heals:
            return self.turn_unhealed(record, limit, clock)
        outlook = None if record.intent else self.look(record, limit)
        if outlook and self.agenda(record, outlook, limit).is_empty and not outlook.is_beginning:
            return nothing_new(record, outlook, clock)
        with hold(self.store, self.group) as lease:
            return self.turn_held(record, outlook, limit, lease, clock)

    def turn_held(
        self, seen: JobRecord, outlook: Outlook | None, limit: Reach, lease: HeldLease, clock: Clock
    ) -> Receipt:
        """The part that only one process of a group may do at a time."""
        record = self.read()
        if record is not seen or record.intent is not None:
            outlook = None
        begun, agenda = self.recover(record, lease) or self.plan(record, outlook, limit, lease)
        if begun.intent is None:
            return nothing_new(record, outlook, clock)
        reach("after_intent")
        turn = None if agenda.is_empty else self.heal(agenda, session_under(lease, self.session))
        reach("after_read")
        return self.closing.close(begun, agenda, turn, self.ward, lease, clock)

    def turn_unhealed(self, record: JobRecord, limit: Reach, clock: Clock) -> Receipt:
        """A turn of a stream without healing: nothing is ever done, so this process alone knows how far it has read."""
        seen = replace(record, marks={}, intent=None, extras=extras_with(record, self.passed))
        outlook = self.look(seen, limit)
        agenda = self.agenda(record, outlook, limit)
        if agenda.is_empty:
            self.passed = dict(outlook.standing)
            return nothing_new(record, outlook, clock)
        with hold(self.store, self.group) as lease:
            turn = self.heal(replace(agenda, again={}), session_under(lease, self.session))
            ends = {place: upto for place, (_, upto) in agenda.reads.items()}
            self.passed = {p: Progress.beginning(ends.get(p, each.reached)) for p, each in agenda.standing.items()}
            return self.closing.close_unhealed(record, agenda, turn, self.ward, clock)

    def read(self) -> JobRecord:
        """The record as it is now: the very object seen last, if nobody changed it; a blank one if there is none."""
        stored = self.store.read(self.group, self.known)
        blank = JobRecord(self.group)
        self.known = stored or (self.known if self.known == blank else blank)
        return self.known or blank

    def look(self, record: JobRecord, limit: Reach) -> Outlook:
        standing = standing_in(record, self.lookout.topics)
        return self.lookout.look(record, self.ward.to_read_again(standing), limit.upto)

    def agenda(self, record: JobRecord, outlook: Outlook, limit: Reach) -> Agenda:
        """What the next turn does, by what was seen."""
        ends = limit.upto or outlook.ends
        done = {place: outlook.reads.get(place, (0, each.reached))[1] for place, each in outlook.standing.items()}
        flushes = limit.flushes and all(done[place] >= ends.get(place, 0) for place in done)
        failed = self.ward.failed(outlook.standing)
        visits = self.ward.held.keys() if flushes else self.ward.due_places(self.now())
        return Agenda(
            number=record.number + 1,
            standing=outlook.standing,
            reads=outlook.reads,
            again=self.ward.tries.due(failed, self.now()),
            visits=frozenset(visits) - frozenset(outlook.reads),
            held=self.ward.held_offsets(),
            flushes=flushes,
        )

    def recover(self, record: JobRecord, lease: HeldLease) -> tuple[JobRecord, Agenda] | None:
        """The open batch under a new attempt: the same span, and what its journals say is settled stays so."""
        intent = record.intent
        if intent is None:
            return None
        self.lookout.require_same(intent.extras.sources or {})
        again = replace(intent, attempt=uuid.uuid4().hex[:12])
        log.info("finishing an open batch", stream=self.group, number=intent.number)
        self.store.intend(replace(record, intent=again), expected=record.number, lease=lease.lease)
        standing = standing_in(planned(record), self.lookout.topics)
        agenda = Agenda(
            number=intent.number,
            standing=standing,
            reads=reads_in(intent.spans),
            again=self.ward.tries.due(self.ward.failed(standing), self.now()),
            held=self.ward.held_offsets(),
            flushes=bool(intent.extras.flushes),
        )
        return replace(record, intent=again), agenda

    def plan(
        self, record: JobRecord, outlook: Outlook | None, limit: Reach, lease: HeldLease
    ) -> tuple[JobRecord, Agenda]:
        """Fix what the turn reads and make it durable before the first record runs."""
        seen = outlook or self.look(record, limit)
        agenda = self.agenda(record, seen, limit)
        if agenda.is_empty and not seen.is_beginning:
            return record, agenda
        healing = extras_with(record, seen.standing).healing
        intent = Intent(
            number=agenda.number,
            kind="batch",
            spans=seen.spans(),
            batch_time=datetime.now(timezone.utc),
            attempt=uuid.uuid4().hex[:12],
            spool=None,
            fingerprints={"the program": self.program.fingerprint()},
            extras=IntentExtras(sources=seen.sources, healing=healing, flushes=agenda.flushes),
        )
        begun = replace(record, intent=intent)
        self.store.intend(begun, expected=record.number, lease=lease.lease)
        return begun, agenda

    def ends(self) -> dict[Place, int]:
        """Where the topics end now."""
        probe = self.lookout.probe
        return {place: seen.stable for place, seen in probe.bounds(probe.topics(self.lookout.topics).values()).items()}

    def standing(self) -> dict[Place, Progress]:
        return standing_in(self.read(), self.lookout.topics)

    def given_up(self) -> list[str]:
        """Records that keep the mark where it is and are not tried again in this run, told in one line each."""
        given_up = self.ward.tries.given_up(self.ward.failed(self.standing()))
        return stuck_lines({p: {each.offset: each for each in own} for p, own in given_up.items()}, self.now())

    def seconds_until_due(self) -> float | None:
        """How long until a record runs again, or the clock lets go what is held; None if neither will be."""
        due_at = self.ward.next_due_at(self.standing())
        return None if due_at is None else max(due_at - self.now(), 0.0)

    def heal(self, agenda: Agenda, session: Session) -> Turn:
        """Run the agenda on Spark."""
        turn = Turn(self.group, agenda, self.order(agenda), self.lookout.options, session(), self.side_by_side)
        turn.run()
        return turn

    def order(self, agenda: Agenda) -> Order:
        """The agenda in the words of the tasks."""
        return Order(
            folder=self.state.root,
            number=agenda.number,
            run=self.run,
            plan=self.program.tasks,
            lows={place: agenda.standing[place].mark for place in agenda.places},
            # One at least, or records that have to be read again would never be.
            room={place: max(agenda.standing[place].free_ranges, 1) for place in agenda.places},
            carried=self.ward.carried_from(),
            rows_at_once=self.rows_at_once,
            flushes=agenda.flushes,
        )


def planned(record: JobRecord) -> JobRecord:
    """The record as its open batch saw it: a first batch has chosen where partitions begin."""
    if record.intent is None:
        return record
    return replace(record, extras=record.extras.with_healing(record.intent.extras.healing or {}))

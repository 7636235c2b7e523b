"""Healing a stream, turn by turn, in the frame of every batch (`step.engine`): the healer fills in its verbs.

What a turn does on Spark is in `turn`, how it ends in `commit`, and which records wait in `unsettled`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from floodmark.failpoints import reach
from floodmark.probes.kafka import Place
from floodmark.sources.contract import Session
from floodmark.step.engine import Clock, Engine, OpenBatch, nothing_new, session_under
from floodmark.step.intents import new_attempt
from floodmark.stores.extras import IntentExtras
from floodmark.stores.lease import HeldLease, hold
from floodmark.stores.record import Intent, JobRecord, Receipt
from floodmark.stores.run_logs import begin_log, keeping_log
from floodmark.streams.healer.commit import TurnCommit, stuck_lines
from floodmark.streams.healer.looking import StreamOutlook, TopicLook, reads_in
from floodmark.streams.healer.progress import Progress, extras_with, planned_progress, progress_in
from floodmark.streams.healer.turn import Turn
from floodmark.streams.healer.unsettled import TurnLimit, TurnPlan, UnsettledRecords
from floodmark.streams.program import Program
from floodmark.streams.task import TaskPlan
from floodmark.streams.task.stream import DriverState


@dataclass(frozen=True)
class TurnLook:
    """What a look saw, and what the next turn does about it."""

    outlook: StreamOutlook
    plan: TurnPlan

    @property
    def is_empty(self) -> bool:
        """A stream that begins has a turn though it may read nothing: where its partitions begin is saved by it."""
        return self.plan.is_empty and not self.outlook.is_beginning

    @property
    def held_back(self) -> int:
        return self.outlook.held_back

    @property
    def idle_notes(self) -> tuple[str, ...]:
        return self.outlook.idle_notes


@dataclass(frozen=True)
class Healer(Engine[TurnLook]):
    """One stream, one store, one session. A turn is one batch: an intent, jobs on Spark, and one commit.

    What outlives a turn is in `commit`, `unsettled_records` and `unhealed_progress`, which copies share: each turn runs
    on a copy that has its limit.
    """

    topic_look: TopicLook
    commit: TurnCommit
    rows_at_once: int | None = None
    side_by_side: int | None = None
    flushes_at_end: bool = True
    """Whether steps let go what they hold when a run ends; else those records wait for the next one."""
    limit: TurnLimit = field(default_factory=TurnLimit)
    run_id: str = field(default_factory=new_attempt)
    unhealed_progress: dict[Place, Progress] = field(default_factory=dict)
    """How far a stream without healing was read: this process alone knows, for nothing of it is ever done."""
    driver_state: DriverState = field(default_factory=DriverState)
    now: Callable[[], float] = time.time

    @property
    def job(self) -> str:
        """The consumer group names the stream and its marks."""
        return self.topic_look.group

    @property
    def program(self) -> Program:
        return self.commit.program

    @property
    def unsettled_records(self) -> UnsettledRecords:
        return self.commit.unsettled_records

    def begin(self) -> None:
        """A run begins: records that failed in earlier ones are tried again."""
        record, topics = self.read(), self.topic_look.topics
        super().log_mark(record)
        self.unsettled_records.begin({*progress_in(record, topics), *planned_progress(record, topics)})

    def log_mark(self, record: JobRecord) -> None:
        """Once for a run, in `begin`: a stream has many turns."""

    def turn(self, limit: TurnLimit) -> Receipt:
        """Do what there is to do now; `nothing_new` if that is nothing, and then no lease is taken."""
        healer = replace(self, limit=limit)
        return healer.run() if self.program.heals else healer.run_unhealed()

    def look(self, record: JobRecord) -> TurnLook:
        """What is new in the topics, has to be read again, or is due again."""
        waiting = self.unsettled_records.to_read_again(progress_in(record, self.topic_look.topics))
        outlook = self.topic_look.look(record, waiting, self.limit.upto)
        return TurnLook(outlook, self.unsettled_records.plan(record.number + 1, outlook, self.limit, self.now()))

    def recover(self, record: JobRecord) -> OpenBatch[TurnLook] | None:
        """The open turn under a new attempt: the same span, and what its journals say is settled stays so."""
        if record.intent is None:
            return None
        self.topic_look.require_same(record.intent.extras.sources or {})
        again = replace(record.intent, attempt=new_attempt())
        self.commit.fence(again.number, again.attempt)
        return OpenBatch(record, again, None)

    def plan(self, record: JobRecord, look: TurnLook) -> OpenBatch[TurnLook]:
        """Fix what the turn reads, and where the partitions stand before it."""
        healing = extras_with(record, look.outlook.progress).healing
        intent = Intent(
            number=look.plan.number,
            kind="batch",
            spans=look.outlook.spans(),
            batch_time=datetime.now(timezone.utc),
            attempt=new_attempt(),
            spool=None,
            fingerprints={"the program": self.program.fingerprint()},
            extras=IntentExtras(sources=look.outlook.sources, healing=healing, flushes=look.plan.flushes),
        )
        return OpenBatch(record, intent, look)

    def carry_out(self, batch: OpenBatch[TurnLook], lease: HeldLease, clock: Clock) -> Receipt:
        """Run the records of the turn, and move the marks past what is settled."""
        plan = batch.look.plan if batch.look else self.plan_of_open_turn(batch.record, batch.intent)
        turn = None if plan.is_empty else self.heal(plan, self.session)
        reach("after_read")
        return self.commit.close(batch, plan, turn, lease, clock)

    def plan_of_open_turn(self, record: JobRecord, intent: Intent) -> TurnPlan:
        """What a turn that was cut off has to do still."""
        progress, reads = planned_progress(record, self.topic_look.topics), reads_in(intent.spans)
        flushes = bool(intent.extras.flushes)
        return self.unsettled_records.plan_again(intent.number, progress, reads, self.now(), flushes=flushes)

    def run_unhealed(self) -> Receipt:
        """A turn of a stream without healing: its mark never moves, and there is nothing to finish after a crash."""
        clock = Clock()
        with keeping_log(self.store, self.job, clock.run):
            return self.run_unhealed_timed(clock)

    def run_unhealed_timed(self, clock: Clock) -> Receipt:
        """The turn, with what it logs kept under the id of the clock."""
        record = self.read()
        look = self.look(replace(record, marks={}, intent=None, extras=extras_with(record, self.unhealed_progress)))
        if look.plan.is_empty:
            self.unhealed_progress.update(look.outlook.progress)
            return nothing_new(record, look, clock)
        with hold(self.store, self.job) as lease:
            begin_log()
            plan = replace(look.plan, retries={})
            turn = self.heal(plan, session_under(lease, self.session))
            for place, progress in plan.progress.items():
                upto = plan.reads.get(place, (0, progress.read_upto))[1]
                self.unhealed_progress[place] = Progress.beginning(upto)
            return self.commit.close_unhealed(record, plan, turn, clock)

    def heal(self, plan: TurnPlan, session: Session) -> Turn:
        """Run the plan on Spark."""
        options, at_once = self.topic_look.options, self.side_by_side
        turn = Turn(self.job, plan, self.task_plan(plan), options, session(), at_once, self.driver_state)
        turn.run()
        return turn

    def task_plan(self, plan: TurnPlan) -> TaskPlan:
        """The plan in the words of the tasks."""
        return TaskPlan(
            folder=self.unsettled_records.state.root,
            number=plan.number,
            run=self.run_id,
            plan=self.program.tasks,
            lows={place: plan.progress[place].mark for place in plan.places},
            # One at least, or records that have to be read again would never be.
            room={place: max(plan.progress[place].free_ranges, 1) for place in plan.places},
            carried_from=self.unsettled_records.carried_from(),
            rows_at_once=self.rows_at_once,
            program=self.program.fingerprint(),
            flushes=plan.flushes,
        )

    def progress(self) -> dict[Place, Progress]:
        """Where the partitions stand now."""
        return progress_in(self.read(), self.topic_look.topics)

    def stuck_records(self) -> list[str]:
        """Records that keep the mark where it is and are not tried again in this run, described in one line each."""
        return stuck_lines(self.unsettled_records.spent_records(self.progress()), self.now())

    def seconds_until_due(self) -> float | None:
        """How long until a record runs again, or the clock lets go what is held; None if neither will be."""
        due_at = self.unsettled_records.next_due_at(self.progress())
        return None if due_at is None else max(due_at - self.now(), 0.0)

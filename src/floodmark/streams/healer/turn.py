"""One turn of a stream on Spark: the records of a span, and those that are due again, run until all have outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, HealingFailed
from floodmark.logs import get_logger
from floodmark.probes.kafka import Place
from floodmark.probes.kafka.client import KafkaOptions
from floodmark.sources.kafka.reading import COLUMNS, KafkaReading
from floodmark.step.transform import first_lines
from floodmark.streams.healer.progress import Progress, Range
from floodmark.streams.healer.unsettled import TurnPlan
from floodmark.streams.policy import FailedRecords
from floodmark.streams.task import (
    SUMMARY,
    TaskPlan,
    healing_task,
    rows_from_copies,
    rows_from_kafka,
    rows_without_records,
)
from floodmark.streams.task import journal as states
from floodmark.streams.task.journal import FailedRecord, Journal, StateFolder, create_journal, read_failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


log = get_logger(__name__)


@dataclass(frozen=True)
class PartitionResult:
    """What a turn did to one partition."""

    progress: Progress
    rows_healed: int
    rows_dropped: int
    rows_failed: int
    rows_taken: int
    held_offsets: frozenset[int]


@dataclass
class Turn:
    """A turn at work; hold the lease of its stream."""

    stream: str
    plan: TurnPlan
    tasks: TaskPlan
    options: KafkaOptions
    spark: SparkSession
    side_by_side: int | None = None
    stopped_at: dict[Place, int] = field(default_factory=dict)
    due_at: dict[Place, float] = field(default_factory=dict)

    @property
    def state(self) -> StateFolder:
        return self.tasks.state

    def run(self) -> None:
        """Everything in the plan. Raises HealingFailed if Spark could not do it; journalled outcomes stay."""
        self.require_no_speculation()
        try:
            self.run_all()
        except TimeoutError as error:  # a worker of a run that was killed still holds a partition
            raise HealingFailed(self.stream, reason=str(error)) from error

    def require_no_speculation(self) -> None:
        """Raise ConfigError where Spark may start a second copy of a task that is slow."""
        if (self.spark.conf.get("spark.speculation", "false") or "").lower() == "true":
            raise ConfigError(
                "spark.speculation is on: a record could run twice at the same time.",
                hint="set spark.speculation=false for streams that heal",
            )

    def run_all(self) -> None:
        """What a killed driver left first, then what failed before, what is new, and what only the clock lets go."""
        plan = self.plan
        self.prepare()
        self.recover()
        if plan.retries:
            attempts = {p: {o: each.attempts + 1 for o, each in own.items()} for p, own in plan.retries.items()}
            self.heal(lambda: self.rows_of_copies(plan.retries), replace(self.tasks, attempts=attempts), plan.retries)
        if plan.reads:
            self.heal(lambda: self.rows_of_topics(plan.reads), self.tasks, plan.reads)
        if plan.visits:
            self.heal(lambda: self.rows_of_visits(plan.visits), self.tasks, plan.visits)

    def prepare(self) -> None:
        """Make the journals of a turn that begins; those of one that was begun before are there."""
        self.state.prepare(self.tasks.number)
        for place in self.plan.places:
            progress = self.plan.progress[place]
            upto = max(progress.read_upto, self.plan.reads.get(place, (0, 0))[1])
            create_journal(self.state.states(self.tasks.number, place), progress.mark, upto, self.earlier_states(place))

    def earlier_states(self, place: Place) -> list[tuple[int, int, int]]:
        """What is known of the records of a partition before the turn: ranges of offsets with their state."""
        settled = [(low, high, states.EARLIER) for low, high in self.plan.progress[place].settled_ranges]
        failed = [(offset, offset + 1, states.FAILED) for offset in self.earlier_failures(place)]
        held = [(offset, offset + 1, states.HELD) for offset in self.plan.held_offsets.get(place, ())]
        return [*settled, *failed, *held]

    def earlier_failures(self, place: Place) -> list[int]:
        """The records that had failed, and waited, before the turn."""
        read_upto = self.plan.progress[place].read_upto
        return [offset for offset in self.failed_records(place) if offset < read_upto]

    def failed_records(self, place: Place) -> dict[int, FailedRecord]:
        """The records of a partition that failed and were not settled since."""
        progress = self.plan.progress[place]
        failed = read_failures(self.state.failures(place))
        return {offset: each for offset, each in failed.items() if not progress.is_settled(offset)}

    def recover(self) -> None:
        """What a killed driver left: nobody is convicted for that, but whoever was running runs alone now."""
        for place in self.plan.places:
            with self.journal(place) as journal:
                journal.blame(alone=states.SUSPECT)
        self.judge_suspects(self.plan.places)

    def heal(self, frame: Callable[[], DataFrame], tasks: TaskPlan, places: Iterable[Place]) -> None:
        """Run the job until it ends; a record that kills its worker costs that record."""
        while not self.run_job(frame, tasks, places):
            self.judge_suspects(places)

    def judge_suspects(self, places: Iterable[Place]) -> None:
        """Run those whose worker died, each by itself and no other partition beside: a cancelled job kills them all."""
        for place in places:
            while suspects := self.suspects(place):
                log.warning("records may have killed their worker", stream=self.stream, where=place, records=suspects)
                self.judge(place, suspects)

    def suspects(self, place: Place) -> list[int]:
        with self.journal(place) as journal:
            return journal.offsets(states.SUSPECT, states.KILLED)

    def judge(self, place: Place, suspects: Sequence[int]) -> None:
        """Run the suspects of one partition, those of which we have copies first; the next round takes who is left."""
        tasks, copies = replace(self.tasks, suspects_only=True, flushes=False), self.failed_records(place)
        known = {offset: copies[offset] for offset in suspects if offset in copies}
        unknown = [offset for offset in suspects if offset not in copies]
        if known and not self.run_job(lambda: self.rows_of_copies({place: known}), tasks, [place]):
            return
        span = {place: (unknown[0], unknown[-1] + 1)} if unknown else {}
        if not span or self.run_job(lambda: self.rows_of_topics(span), tasks, [place]):
            with self.journal(place) as journal:  # who is still a suspect was compacted away meanwhile
                journal.set_state(journal.offsets(states.SUSPECT, states.KILLED), states.UNTOUCHED)

    def run_job(self, frame: Callable[[], DataFrame], tasks: TaskPlan, places: Iterable[Place]) -> bool:
        """Run one Spark job; says whether it ended well. Raises HealingFailed where no record can be blamed."""
        try:
            rows = frame().mapInArrow(healing_task(tasks), SUMMARY).collect()
        except Exception as error:
            log.debug("a job of the stream failed", stream=self.stream, exc_info=error)
            if not any([self.blame(place) for place in places]):  # noqa: C419 (all of them)
                raise HealingFailed(self.stream, reason=first_lines(error)) from error
            return False
        self.stopped_at.update({(r.topic, r.partition): r.stopped_at for r in rows if r.stopped_at is not None})
        self.due_at.update({(r.topic, r.partition): r.due_at for r in rows if r.due_at is not None})
        return True

    def blame(self, place: Place) -> bool:
        """Whether records were running in a partition when its worker died; they are suspects from now on."""
        with self.journal(place) as journal:
            return journal.blame()

    def rows_of_topics(self, spans: Mapping[Place, Range]) -> DataFrame:
        """The records of these offsets: a partition of Kafka is one of Spark's, in its order."""
        start, upto = ({place: span[end] for place, span in spans.items()} for end in (0, 1))
        options = {**self.options.spark(), "minPartitions": "1"}
        rows = rows_from_kafka(KafkaReading(self.spark, options, start, upto, "bytes", "bytes", COLUMNS).rows)
        at_once = self.side_by_side
        return rows.coalesce(at_once) if at_once is not None and at_once < len(spans) else rows

    def rows_of_copies(self, records: FailedRecords) -> DataFrame:
        """Failed records, from the copies that were made when they first failed."""
        return rows_from_copies(self.spark, {p: {o: each.raw for o, each in own.items()} for p, own in records.items()})

    def rows_of_visits(self, places: Iterable[Place]) -> DataFrame:
        """No record, but a task that goes to each of these partitions."""
        return rows_without_records(self.spark, places)

    def result(self, place: Place) -> PartitionResult:
        """Where the partition stands once every job of the turn has ended."""
        before = self.plan.progress[place]
        with self.journal(place) as journal:
            start, upto = self.plan.reads.get(place, (before.read_upto, before.read_upto))
            upto = min(upto, self.stopped_at.get(place, upto))
            read_upto = max(before.read_upto, upto, journal.touched_upto() if place in self.stopped_at else 0)
            earlier = len(self.earlier_failures(place)) + len(self.plan.held_offsets.get(place, ()))
            return PartitionResult(
                before.after(read_upto, journal.unsettled_offsets(start, upto, read_upto)),
                rows_healed=journal.count(states.DONE),
                rows_dropped=journal.count(states.DROPPED),
                rows_failed=journal.count(states.FAILED),
                rows_taken=journal.count(*states.TAKEN) - earlier,
                held_offsets=frozenset(journal.offsets(states.HELD)),
            )

    def failures(self, place: Place) -> dict[int, FailedRecord]:
        """The failed records that nobody has healed since."""
        with self.journal(place) as journal:
            offsets = journal.offsets(states.FAILED)
        failed = self.failed_records(place)
        return {offset: failed[offset] for offset in offsets if offset in failed}

    def mark_dead(self, place: Place, offsets: Iterable[int]) -> None:
        """These are dead letters now."""
        with self.journal(place) as journal:
            journal.set_state(offsets, states.DEAD)

    def taken_offsets(self, place: Place) -> list[int]:
        """The records that the turn gave to the stream's steps."""
        with self.journal(place) as journal:
            return journal.offsets(*states.TAKEN)

    @contextmanager
    def journal(self, place: Place) -> Iterator[Journal]:
        """The journal of a partition, when no task writes to it any more."""
        path, low = self.state.states(self.tasks.number, place), self.plan.progress[place].mark
        with self.state.lock(place), Journal.open(path, low) as journal:
            yield journal

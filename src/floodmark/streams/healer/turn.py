"""One turn of a stream on Spark: the records of a span, and those that are due again, run until all have outcomes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, HealingFailed
from floodmark.errors.causes import reason_of
from floodmark.logs import get_logger
from floodmark.machine import replace_file
from floodmark.probes.kafka import Place
from floodmark.probes.kafka.client import KafkaOptions
from floodmark.sources.kafka.reading import COLUMNS, KafkaReading
from floodmark.spark.faults import shares_folder
from floodmark.spark.session import cores
from floodmark.streams.healer.progress import Progress, Range
from floodmark.streams.healer.unsettled import TurnPlan
from floodmark.streams.policy import FailedRecords
from floodmark.streams.task import (
    SUMMARY,
    TaskPlan,
    healing_task,
    in_shares,
    one_row,
    rows_from_copies,
    rows_from_kafka,
)
from floodmark.streams.task import journal as states
from floodmark.streams.task.folder import StateFolder, TaskFiles
from floodmark.streams.task.journal import FailedRecord, Journal, create_journal, read_failures
from floodmark.streams.task.stream import SUMMARY as STREAM_SUMMARY
from floodmark.streams.task.stream import DriverState, StreamRun, stream_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


log = get_logger(__name__)
NO_SHARED_FOLDER = (
    "fix the cause and run again; a record that ends its worker is found and put aside only where the executors see "
    "the folder of the stream: put it on a disk that all machines share (`state=`)"
)


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
    driver_state: DriverState = field(default_factory=DriverState)
    stopped_at: dict[Place, int] = field(default_factory=dict)
    due_at: float | None = None
    """When the clock lets go what steps hold, if it does."""
    deaths: Counter[tuple[Place, int]] = field(default_factory=Counter)
    """How often the task of the whole stream died with a record in its hands."""

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

    def shares_folder(self) -> bool:
        """Whether the executors see the folder of the stream; else what they need goes along, and comes back."""
        return shares_folder(self.state.root, self.spark)

    def run_all(self) -> None:
        """What a killed driver left first, then what failed before and what is new, then what spans the stream."""
        plan = self.plan
        self.prepare()
        self.recover()
        if plan.retries:
            attempts = {p: {o: each.attempts + 1 for o, each in own.items()} for p, own in plan.retries.items()}
            self.heal(lambda: self.rows_of_copies(plan.retries), replace(self.tasks, attempts=attempts), plan.retries)
        if plan.reads:
            self.heal(lambda: self.rows_in_shares(plan.reads), self.sharing_tasks(), plan.reads)
        if self.tasks.plan.spans_stream:
            self.heal_stream()

    def prepare(self) -> None:
        """Make the journals of a turn that begins; those of one that was begun before are there."""
        self.state.prepare(self.tasks.number)
        for place in self.plan.places:
            progress = self.plan.progress[place]
            upto = max(progress.read_upto, self.plan.reads.get(place, (0, 0))[1])
            create_journal(self.state.states(self.tasks.number, place), progress.mark, upto, self.earlier_states(place))
        self.forget_other_program()

    def forget_other_program(self) -> None:
        """What waits for the steps of an earlier program runs anew from the start of this one."""
        path = self.state.program(self.tasks.number)
        if path.exists() and path.read_text() != self.tasks.program:
            for place in self.plan.places:
                with self.journal(place) as journal:
                    journal.set_state(journal.offsets(states.PASSED), states.UNTOUCHED)
                for passed in self.state.all_passed_elements(self.tasks.number, place):
                    passed.unlink()
        replace_file(path, self.tasks.program)

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

    def heal_stream(self) -> None:
        """Run the steps that span the stream over all that waits for them, in one task."""
        while not self.run_stream_job() or any(self.suspects(place) for place in self.plan.places):
            if self.tasks.plan.keeps:
                self.convict_again()
            self.judge_suspects(self.plan.places)

    def run_stream_job(self) -> bool:
        """Run that task once; says whether it ended well. Raises HealingFailed where no record can be blamed."""
        if self.tasks.plan.runs_in_driver or not self.shares_folder():
            state = self.driver_state if self.tasks.plan.runs_in_driver else None
            with ExitStack() as stack:
                self.due_at = StreamRun(self.tasks, stack, time.time, state).run()
            return True
        try:
            rows = self.one_row().mapInArrow(stream_task(self.tasks), STREAM_SUMMARY).collect()
        except Exception as error:  # noqa: BLE001 (raised again, if no record is to blame)
            self.blame_or_raise(error, self.plan.places)
            return False
        self.due_at = rows[0].due_at
        return True

    def convict_again(self) -> None:
        """Where a record cannot run by itself alone, one that was in hand at two deaths is taken for the cause."""
        for place in self.plan.places:
            with self.journal(place) as journal:
                suspects = journal.offsets(states.SUSPECT)
                self.deaths.update((place, offset) for offset in suspects)
                journal.set_state([each for each in suspects if self.deaths[place, each] > 1], states.KILLED)

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
        tasks, copies = replace(self.tasks, suspects_only=True), self.failed_records(place)
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
        files = None if self.shares_folder() else TaskFiles.of(self.state, tasks.number, places)
        try:
            sent = replace(tasks, plan=tasks.plan.without_driver_steps(), files=files)
            rows = frame().mapInArrow(healing_task(sent), SUMMARY).collect()
        except Exception as error:  # noqa: BLE001 (raised again, if no record is to blame)
            self.blame_or_raise(error, places)
            return False
        if files:
            files.take_back(self.state.root, [(row.file, row.content) for row in rows if row.file is not None])
        for row in rows:
            if row.stopped_at is not None:
                place = (row.topic, row.partition)
                self.stopped_at[place] = min(row.stopped_at, self.stopped_at.get(place, row.stopped_at))
        if tasks.shares == 1:
            return True
        # A task that Spark tried again does not know who of its partition was in the hands of the one that died.
        return not any([self.blame(place) for place in places])  # noqa: C419 (all of them)

    def blame_or_raise(self, error: Exception, places: Iterable[Place]) -> None:
        """After a job that failed: who was running is a suspect. Raises HealingFailed if nobody was."""
        log.debug("a job of the stream failed", stream=self.stream, exc_info=error)
        if not any([self.blame(place) for place in places]):  # noqa: C419 (all of them)
            hint = "" if self.shares_folder() else NO_SHARED_FOLDER
            raise HealingFailed(self.stream, reason=reason_of(error), hint=hint) from error

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

    def sharing_tasks(self) -> TaskPlan:
        """The tasks of the records that are new: a scatter deals those of one partition over Spark's cores."""
        at_once = self.tasks.plan.scatters_at_once()
        if at_once is None:
            return self.tasks
        shares = min(self.cores(), at_once)
        return replace(self.tasks, shares=shares, threads=at_once // shares)

    def rows_in_shares(self, spans: Mapping[Place, Range]) -> DataFrame:
        """The records of these offsets, as the tasks share them."""
        shares = self.sharing_tasks().shares
        return self.rows_of_topics(spans) if shares == 1 else in_shares(self.rows_of_topics(spans), shares)

    def cores(self) -> int:
        return cores(self.spark)

    def one_row(self) -> DataFrame:
        """A row for the one task of the steps that span the stream."""
        return one_row(self.spark)

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

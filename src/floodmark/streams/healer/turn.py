"""One turn of a stream on Spark: the records of a span, and those that are due again, run until all have outcomes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, HealingFailed
from floodmark.logs import get_logger
from floodmark.probes.kafka import Place
from floodmark.probes.kafka.client import KafkaOptions
from floodmark.sources.kafka.reading import COLUMNS, KafkaReading
from floodmark.step.transform import first_lines
from floodmark.streams.healer import journal as failures
from floodmark.streams.healer.journal import (
    DEAD,
    DONE,
    DROPPED,
    EARLIER,
    FAILED,
    HELD,
    KILLED,
    SUSPECT,
    TAKEN,
    UNTOUCHED,
    Failed,
    FailureLog,
    Journal,
    StateFolder,
    create,
)
from floodmark.streams.healer.partition import (
    PlaceHealing,
    Records,
    as_rows,
    records_in_batch,
    saved_rows,
    visiting_rows,
)
from floodmark.streams.healer.progress import Progress, Range
from floodmark.streams.healer.unsettled import FailedRecords
from floodmark.streams.program import Plan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


log = get_logger(__name__)
# What one Spark task does: it runs the stream's steps over the records of a partition and journals every outcome.
SUMMARY = "topic string, partition int, stopped_at bigint, due_at double"


@dataclass(frozen=True)
class Order:
    """All that the tasks of a job have to know; it is pickled and goes to the executors."""

    folder: Path
    number: int
    run: str
    plan: Plan
    lows: Mapping[Place, int]
    """The first offset of each partition's journal."""
    room: Mapping[Place, int]
    """How many records of a partition may be left unsettled before its task stops."""
    carried: Mapping[Place, int] = field(default_factory=dict)
    """The turn that a partition's held records were carried from."""
    rows_at_once: int | None = None
    flushes: bool = False
    suspects_only: bool = False
    """Whether only those records run, each by itself, whose worker died."""
    again: Mapping[Place, Mapping[int, int]] | None = None
    """For failed records that run again: which attempt of each offset this is."""

    @property
    def state(self) -> StateFolder:
        return StateFolder(self.folder)


def healing_task(order: Order) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: it takes records and gives one row for each partition it met."""

    def heal(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with closing(Task(order)) as task:
            for batch in batches:
                for records in records_in_batch(batch):
                    task.take(records)
            task.leave()
            yield task.summary()

    return heal


class Task:
    """One partition at a time: it is locked while its records run."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._stack = ExitStack()
        self._healing: PlaceHealing | None = None
        self._left: list[tuple[str, int, int | None, float | None]] = []

    def take(self, records: Records) -> None:
        """Run these records; the partition before them, if it was another, is finished first."""
        if self._healing is None or self._healing.place != records.place:
            self.leave()
            self._healing = self._enter(records.place)
        self._healing.take(records)

    def leave(self) -> None:
        """Finish the partition that was worked on, and unlock it."""
        if self._healing is None:
            return
        due_at = self._healing.finish()
        self._left.append((*self._healing.place, self._healing.stopped_at, due_at))
        self._healing = None
        self._stack.close()

    def summary(self) -> pa.RecordBatch:
        """Which partitions were worked on, where each stopped early, and when the clock lets go what it holds."""
        import pyarrow as pa

        columns: Iterable[tuple[object, ...]] = zip(*self._left, strict=True) if self._left else ((), (), (), ())
        types = (pa.string(), pa.int32(), pa.int64(), pa.float64())
        arrays = [pa.array(list(column), kind) for column, kind in zip(columns, types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=["topic", "partition", "stopped_at", "due_at"])

    def _enter(self, place: Place) -> PlaceHealing:
        state, order = self._order.state, self._order
        self._stack.enter_context(state.alone_with(place))
        path = state.states(order.number, place)
        journal = self._stack.enter_context(Journal.opened(path, order.lows[place]))
        log = FailureLog(state.failures(place))
        self._stack.callback(log.close)
        healing = PlaceHealing(order, place, journal, log, clock=time.time)
        self._stack.callback(healing.close)
        return healing

    def close(self) -> None:
        """Unlock the partition that was worked on when something went wrong."""
        self._stack.close()


@dataclass(frozen=True)
class Agenda:
    """What a turn has to do."""

    number: int
    standing: Mapping[Place, Progress]
    reads: Mapping[Place, Range] = field(default_factory=dict)
    again: FailedRecords = field(default_factory=dict)
    visits: frozenset[Place] = frozenset()
    """Partitions with held records and nothing new, which have to look at the clock, or let go."""
    held: Mapping[Place, frozenset[int]] = field(default_factory=dict)
    """Records that the last turn of this run has carried over."""
    flushes: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.reads or self.again or self.visits)

    @property
    def places(self) -> list[Place]:
        return sorted({*self.reads, *self.again, *self.visits})


@dataclass(frozen=True)
class Tallied:
    """What a turn did to one partition."""

    progress: Progress
    healed: int
    dropped: int
    failed: int
    held: frozenset[int]
    taken: int


@dataclass
class Turn:
    """A turn at work; hold the lease of its stream."""

    stream: str
    agenda: Agenda
    order: Order
    options: KafkaOptions
    spark: SparkSession
    side_by_side: int | None = None
    stopped: dict[Place, int] = field(default_factory=dict)
    due_at: dict[Place, float] = field(default_factory=dict)

    def run(self) -> None:
        """Everything on the agenda. Raises HealingFailed if Spark could not do it; journalled outcomes stay."""
        self.require_no_speculation()
        try:
            self.carry_out()
        except TimeoutError as error:  # a worker of a run that was killed still holds a partition
            raise HealingFailed(self.stream, reason=str(error)) from error

    def carry_out(self) -> None:
        """What a killed driver left first, then what failed before, what is new, and what only the clock lets go."""
        self.prepare()
        self.recover()
        agenda = self.agenda
        if agenda.again:
            attempts = {p: {o: each.attempts + 1 for o, each in own.items()} for p, own in agenda.again.items()}
            self.heal(lambda: self.saved(agenda.again), replace(self.order, again=attempts), agenda.again)
        if agenda.reads:
            self.heal(lambda: self.read(agenda.reads), self.order, agenda.reads)
        if agenda.visits:
            self.heal(lambda: self.visiting(agenda.visits), self.order, agenda.visits)

    def require_no_speculation(self) -> None:
        if (self.spark.conf.get("spark.speculation", "false") or "").lower() == "true":
            raise ConfigError(
                "spark.speculation is on: a record could run twice at the same time.",
                hint="set spark.speculation=false for streams that heal",
            )

    def prepare(self) -> None:
        """Make the journals of a turn that begins; those of one that was begun before are there."""
        self.state.prepare(self.order.number)
        for place in self.agenda.places:
            progress = self.agenda.standing[place]
            upto = max(progress.reached, self.agenda.reads.get(place, (0, 0))[1])
            create(self.state.states(self.order.number, place), progress.mark, upto, self.known_states(place))

    def known_states(self, place: Place) -> list[tuple[int, int, int]]:
        settled = [(low, high, EARLIER) for low, high in self.agenda.standing[place].settled]
        failed = [(offset, offset + 1, FAILED) for offset in self.failed_before(place)]
        held = [(offset, offset + 1, HELD) for offset in self.agenda.held.get(place, ())]
        return [*settled, *failed, *held]

    def failed(self, place: Place) -> dict[int, Failed]:
        """The records of a partition that failed and were not settled since."""
        progress = self.agenda.standing[place]
        found = failures.read(self.state.failures(place))
        return {offset: each for offset, each in found.items() if not progress.is_settled(offset)}

    def failed_before(self, place: Place) -> list[int]:
        reached = self.agenda.standing[place].reached
        return [offset for offset in self.failed(place) if offset < reached]

    def recover(self) -> None:
        """What a killed driver left: nobody is convicted for that, but whoever was running runs alone now."""
        for place in self.agenda.places:
            with self.journal(place) as journal:
                journal.blame(alone=SUSPECT)
        self.judge_suspects(self.agenda.places)

    def heal(self, frame: Callable[[], DataFrame], order: Order, places: Iterable[Place]) -> None:
        """Run the job until it ends; a record that kills its worker costs that record."""
        while not self.ran(frame, order, places):
            self.judge_suspects(places)

    def judge_suspects(self, places: Iterable[Place]) -> None:
        """Run those whose worker died, each by itself and no other partition beside: a cancelled job kills them all."""
        for place in places:
            while suspects := self.suspects(place):
                log.warning("records may have killed their worker", stream=self.stream, where=place, records=suspects)
                self.judge(place, suspects)

    def judge(self, place: Place, suspects: Sequence[int]) -> None:
        order, saved = replace(self.order, suspects_only=True, flushes=False), self.failed(place)
        known = {offset: saved[offset] for offset in suspects if offset in saved}
        unknown = [offset for offset in suspects if offset not in saved]
        if known and not self.ran(lambda: self.saved({place: known}), order, [place]):
            return
        span = {place: (unknown[0], unknown[-1] + 1)} if unknown else {}
        if not span or self.ran(lambda: self.read(span), order, [place]):
            with self.journal(place) as journal:  # who is still a suspect was compacted away meanwhile
                journal.put(journal.offsets(SUSPECT, KILLED), UNTOUCHED)

    def suspects(self, place: Place) -> list[int]:
        with self.journal(place) as journal:
            return journal.offsets(SUSPECT, KILLED)

    def ran(self, frame: Callable[[], DataFrame], order: Order, places: Iterable[Place]) -> bool:
        """Run one Spark job; says whether it ended well. Raises HealingFailed where no record can be blamed."""
        try:
            rows = frame().mapInArrow(healing_task(order), SUMMARY).collect()
        except Exception as error:
            log.debug("a job of the stream failed", stream=self.stream, exc_info=error)
            if not self.blamed(places):
                raise HealingFailed(self.stream, reason=first_lines(error)) from error
            return False
        self.stopped.update({(r.topic, r.partition): r.stopped_at for r in rows if r.stopped_at is not None})
        self.due_at.update({(r.topic, r.partition): r.due_at for r in rows if r.due_at is not None})
        return True

    def blamed(self, places: Iterable[Place]) -> bool:
        return any([self._blamed(place) for place in places])  # noqa: C419 (all of them)

    def _blamed(self, place: Place) -> bool:
        with self.journal(place) as journal:
            return journal.blame()

    def read(self, spans: Mapping[Place, Range]) -> DataFrame:
        """The records of these offsets: a partition of Kafka is one of Spark's, in its order."""
        start, upto = ({place: span[end] for place, span in spans.items()} for end in (0, 1))
        options = {**self.options.spark(), "minPartitions": "1"}
        rows = as_rows(KafkaReading(self.spark, options, start, upto, "bytes", "bytes", COLUMNS).rows)
        at_once = self.side_by_side
        return rows.coalesce(at_once) if at_once is not None and at_once < len(spans) else rows

    def saved(self, records: FailedRecords) -> DataFrame:
        """Failed records, from the copies that were made when they first failed."""
        return saved_rows(self.spark, {p: {o: each.raw for o, each in own.items()} for p, own in records.items()})

    def visiting(self, places: Iterable[Place]) -> DataFrame:
        """No record, but a task that goes to each of these partitions."""
        return visiting_rows(self.spark, places)

    def tally(self, place: Place) -> Tallied:
        """Where the partition stands once every job of the turn has ended."""
        before = self.agenda.standing[place]
        with self.journal(place) as journal:
            start, upto = self.agenda.reads.get(place, (before.reached, before.reached))
            upto = min(upto, self.stopped.get(place, upto))
            reached = max(before.reached, upto, journal.last_touched() if place in self.stopped else 0)
            known = len(self.failed_before(place)) + len(self.agenda.held.get(place, ()))
            return Tallied(
                before.after(reached, journal.unsettled(start, upto, reached)),
                healed=journal.count(DONE),
                dropped=journal.count(DROPPED),
                failed=journal.count(FAILED),
                held=frozenset(journal.offsets(HELD)),
                taken=journal.count(*TAKEN) - known,
            )

    def failing(self, place: Place) -> dict[int, Failed]:
        """The failed records that nobody has healed since."""
        with self.journal(place) as journal:
            offsets = journal.offsets(FAILED)
        found = self.failed(place)
        return {offset: found[offset] for offset in offsets if offset in found}

    def bury(self, place: Place, offsets: Iterable[int]) -> None:
        """These are dead letters now."""
        with self.journal(place) as journal:
            journal.put(offsets, DEAD)

    def delivered(self, place: Place) -> list[int]:
        """The records that the turn gave to the stream's steps."""
        with self.journal(place) as journal:
            return journal.offsets(*TAKEN)

    @property
    def state(self) -> StateFolder:
        return self.order.state

    @contextmanager
    def journal(self, place: Place) -> Iterator[Journal]:
        """The journal of a partition, when no task writes to it any more."""
        path, low = self.state.states(self.order.number, place), self.agenda.standing[place].mark
        with self.state.alone_with(place), Journal.opened(path, low) as journal:
            yield journal

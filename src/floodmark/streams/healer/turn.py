"""One turn of a stream on Spark: the records of a span, and those that are due again, run until all have outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, HealingFailed
from floodmark.logs import get_logger
from floodmark.probes.kafka import Place
from floodmark.probes.kafka_client import KafkaOptions
from floodmark.sources.kafka_reading import COLUMNS, KafkaReading
from floodmark.step.transform import first_lines
from floodmark.streams import failures
from floodmark.streams.failures import Failed
from floodmark.streams.journal import (
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
    Journal,
    StateFolder,
    create,
)
from floodmark.streams.outcomes import Progress, Range
from floodmark.streams.records import as_rows, saved_rows, visiting_rows
from floodmark.streams.task import SUMMARY, Order, healing_task
from floodmark.streams.tries import FailedRecords

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = get_logger(__name__)


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

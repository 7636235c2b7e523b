"""A double of Kafka and Spark for the tests of healing: records in a list, tasks in this process, deaths on demand.

Everything that decides is real: the journal, the log of failures, the store, the healer. A worker or driver that dies
is an exception that no code catches, so whatever was on disk at that moment is all that is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from floodmark.probes.kafka import PartitionBounds, Place, Topic
from floodmark.probes.kafka.client import KafkaOptions
from floodmark.stores.memory import MemoryMarkStore
from floodmark.streams import healing
from floodmark.streams.healer import Healer
from floodmark.streams.healer.commit import TurnCommit
from floodmark.streams.healer.looking import TopicLook
from floodmark.streams.healer.turn import Turn
from floodmark.streams.healer.unsettled import UnsettledRecords
from floodmark.streams.policy import OnError, RetryBudget, stop
from floodmark.streams.program import compile_program
from floodmark.streams.stream import Stream
from floodmark.streams.task.folder import StateFolder

if TYPE_CHECKING:
    from floodmark.sources.contract import Session
    from floodmark.stores.contract import MarkStore
    from floodmark.streams.healer.unsettled import TurnPlan
    from floodmark.streams.policy import FailedRecords

TOPIC = "t"
BATCH = 3


class WorkerDied(BaseException):
    """A task's process ended."""


class DriverDied(BaseException):
    """Everything ended."""


@dataclass
class Log:
    """Records by partition and offset; a missing offset is a hole."""

    records: dict[int, dict[int, bytes | None]]
    ends: dict[int, int]
    committed_offsets: dict[Place, int] = field(default_factory=dict)
    cluster_id: str = "cluster"
    shares_folder: bool = True
    """Whether tasks work in the folder of the driver, or each in one of its own."""

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        return {name: Topic(name, "id", tuple(sorted(self.ends))) for name in names}

    def bounds(self, topics: Iterable[Topic]) -> dict[Place, PartitionBounds]:
        return {(TOPIC, number): PartitionBounds(0, end, end) for number, end in self.ends.items()}

    def group_offsets(self, group: str, topics: Iterable[Topic]) -> dict[Place, int]:
        return self.committed_offsets


@dataclass(frozen=True)
class Frame:
    """Rows of several tasks, which run one after the other when they are collected."""

    tasks: Sequence[Sequence[pa.RecordBatch]]
    function: Callable[..., Any] | None = None

    def mapInArrow(self, function: Callable[..., Any], schema: str) -> Frame:  # noqa: N802 (Spark's own name)
        return Frame(self.tasks, function)

    def collect(self) -> list[SimpleNamespace]:
        assert self.function is not None
        try:
            summaries = [batch for task in self.tasks for batch in self.function(iter(task))]
        except WorkerDied as died:
            raise RuntimeError("a worker died") from died
        return [SimpleNamespace(**row) for summary in summaries for row in summary.to_pylist()]


class LocalTurn(Turn):
    """A turn whose frames come from the log."""

    log: Log

    def require_no_speculation(self) -> None:
        """There is no Spark to ask."""

    def shares_folder(self) -> bool:
        """As the log says: its tasks run in this process, and see everything."""
        return self.log.shares_folder

    def rows_of_topics(self, spans: Mapping[Place, tuple[int, int]]) -> Any:  # noqa: ANN401 (a frame)
        return Frame([batches(place, self.log.records[place[1]], *span) for place, span in sorted(spans.items())])

    def rows_of_copies(self, records: FailedRecords) -> Any:  # noqa: ANN401 (a frame)
        found = {place: {offset: each.raw.value for offset, each in own.items()} for place, own in records.items()}
        return Frame([batches(place, own, 0, 1 << 40) for place, own in sorted(found.items())])

    def rows_in_shares(self, spans: Mapping[Place, tuple[int, int]]) -> Any:  # noqa: ANN401 (a frame)
        shares = self.sharing_tasks().shares
        tasks = [[share_of(batch, share, shares) for batch in self.task(spans)] for share in range(shares)]
        return Frame(tasks) if shares > 1 else self.rows_of_topics(spans)

    def task(self, spans: Mapping[Place, tuple[int, int]]) -> list[pa.RecordBatch]:
        return [batch for task in self.rows_of_topics(spans).tasks for batch in task]

    def cores(self) -> int:
        return 2

    def one_row(self) -> Any:  # noqa: ANN401 (a frame)
        return Frame([[pa.RecordBatch.from_pydict({"one": [True]})]])


class LocalHealer(Healer):
    """A healer whose turns need no Spark."""

    def heal(self, plan: TurnPlan, session: Session) -> Turn:
        log: Any = self.topic_look.probe
        turn = LocalTurn(self.job, plan, self.task_plan(plan), self.topic_look.options, None)  # type: ignore[arg-type]
        turn.driver_state = self.driver_state
        turn.log = log
        turn.run()
        return turn


class NoGroup:
    """Takes the offsets that would be published."""

    group = "g"

    def __init__(self) -> None:
        self.published: dict[Place, int] = {}

    def publish(self, offsets: Mapping[Place, int]) -> None:
        self.published.update(offsets)

    publish_later = publish

    def flush(self) -> None:
        """Nothing is under way."""

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class LocalCluster:
    """A log, a store and a folder that outlive every healer."""

    folder: Path
    log: Log
    store: MarkStore = field(default_factory=MemoryMarkStore)
    group: NoGroup = field(default_factory=NoGroup)

    def healer(
        self,
        build: Callable[[Any], object],
        policy: OnError = stop,
        *,
        rows_at_once: int | None = None,
        source: Stream | None = None,
    ) -> Healer:
        """A fresh process: the same steps over the same marks."""
        source = source or Stream()
        build(source)
        topic_look = TopicLook("g", (TOPIC,), KafkaOptions("nowhere:1"), "earliest")
        topic_look.__dict__["probe"] = self.log
        group: Any = self.group
        unsettled = UnsettledRecords(StateFolder(self.folder), RetryBudget(policy))
        commit = TurnCommit(self.store, compile_program(source.node), group, unsettled)
        return LocalHealer(self.store, _no_session, topic_look, commit, rows_at_once)

    def marks(self) -> dict[int, int]:
        record = self.store.read("g")
        return dict(record.marks[TOPIC].value) if record and TOPIC in record.marks else {}


def healed_by(step: Callable[[Any], object]) -> Callable[[Stream], None]:
    """One function, then healing."""

    def build(source: Stream) -> None:
        source.map(step).sink(healing, stream=source)

    return build


def batches(place: Place, records: Mapping[int, bytes | None], start: int, upto: int) -> list[pa.RecordBatch]:
    """Records of a partition as Spark gives them to a task: in order, a few at a time."""
    rows = [(offset, value) for offset, value in sorted(records.items()) if start <= offset < upto]
    return [batch_of(place, rows[at : at + BATCH]) for at in range(0, len(rows), BATCH)]


def share_of(batch: pa.RecordBatch, share: int, shares: int) -> pa.RecordBatch:
    """The records of a batch that are one task's."""
    return batch.filter(pa.array([offset % shares == share for offset in batch.column("offset").to_pylist()]))


def batch_of(place: Place, rows: Sequence[tuple[int | None, bytes | None]]) -> pa.RecordBatch:
    offsets, values = (list(column) for column in zip(*rows, strict=True))
    nothing = [None] * len(rows)
    columns = {
        "key": pa.array(nothing, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": pa.array([place[0]] * len(rows), pa.string()),
        "partition": pa.array([place[1]] * len(rows), pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "timestamp": pa.array([0] * len(rows), pa.int64()),
        "headers": pa.array(nothing, pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


def _no_session() -> Any:  # noqa: ANN401 (there is none)
    raise AssertionError("no Spark here")

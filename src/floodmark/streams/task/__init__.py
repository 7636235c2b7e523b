"""What one Spark task does: it runs the stream's steps over the records of partitions and journals every outcome.

Workers import this package and what it needs, so nothing here imports the driver's side, `floodmark.streams.healer`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.streams.program import Plan
from floodmark.streams.task.folder import StateFolder, TaskFiles
from floodmark.streams.task.journal import FailureLog, Headers, Journal, RawRecord, bytes_from_text, bytes_to_text
from floodmark.streams.task.partition import PartitionRun

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.probes.kafka import Place


SUMMARY = "topic string, partition int, stopped_at bigint, file string, content binary"
"""For each partition where it stopped early; for each file that comes back with the result, what was done to it."""


@dataclass(frozen=True)
class TaskPlan:
    """All that the tasks of a job have to know; it is pickled and goes to the executors."""

    folder: Path
    number: int
    run: str
    plan: Plan
    lows: Mapping[Place, int]
    """The first offset of each partition's journal."""
    room: Mapping[Place, int]
    """How many records of a partition may be left unsettled before its task stops."""
    carried_from: int | None = None
    """The turn that held records were carried from."""
    rows_at_once: int | None = None
    shares: int = 1
    """How many tasks share the records of a partition: offset modulo this number says whose a record is."""
    threads: int = 1
    """How many records one task runs side by side."""
    program: str = ""
    """Its fingerprint: what waits for the steps of another program is of no use to this one."""
    flushes: bool = False
    suspects_only: bool = False
    """Whether only those records run, each by itself, whose worker died."""
    attempts: Mapping[Place, Mapping[int, int]] | None = None
    """For failed records that run again: which attempt of each offset this is."""
    files: TaskFiles | None = None
    """What goes along with the tasks, where their machines do not see the folder."""

    @property
    def state(self) -> StateFolder:
        return StateFolder(self.folder)

    @contextmanager
    def on_this_machine(self) -> Iterator[TaskPlan]:
        """The plan with a folder that is here."""
        if self.files is None:
            yield self
            return
        with self.files.unpacked() as folder:
            yield replace(self, folder=folder)


def healing_task(plan: TaskPlan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: it takes records and gives one row for each partition it met."""

    def heal(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with plan.on_this_machine() as own, closing(Task(own)) as task:
            for batch in batches:
                for records in records_in_batch(batch):
                    task.take(records)
            task.leave()
            yield task.summary(plan.files.changes(own.folder) if plan.files else ())

    return heal


class Task:
    """One partition at a time: it is locked while its records run."""

    def __init__(self, plan: TaskPlan) -> None:
        self._plan = plan
        self._stack = ExitStack()
        self._partition: PartitionRun | None = None
        self._summary: list[tuple[str, int, int | None]] = []

    def take(self, records: PartitionRecords) -> None:
        """Run these records; the partition before them, if it was another, is finished first."""
        if self._partition is None or self._partition.place != records.place:
            self.leave()
            self._partition = self._enter(records)
        self._partition.take(records)

    def leave(self) -> None:
        """Finish the partition that was worked on, and unlock it."""
        if self._partition is None:
            return
        self._partition.finish()
        self._summary.append((*self._partition.place, self._partition.stopped_at))
        self._partition = None
        self._stack.close()

    def summary(self, changes: Iterable[tuple[str, bytes]]) -> pa.RecordBatch:
        """Which partitions were worked on, where each stopped early, and what comes back to the driver."""
        import pyarrow as pa

        names = ("topic", "partition", "stopped_at", "file", "content")
        types = (pa.string(), pa.int32(), pa.int64(), pa.string(), pa.binary())
        rows = [(*each, None, None) for each in self._summary] + [(None, None, None, *each) for each in changes]
        columns = [[row[at] for row in rows] for at in range(len(names))]
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=[*names])

    def close(self) -> None:
        """Unlock the partition that was worked on when something went wrong."""
        self._stack.close()

    def _enter(self, records: PartitionRecords) -> PartitionRun:
        state, plan, place = self._plan.state, self._plan, records.place
        share = records.offsets[0] % plan.shares if plan.shares > 1 else 0
        path, low = state.states(plan.number, place), plan.lows[place]
        if plan.shares > 1:
            self._stack.enter_context(state.lock_share(place, share))
            journal = self._stack.enter_context(Journal.open_share(path, low))
            log = FailureLog(state.failures(place), partial(state.lock_failures, place))
        else:
            self._stack.enter_context(state.lock(place))
            journal = self._stack.enter_context(Journal.open(path, low))
            log = FailureLog(state.failures(place))
        self._stack.callback(log.close)
        partition = PartitionRun(plan, place, journal, log, clock=time.time, share=share)
        self._stack.callback(partition.close)
        return partition


@dataclass(frozen=True)
class PartitionRecords:
    """Neighbouring records of one partition, in the order of their offsets, a column at a time."""

    place: Place
    offsets: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers | None]
    timestamps: Sequence[int]

    def raw(self, at: int) -> RawRecord:
        """The record as Kafka gave it."""
        return RawRecord(self.keys[at], self.values[at], self.headers[at], self.timestamps[at])

    def row(self, at: int, attempt: int = 1) -> tuple[dict[str, object], bytes | None]:
        """The record as a stream's user sees it; (offset, attempt) is a key for what must not be done twice."""
        topic, partition = self.place
        uuid: dict[str, object] = {
            "topic": topic,
            "partition": partition,
            "offset": self.offsets[at],
            "attempt": attempt,
            "key": self.keys[at],
            "headers": self.headers[at],
            "timestamp": self.timestamps[at],
        }
        return uuid, self.values[at]


def records_in_batch(batch: pa.RecordBatch) -> Iterator[PartitionRecords]:
    """What an Arrow batch holds, partition by partition. A row without an offset only names a partition."""
    if not batch.num_rows:
        return
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    topics, partitions = columns["topic"].unique(), columns["partition"].unique()
    if len(topics) == len(partitions) == 1:
        yield _records((topics[0].as_py(), partitions[0].as_py()), columns)
        return
    places = zip(columns["topic"].to_pylist(), columns["partition"].to_pylist(), strict=True)
    start = 0
    for place, group in groupby(places):
        length = sum(1 for _ in group)
        yield _records(place, {name: column.slice(start, length) for name, column in columns.items()})
        start += length


def _records(place: Place, columns: Mapping[str, Any]) -> PartitionRecords:
    offsets = [] if columns["offset"].null_count else columns["offset"].to_pylist()
    keys, values, headers = (_values(columns[name]) for name in ("key", "value", "headers"))
    return PartitionRecords(
        place, offsets, keys, values, list(map(_headers, headers)), columns["timestamp"].to_pylist()
    )


def _values(column: Any) -> list[Any]:  # noqa: ANN401 (pyarrow's own)
    return [None] * len(column) if column.null_count == len(column) else column.to_pylist()


def _headers(text: str | None) -> Headers | None:
    """As Spark's `to_json` writes them: a value is in Base64."""
    if text is None:
        return None
    return tuple((header["key"], bytes_from_text(header["value"])) for header in json.loads(text))


def rows_from_kafka(frame: DataFrame) -> DataFrame:
    """Kafka's own columns in the shape that `records_in_batch` reads."""
    from pyspark.sql import functions as F

    names = ("key", "value", "topic", "partition", "offset")
    # As text: a list that is null, as of every record without headers, takes Spark ten times as long to hand over.
    headers = F.to_json("headers", {"ignoreNullFields": "false"}).alias("headers")
    return frame.select(*names, F.unix_millis("timestamp").alias("timestamp"), headers)


def rows_from_copies(spark: SparkSession, records: Mapping[Place, Mapping[int, RawRecord]]) -> DataFrame:
    """Records that were kept, as Kafka would give them: a partition in one task, in its order."""
    rows = [
        {"topic": topic, "partition": partition, "offset": offset}
        | raw._asdict()
        | {"headers": _headers_text(raw.headers)}
        for (topic, partition), own in records.items()
        for offset, raw in own.items()
    ]
    return _rows_by_place(spark, rows, len(records))


def _headers_text(headers: Headers | None) -> str | None:
    if headers is None:
        return None
    return json.dumps([{"key": key, "value": bytes_to_text(value)} for key, value in headers])


def in_shares(rows: DataFrame, shares: int) -> DataFrame:
    """The records dealt over as many tasks, so that those of one partition run on several of Spark's cores."""
    from pyspark.sql import functions as F

    return rows.repartitionById(shares, F.pmod("offset", F.lit(shares)).cast("int"))


def one_row(spark: SparkSession) -> DataFrame:
    """A row that says nothing, so that one task runs."""
    return spark.range(1, numPartitions=1).selectExpr("true as one")


def _rows_by_place(spark: SparkSession, rows: Sequence[Mapping[str, object]], tasks: int) -> DataFrame:
    import pyarrow as pa

    schema = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.int64()),
            ("headers", pa.string()),
        ]
    )
    frame = spark.createDataFrame(pa.Table.from_pylist([*rows], schema))
    return frame.repartition(tasks, "topic", "partition").sortWithinPartitions("topic", "partition", "offset")

"""Running the records of one partition through a stream's steps, with every outcome in the journal as it happens."""

from __future__ import annotations

import json
import os
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.probes.kafka import Place
from floodmark.streams.elements import Arrival, Element, Failure, RecordId, Settled, StepFailed
from floodmark.streams.healer.journal import (
    ALONE,
    DONE,
    DROPPED,
    FAILED,
    HELD,
    KILLED,
    OUTCOMES,
    RUNNING,
    SUSPECT,
    UNTOUCHED,
    ArrivalFile,
    FailureLog,
    Headers,
    Journal,
    Raw,
    bytes_of,
    text_of,
)
from floodmark.streams.program import Running

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.streams.healer.turn import Order


# Records of one partition on their way from Arrow into a stream, a column at a time.
@dataclass(frozen=True)
class Records:
    """Neighbouring records of one partition, in the order of their offsets."""

    place: Place
    offsets: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers | None]
    timestamps: Sequence[int]

    def raw(self, at: int) -> Raw:
        """The record as Kafka gave it."""
        return Raw(self.keys[at], self.values[at], self.headers[at], self.timestamps[at])

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


def as_rows(frame: DataFrame) -> DataFrame:
    """Kafka's own columns in the shape that `records_in_batch` reads."""
    from pyspark.sql import functions as F

    names = ("key", "value", "topic", "partition", "offset")
    # As text: a list that is null, as of every record without headers, takes Spark ten times as long to hand over.
    headers = F.to_json("headers", {"ignoreNullFields": "false"}).alias("headers")
    return frame.select(*names, F.unix_millis("timestamp").alias("timestamp"), headers)


def records_in_batch(batch: pa.RecordBatch) -> Iterator[Records]:
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


def _records(place: Place, columns: Mapping[str, Any]) -> Records:
    is_visit = columns["offset"].null_count > 0
    offsets = [] if is_visit else columns["offset"].to_pylist()
    keys, values = (_all(columns[name]) for name in ("key", "value"))
    headers = list(map(_headers, _all(columns["headers"])))
    return Records(place, offsets, keys, values, headers, columns["timestamp"].to_pylist())


def _all(column: Any) -> list[Any]:  # noqa: ANN401 (pyarrow's own)
    return [None] * len(column) if column.null_count == len(column) else column.to_pylist()


def _headers(text: str | None) -> Headers | None:
    """As Spark's `to_json` writes them: a value is in Base64."""
    if text is None:
        return None
    return tuple((header["key"], bytes_of(header["value"])) for header in json.loads(text))


def _headers_text(headers: Headers | None) -> str | None:
    return None if headers is None else json.dumps([{"key": key, "value": text_of(value)} for key, value in headers])


def saved_rows(spark: SparkSession, records: Mapping[Place, Mapping[int, Raw]]) -> DataFrame:
    """Records that were kept, as Kafka would give them: a partition in one task, in its order."""
    rows = [
        {"topic": topic, "partition": partition, "offset": offset}
        | raw._asdict()
        | {"headers": _headers_text(raw.headers)}
        for (topic, partition), own in records.items()
        for offset, raw in own.items()
    ]
    return _by_place(spark, rows, len(records))


def visiting_rows(spark: SparkSession, places: Iterable[Place]) -> DataFrame:
    """A row without a record for each partition, so that a task goes there."""
    rows = [{"topic": topic, "partition": partition} for topic, partition in places]
    return _by_place(spark, rows, len(rows))


def _by_place(spark: SparkSession, rows: Sequence[Mapping[str, object]], tasks: int) -> DataFrame:
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


# What steps such as `partition` still hold when a turn ends, kept for the next turn of the same run.
@dataclass(frozen=True)
class Carried:
    """A run of the steps with what it holds, and the held records as Kafka gave them, by offset.

    It holds the user's code as well, so only the run that made it takes it back: after a restart the records are read
    again and meet the code of that day.
    """

    run: str
    running: Running
    records: Mapping[int, Raw]

    def save(self, path: Path) -> None:
        """Put it in place, whole or not at all."""
        from pyspark import cloudpickle

        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        temporary.write_bytes(cloudpickle.dumps(self))  # type: ignore[no-untyped-call]
        temporary.replace(path)


def load(path: Path, run: str) -> Carried | None:
    """What was carried under this name by this run, if anything was."""
    if not path.exists():
        return None
    found = pickle.loads(path.read_bytes())  # noqa: S301 (our own file, beside the marks)
    return found if isinstance(found, Carried) and found.run == run else None


def still_held(carried: Carried | None, journal: Journal) -> Carried | None:
    """It can be taken back only while nothing of it has moved on: an attempt that died may have settled a part."""
    if carried is None:
        return None
    states, low = journal.states, journal.low
    return carried if all(states[offset - low] == HELD for offset in carried.records) else None


SYNC_SECONDS = 1.0
"""How much work a power cut may cost; a killed process loses nothing that was journalled."""
WORKER_DIED = Failure("", "the record killed its worker: the process ended while the record ran alone")


class PlaceHealing:
    """One partition at work in one task; hold its lock."""

    def __init__(
        self, order: Order, place: Place, journal: Journal, log: FailureLog, clock: Callable[[], float]
    ) -> None:
        self.place = place
        self.stopped_at: int | None = None
        """The first record that was not taken, because too many before it were left behind."""
        self._order, self._journal, self._log, self._clock = order, journal, log, clock
        self._states, self._low = journal.states, journal.low
        self._room = order.room[place]
        self._straight = None if order.rows_at_once else order.plan.straight()
        self._arrivals = ArrivalFile(order.state.arrivals(order.number, place))
        self._synced = time.monotonic()
        journal.blame()
        carried = self._carried()
        journal.let_go(carried.records if carried else ())
        self._running = carried.running if carried else order.plan.start(clock)
        self._waiting: dict[int, Raw] = dict(carried.records) if carried else {}
        if carried:
            self._running.use_clock(clock)
            self._let_go(self._running.tick)

    def take(self, records: Records) -> None:
        """Run those of the records that nobody has run yet; stop where too many are left behind."""
        if self._order.suspects_only:
            self._take_suspects(records)
        elif self._order.again is not None:
            self._take_again(records)
        elif self._order.rows_at_once:
            self._take_lists(records, self._order.rows_at_once)
        elif self._straight:
            self._take_straight(records, self._straight)
        else:
            self._take_each(records)
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self._sync()

    def finish(self) -> float | None:
        """Let go, or carry over, what the steps still hold; returns when the clock lets it go, if it does."""
        self._let_go(self._running.await_io)
        if self._order.flushes:
            self._let_go(self._running.flush)
        held = {record.offset: self._waiting[record.offset] for record in self._running.pending()}
        if held:
            carried = Carried(self._order.run, self._running, held)
            carried.save(self._order.state.carried(self._order.number, self.place))
        self._sync()
        due_in = self._running.due_in_seconds()
        return None if due_in is None else self._clock() + due_in

    def close(self) -> None:
        """Let go of the file of arrivals."""
        self._arrivals.close()

    def _carried(self) -> Carried | None:
        """What the last turn held; or this one, when its task ran to its end before and is evaluated again."""
        order, state = self._order, self._order.state
        mine = load(state.carried(order.number, self.place), order.run)
        if mine is None and self.place in order.carried:
            mine = load(state.carried(order.carried[self.place], self.place), order.run)
        return still_held(mine, self._journal)

    def _take_straight(self, records: Records, straight: Callable[..., object]) -> None:
        states, low, row = self._states, self._low, records.row
        wants_arrivals, last = self._order.plan.wants_arrivals, len(self._order.plan.steps) - 1
        for at, offset in enumerate(records.offsets):
            spot = offset - low
            if states[spot] != UNTOUCHED or self._room <= 0:
                self._meet(records, at)
                continue
            states[spot] = RUNNING
            try:
                healed = straight(row(at))
            except StepFailed as failed:
                self._fail(offset, failed.failure, records.raw(at))
            else:
                if wants_arrivals and healed is not None:
                    self._arrivals.add([Arrival(last, healed)])
                states[spot] = DROPPED if healed is None else DONE

    def _take_each(self, records: Records) -> None:
        for at, offset in enumerate(records.offsets):
            if self._states[offset - self._low] != UNTOUCHED or self._room <= 0:
                self._meet(records, at)
            else:
                self._push(self._running, records, [at])

    def _take_lists(self, records: Records, most: int) -> None:
        fresh: list[int] = []
        for at, offset in enumerate(records.offsets):
            if self._states[offset - self._low] != UNTOUCHED or self._room <= 0:
                self._meet(records, at)
            else:
                fresh.append(at)
        for start in range(0, len(fresh), most):
            self._push(self._running, records, fresh[start : start + most])

    def _take_again(self, records: Records) -> None:
        """Failed records, each by itself; one that had this attempt already is left alone."""
        attempts = (self._order.again or {}).get(self.place, {})
        for at, offset in enumerate(records.offsets):
            waits = self._states[offset - self._low] in (FAILED, SUSPECT, KILLED)
            if waits and self._log.attempts(offset) < attempts.get(offset, 0):
                self._run_alone(records, at)

    def _take_suspects(self, records: Records) -> None:
        for at, offset in enumerate(records.offsets):
            if self._states[offset - self._low] in (SUSPECT, KILLED):
                self._run_alone(records, at)

    def _meet(self, records: Records, at: int) -> None:
        """A record that is not fresh: settled, failed or held before, or its worker died; or there is no more room."""
        offset = records.offsets[at]
        state = self._states[offset - self._low]
        if state in (SUSPECT, KILLED):
            self._run_alone(records, at)  # the task is tried again by Spark, with no driver between
        elif state == UNTOUCHED and self.stopped_at is None:
            self.stopped_at = offset

    def _run_alone(self, records: Records, at: int) -> None:
        offset = records.offsets[at]
        if self._states[offset - self._low] == KILLED:
            self._fail(offset, WORKER_DIED, records.raw(at))
            return
        # Only who ran alone, and not beside others that may have been the cause, can be convicted.
        self._states[offset - self._low] = ALONE if self._states[offset - self._low] == SUSPECT else RUNNING
        running = self._order.plan.start(self._clock)
        self._waiting[offset] = records.raw(at)
        element = self._element(records, [at], self._log.attempts(offset) + 1)
        settled = [*running.push(element), *running.await_io(), *running.flush()]
        self._arrivals.add(running.take_arrivals())
        self._settle_all(settled)

    def _push(self, running: Running, records: Records, ats: list[int]) -> None:
        for at in ats:
            self._states[records.offsets[at] - self._low] = RUNNING
            self._waiting[records.offsets[at]] = records.raw(at)
        self._settle(running.push(self._element(records, ats)))
        for at in ats:
            if self._states[records.offsets[at] - self._low] == RUNNING:
                self._states[records.offsets[at] - self._low] = HELD

    def _let_go(self, release: Callable[[], list[Settled]]) -> None:
        """Steps hand on what they hold: until that is over, each of these records may be the one that kills."""
        held = [record.offset for record in self._running.pending()]
        self._journal.put(held, RUNNING)
        self._settle(release())
        self._journal.put([record.offset for record in self._running.pending()], HELD)

    def _element(self, records: Records, ats: list[int], attempt: int = 1) -> Element:
        topic, partition = self.place
        rows = [records.row(at, attempt) for at in ats]
        lineage = tuple(RecordId(topic, partition, records.offsets[at]) for at in ats)
        return Element(rows if self._order.rows_at_once else rows[0], lineage)

    def _settle(self, settled: Iterable[Settled]) -> None:
        self._arrivals.add(self._running.take_arrivals())
        self._settle_all(settled)

    def _settle_all(self, settled: Iterable[Settled]) -> None:
        for record, kind, failure in settled:
            raw = self._waiting.pop(record.offset)
            if failure is not None:
                self._fail(record.offset, failure, raw)
            else:
                self._states[record.offset - self._low] = OUTCOMES[kind]

    def _fail(self, offset: int, failure: Failure, raw: Raw) -> None:
        """First the log, then the byte: a failure without its record in the log would never be tried again."""
        self._log.add(offset, at=self._clock(), step=failure.step, error=failure.error, raw=raw)
        self._states[offset - self._low] = FAILED
        self._room -= 1

    def _sync(self) -> None:
        self._log.sync()
        self._states.flush()
        self._arrivals.sync()
        self._synced = time.monotonic()

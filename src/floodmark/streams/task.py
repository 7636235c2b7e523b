"""What one Spark task does: it runs the stream's steps over the records of a partition and journals every outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.probes.kafka import Place
from floodmark.streams.failures import FailureLog
from floodmark.streams.healing_place import PlaceHealing
from floodmark.streams.journal import Journal, StateFolder
from floodmark.streams.program import Plan
from floodmark.streams.records import Records, records_in_batch

if TYPE_CHECKING:
    import pyarrow as pa

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

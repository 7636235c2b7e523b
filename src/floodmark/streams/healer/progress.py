"""How far the partitions of a stream got: the rule of healing, and how the record of its group keeps it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import itemgetter
from typing import Any, TypeAlias

from floodmark.errors import MarkInvalid
from floodmark.hwm import HWM, Json, KeyValueIntHWM
from floodmark.probes.kafka import Place
from floodmark.stores.extras import RecordExtras
from floodmark.stores.record import JobRecord

Range: TypeAlias = tuple[int, int]
"""Offsets from the first up to, and without, the second."""

MOST_RANGES = 10_000
MOST_OFFSETS = 1_000_000
"""How much one partition may have settled above a mark that does not move."""


@dataclass(frozen=True)
class Progress:
    """How far one partition got: all below `mark` is settled, and so are `settled_ranges` above it.

    Offsets that were read over and hold no record (compaction, transaction markers) count as settled.
    """

    mark: int
    read_upto: int
    settled_ranges: tuple[Range, ...] = ()

    @classmethod
    def beginning(cls, offset: int) -> Progress:
        """Nothing was read yet, and this is where reading begins."""
        return cls(offset, offset)

    def after(self, read_upto: int, unsettled: Iterable[int]) -> Progress:
        """Progress once everything below `read_upto` was read, and only these offsets are not settled.

        The mark stops at the first of them, or at the end of what was read; it never goes back.
        """
        upto = max(self.read_upto, read_upto)
        waiting = sorted(offset for offset in set(unsettled) if self.mark <= offset < upto)
        if not waiting:
            return Progress(upto, upto)
        gaps = [(low + 1, high) for low, high in pairwise([*waiting, upto]) if low + 1 < high]
        return Progress(waiting[0], upto, tuple(gaps))

    def is_settled(self, offset: int) -> bool:
        """Whether this record must not run again."""
        if offset < self.mark:
            return True
        place = bisect_right(self.settled_ranges, offset, key=itemgetter(0)) - 1
        return place >= 0 and self.settled_ranges[place][0] <= offset < self.settled_ranges[place][1]

    def unsettled_offsets(self) -> Iterator[int]:
        """Offsets that were read and still wait for their outcome, in order."""
        ends = [(self.mark, self.mark), *self.settled_ranges, (self.read_upto, self.read_upto)]
        for (_, low), (high, _) in pairwise(ends):
            yield from range(low, high)

    @property
    def is_stuck(self) -> bool:
        """Whether a record keeps the mark from following what was read."""
        return self.mark < self.read_upto

    @property
    def free_ranges(self) -> int:
        """How many more records may be left behind before what is settled above the mark is too much to remember."""
        return max(MOST_RANGES - len(self.settled_ranges), 0)

    @property
    def free_offsets(self) -> int:
        """How many more offsets may be read before it is too much."""
        return max(MOST_OFFSETS - sum(high - low for low, high in self.settled_ranges), 0) if self.free_ranges else 0

    def serialize(self) -> dict[str, Json]:
        return {"mark": self.mark, "reached": self.read_upto, "settled": [list(each) for each in self.settled_ranges]}

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> Progress:
        """Progress out of the extras of a record. Raises MarkInvalid if it cannot be what `serialize` gave."""
        try:
            settled = tuple((int(low), int(high)) for low, high in stored["settled"])
            progress = cls(int(stored["mark"]), int(stored["reached"]), settled)
        except (KeyError, TypeError, ValueError) as error:
            raise MarkInvalid("healing", dict(stored), reason="not the progress of a partition") from error
        edges = [progress.mark, *(edge for each in settled for edge in each), progress.read_upto]
        if edges != sorted(edges):
            raise MarkInvalid("healing", dict(stored), reason="its ranges are not in order")
        return progress


StreamProgress: TypeAlias = Mapping[Place, Progress]


def progress_in(record: JobRecord, topics: Iterable[str]) -> dict[Place, Progress]:
    """The progress that a record holds of these topics.

    A mark that is not where healing left it was moved by a person: what was settled above the old one is forgotten.
    """
    progress: dict[Place, Progress] = {}
    healing = record.extras.healing or {}
    for topic in topics:
        mark = record.marks.get(topic)
        marks: Mapping[int, int] = mark.value if mark is not None else {}
        stored = {int(part): Progress.deserialize(each) for part, each in healing.get(topic, {}).items()}
        for partition in {*marks, *stored}:
            own, offset = stored.get(partition), marks.get(partition)
            is_moved = own is None or (offset is not None and offset != own.mark)
            progress[topic, partition] = Progress.beginning(marks[partition]) if is_moved else stored[partition]
    return progress


def planned_progress(record: JobRecord, topics: Iterable[str]) -> dict[Place, Progress]:
    """As its open batch saw it, if there is one: a first batch has chosen where partitions begin."""
    if record.intent is None:
        return progress_in(record, topics)
    return progress_in(replace(record, extras=record.extras.with_healing(record.intent.extras.healing or {})), topics)


def extras_with(record: JobRecord, progress: StreamProgress) -> RecordExtras:
    """The record's extras once its partitions stand here."""
    stored = record.extras.healing or {}
    healing: dict[str, Json] = dict(stored)
    for topic in {topic for topic, _ in progress}:
        own = {str(part): each.serialize() for (name, part), each in progress.items() if name == topic}
        healing[topic] = {**stored.get(topic, {}), **own}
    return record.extras.with_healing(healing)


def marks_with(record: JobRecord, before: StreamProgress, after: StreamProgress) -> dict[str, HWM[Any]]:
    """The record's marks once its partitions stand there; a partition of which nothing was passed yet has none."""
    marks: dict[str, HWM[Any]] = dict(record.marks)
    for (topic, partition), progress in sorted(after.items()):
        mark = marks.get(topic) or KeyValueIntHWM(f"{record.job}.{topic}", {}, topic=topic)
        earlier = before.get((topic, partition))
        if partition in mark.value or (earlier is not None and progress.mark > earlier.mark):
            mark = mark.set_value({**mark.value, partition: progress.mark})
        if mark.value or topic in marks:
            marks[topic] = mark
    return marks

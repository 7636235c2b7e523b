"""Where a stream stands: the progress of every partition, as the record of its group keeps it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any, Literal, TypeAlias

from floodmark.errors import MarkInvalid
from floodmark.hwm import HWM, Json, KeyValueIntHWM
from floodmark.probes.kafka import Place
from floodmark.stores.extras import RecordExtras
from floodmark.stores.record import JobRecord

# The rule of healing: which outcomes a record can have, and how far they let the mark of a partition move.
Outcome = Literal["done", "failed", "dropped", "dead"]
"""What became of a record: healed, raised, taken out by a filter, or given up and kept as a dead letter."""

Range: TypeAlias = tuple[int, int]
"""Offsets from the first up to, and without, the second."""

MOST_RANGES = 10_000
MOST_OFFSETS = 1_000_000
"""How much one partition may have settled above a mark that does not move."""


@dataclass(frozen=True)
class Progress:
    """How far one partition got: all below `mark` is settled, so is what `settled` lists; reading goes on at `reached`.

    Offsets that were read over and hold no record (compaction, transaction markers) count as settled.
    """

    mark: int
    reached: int
    settled: tuple[Range, ...] = ()

    @classmethod
    def beginning(cls, offset: int) -> Progress:
        """Nothing was read yet, and this is where reading begins."""
        return cls(offset, offset)

    def after(self, reached: int, unsettled: Iterable[int]) -> Progress:
        """Progress once everything below `reached` was read, and only these offsets are not settled.

        The mark stops at the first of them, or at the end of what was read; it never goes back.
        """
        upto = max(self.reached, reached)
        waiting = sorted(offset for offset in set(unsettled) if self.mark <= offset < upto)
        if not waiting:
            return Progress(upto, upto)
        gaps = [(low + 1, high) for low, high in pairwise([*waiting, upto]) if low + 1 < high]
        return Progress(waiting[0], upto, tuple(gaps))

    def is_settled(self, offset: int) -> bool:
        """Whether this record must not run again."""
        if offset < self.mark:
            return True
        place = bisect_right(self.settled, offset, key=itemgetter(0)) - 1
        return place >= 0 and self.settled[place][0] <= offset < self.settled[place][1]

    def unsettled(self) -> Iterator[int]:
        """Offsets that were read and still wait for their outcome, in order."""
        ends = [(self.mark, self.mark), *self.settled, (self.reached, self.reached)]
        for (_, low), (high, _) in pairwise(ends):
            yield from range(low, high)

    @property
    def is_stuck(self) -> bool:
        """Whether a record keeps the mark from following what was read."""
        return self.mark < self.reached

    @property
    def free_ranges(self) -> int:
        """How many more records may be left behind before what is settled above the mark is too much to remember."""
        return max(MOST_RANGES - len(self.settled), 0)

    @property
    def free_offsets(self) -> int:
        """How many more offsets may be read before it is too much."""
        return max(MOST_OFFSETS - sum(high - low for low, high in self.settled), 0) if self.free_ranges else 0

    def serialize(self) -> dict[str, Json]:
        return {"mark": self.mark, "reached": self.reached, "settled": [list(each) for each in self.settled]}

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> Progress:
        """Progress out of the extras of a record. Raises MarkInvalid if it cannot be what `serialize` gave."""
        try:
            settled = tuple((int(low), int(high)) for low, high in stored["settled"])
            found = cls(int(stored["mark"]), int(stored["reached"]), settled)
        except (KeyError, TypeError, ValueError) as error:
            raise MarkInvalid("healing", dict(stored), reason="not the progress of a partition") from error
        edges = [found.mark, *(edge for each in settled for edge in each), found.reached]
        if edges != sorted(edges):
            raise MarkInvalid("healing", dict(stored), reason="its ranges are not in order")
        return found


def standing_in(record: JobRecord, topics: Iterable[str]) -> dict[Place, Progress]:
    """The progress that a record holds of these topics.

    A mark that is not where healing left it was moved by a person: what was settled above the old one is forgotten.
    """
    found: dict[Place, Progress] = {}
    for topic in topics:
        marks = _offsets(record.marks.get(topic))
        kept = _kept(record, topic)
        for partition in {*marks, *kept}:
            progress, mark = kept.get(partition), marks.get(partition)
            moved = progress is None or mark not in (None, progress.mark)
            found[topic, partition] = Progress.beginning(mark) if moved and mark is not None else kept[partition]
    return found


def extras_with(record: JobRecord, standing: Mapping[Place, Progress]) -> RecordExtras:
    """The record's extras once its partitions stand here."""
    healing: dict[str, Json] = dict(record.extras.healing or {})
    for topic in {topic for topic, _ in standing}:
        own = {str(part): progress.serialize() for (name, part), progress in standing.items() if name == topic}
        before = healing.get(topic)
        healing[topic] = {**(before if isinstance(before, dict) else {}), **own}
    return record.extras.with_healing(healing)


def marks_with(
    record: JobRecord, before: Mapping[Place, Progress], after: Mapping[Place, Progress]
) -> dict[str, HWM[Any]]:
    """The record's marks once its partitions stand there; a partition of which nothing was passed yet has none."""
    marks: dict[str, HWM[Any]] = dict(record.marks)
    for (topic, partition), progress in sorted(after.items()):
        mark = marks.get(topic) or KeyValueIntHWM(f"{record.job}.{topic}", {}, topic=topic)
        begun = before.get((topic, partition))
        if partition in mark.value or (begun is not None and progress.mark > begun.mark):
            mark = mark.set_value({**mark.value, partition: progress.mark})
        if mark.value or topic in marks:
            marks[topic] = mark
    return marks


def _kept(record: JobRecord, topic: str) -> dict[int, Progress]:
    stored = (record.extras.healing or {}).get(topic)
    parts = stored if isinstance(stored, dict) else {}
    return {int(part): Progress.deserialize(found) for part, found in parts.items() if isinstance(found, dict)}


def _offsets(mark: HWM[Any] | None) -> dict[int, int]:
    return dict(mark.value) if mark is not None else {}

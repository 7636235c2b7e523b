"""The rule of healing: which outcomes a record can have, and how far they let the mark of a partition move."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any, Literal, TypeAlias

from floodmark.errors import MarkInvalid
from floodmark.hwm import Json

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

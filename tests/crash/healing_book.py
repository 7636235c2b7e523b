"""What a killed stream is judged by: the records that were put, the calls that were made, and the rule of healing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

Record = tuple[int, int]
"""Partition and offset."""
SETTLED = ("done", "dropped")


class Call(NamedTuple):
    """One call of the user's function; `word` is what it came to, or None if it was cut off."""

    run: int
    worker: int
    record: Record
    attempt: int
    word: str | None


@dataclass
class Book:
    """Every record by its fate, and where each partition ends."""

    fates: dict[Record, tuple[str, ...]] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)

    def put(self, partition: int, fates: Iterable[str]) -> None:
        """Records that were put, in this order."""
        for fate in fates:
            end = self.ends.setdefault(partition, 0)
            self.fates[partition, end] = tuple(fate.split())
            self.ends[partition] = end + 1

    def skip(self, partition: int, offsets: int) -> None:
        """Offsets that are no records."""
        self.ends[partition] = self.ends.get(partition, 0) + offsets

    def marks(self, calls: Iterable[Call]) -> dict[int, int]:
        """What the rule commits after these calls; a partition that stands at its beginning has no mark."""
        settled = {call.record for call in calls if call.word in SETTLED}
        open_ones = [record for record in self.fates if record not in settled]
        marks = {
            partition: min((offset for place, offset in open_ones if place == partition), default=end)
            for partition, end in self.ends.items()
        }
        return {partition: mark for partition, mark in marks.items() if mark}


def calls_in(notes: Path) -> list[Call]:
    """The calls in the order in which they began."""
    found: dict[tuple[int, ...], list[str]] = defaultdict(list)
    order: list[tuple[tuple[int, ...], int]] = []
    for line in notes.read_text().splitlines() if notes.exists() else ():
        *numbers, word = line.split()
        key = tuple(map(int, numbers))
        if word == "begins":
            order.append((key, len(found[key])))
            found[key].append("")
        else:
            found[key][-1] = word
    return [Call(key[0], key[1], key[2:4], key[4], found[key][at] or None) for key, at in order]  # type: ignore[arg-type]


def durable(calls: Sequence[Call], killed: Mapping[int, int]) -> dict[Record, list[str | None]]:
    """What each record came to, call by call, without those calls that a kill may have undone and that came again.

    `killed` tells for a run that was killed how many records each of its workers had in its hands.
    """
    hands: dict[tuple[int, int], list[int]] = defaultdict(list)
    for at, call in enumerate(calls):
        hands[call.run, call.worker].append(at)
    excused = {at for (run, _), own in hands.items() if run in killed for at in own[-killed[run] :]}
    words: dict[Record, list[str | None]] = defaultdict(list)
    for at, call in enumerate(calls):
        again = any(later.record == call.record and later.attempt == call.attempt for later in calls[at + 1 :])
        if not (at in excused and again):
            words[call.record].append(call.word)
    return dict(words)

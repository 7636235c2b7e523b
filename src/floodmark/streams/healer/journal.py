"""What the tasks of a turn write as they go: one byte for every offset, set before and after the user's code runs.

The bytes are a memory-mapped file that the driver and all executors share, so that a task that is evaluated twice, or
again after its worker died, finds what is settled. Whoever writes holds the lock of the partition.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from floodmark.probes.kafka import Place
from floodmark.stores.contract import Housed, MarkStore
from floodmark.stores.durable import ensure_folder, locked, sync_folder
from floodmark.stores.names import file_name

UNTOUCHED, RUNNING, DONE, DROPPED, FAILED, HELD, SUSPECT, ALONE, KILLED, EARLIER, DEAD = range(11)
"""HELD: a step keeps the record for its batch. SUSPECT: its worker died while it ran, perhaps because of another.
ALONE: a suspect runs by itself. KILLED: it died then too. EARLIER: settled before this turn. DEAD: given up."""

OUTCOMES = {"done": DONE, "dropped": DROPPED, "failed": FAILED}
TAKEN = bytes((DONE, DROPPED, FAILED, HELD, DEAD))
_UNSETTLED = re.compile(b"[^%s]" % re.escape(bytes((UNTOUCHED, DONE, DROPPED, EARLIER, DEAD))))
LOCK_PATIENCE_SECONDS = 60.0
"""A worker whose task was cancelled lives for a few seconds more, and holds its lock until then."""


def state_folder(store: MarkStore, stream: str) -> Path:
    """A folder that the next run finds again: beside the marks, or hidden in the working folder."""
    beside = store.folder if isinstance(store, Housed) else Path(".floodmark")
    return beside.absolute() / "streams" / file_name(stream)


@dataclass(frozen=True)
class StateFolder:
    """Where a stream keeps what belongs to its marks: a folder that the driver and all executors share."""

    root: Path

    def states(self, number: int, place: Place) -> Path:
        return self.turn(number) / f"{_named(place)}.states"

    def arrivals(self, number: int, place: Place) -> Path:
        return self.turn(number) / f"{_named(place)}.arrivals"

    def carried(self, number: int, place: Place) -> Path:
        return self.root / "carried" / f"{_named(place)}.{number}"

    @property
    def dead(self) -> Path:
        return self.root / "dead"

    def failures(self, place: Place) -> Path:
        return self.root / "failures" / f"{_named(place)}.jsonl"

    def lock(self, place: Place) -> Path:
        return self.root / "locks" / _named(place)

    def turn(self, number: int) -> Path:
        return self.turns / str(number)

    @property
    def turns(self) -> Path:
        return self.root / "turns"

    def prepare(self, number: int) -> None:
        """Make the folders of a turn."""
        for folder in (self.turn(number), self.root / "carried", self.root / "failures", self.root / "locks"):
            ensure_folder(folder)

    @contextmanager
    def alone_with(self, place: Place) -> Iterator[None]:
        """Hold the partition against other tasks and drivers, the late ones too."""
        with locked(self.lock(place), exclusive=True, patience_seconds=LOCK_PATIENCE_SECONDS):
            yield


@dataclass(frozen=True)
class Journal:
    """The bytes of one partition in one turn; the first stands for offset `low`."""

    low: int
    states: mmap.mmap

    @classmethod
    @contextmanager
    def opened(cls, path: Path, low: int) -> Iterator[Journal]:
        """The journal as it is on disk; hold the lock of its partition."""
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as states:
            yield cls(low, states)

    @property
    def upto(self) -> int:
        return self.low + len(self.states)

    def blame(self, *, alone: int = KILLED) -> bool:
        """After a crash: who was running may have caused it, and who ran alone did. Says whether there was anybody.

        `alone` is SUSPECT where the driver may have died as well.
        """
        running, by_itself = self.offsets(RUNNING), self.offsets(ALONE)
        self.put([*running, *(self.offsets(HELD) if running else ())], SUSPECT)  # they may have been in one batch
        self.put(by_itself, alone)
        return bool(running or by_itself)

    def let_go(self, kept: Iterable[int]) -> None:
        """What a step held and nobody carries has to come again."""
        self.put(set(self.offsets(HELD)) - set(kept), UNTOUCHED)

    def offsets(self, *wanted: int) -> list[int]:
        """The records in these states, in order."""
        found = bytes(self.states)
        return sorted(self.low + place for state in wanted for place in _places(found, state))

    def put(self, offsets: Iterable[int], state: int) -> None:
        """Set the state of some records."""
        for offset in offsets:
            self.states[offset - self.low] = state

    def last_touched(self) -> int:
        """The offset after the last one that has any state."""
        return self.low + len(bytes(self.states).rstrip(bytes((UNTOUCHED,))))

    def unsettled(self, start: int, upto: int, reached: int) -> list[int]:
        """Records below `reached` that wait, once a job has read from `start` to before `upto` to its end.

        Where that job met nothing, there is no record; what lies beside its range was not asked for and waits.
        """
        waiting = [self.low + found.start() for found in _UNSETTLED.finditer(self.states)]
        unread = [*self._untouched(self.low, start), *self._untouched(upto, reached)]
        return sorted(offset for offset in {*waiting, *unread} if offset < reached)

    def _untouched(self, start: int, end: int) -> list[int]:
        part = self.states[max(start - self.low, 0) : max(end - self.low, 0)]
        return [max(start, self.low) + place for place in _places(part, UNTOUCHED)]

    def count(self, *wanted: int) -> int:
        """How many records are in these states."""
        found = bytes(self.states)
        return sum(found.count(state) for state in wanted)


def create(path: Path, low: int, upto: int, states: Iterable[tuple[int, int, int]]) -> None:
    """Make the journal of offsets from `low` to before `upto`, whole or not at all; one that is there stays.

    `states` gives ranges of offsets that have a state already: from, to before, state.
    """
    if path.exists():
        return
    content = bytearray(upto - low)
    for start, end, state in states:
        content[start - low : end - low] = bytes((state,)) * (end - start)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def _places(states: bytes, state: int) -> list[int]:
    return [found.start() for found in re.finditer(re.escape(bytes((state,))), states)]


def _named(place: Place) -> str:
    return f"{file_name(place[0])}.{place[1]}"

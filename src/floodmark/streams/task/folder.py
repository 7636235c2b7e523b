"""Where a stream keeps what belongs to its marks: which file is where, of which version, and who may write it.

Where the executors do not see it, the files that a task needs go along with it, and what it changed comes back.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.formats import FIRST, require_known
from floodmark.machine import ensure_folder, file_lock, file_name, replace_file

if TYPE_CHECKING:
    from floodmark.probes.kafka import Place


FORMAT_FILE = "format"
"""The version of all files in the folder; where it is missing, they are of version 1."""
VERSION = 3
"""Since the second, dead letters have the shape of all rows that are put aside; since the third, a turn has a file of
healed rows for each share of a partition, and records may wait for steps that span the stream."""
JOURNAL = ".states"
LOCK_PATIENCE_SECONDS = 60.0
"""A worker whose task was cancelled lives for a few seconds more, and holds its lock until then."""


@dataclass(frozen=True)
class StateFolder:
    """Where a stream keeps what belongs to its marks: a folder of the driver's, and of all executors if they see it."""

    root: Path

    def states(self, number: int, place: Place) -> Path:
        return self.turn(number) / f"{_file_stem(place)}{JOURNAL}"

    def healed_rows(self, number: int, place: Place, share: int = 0) -> Path:
        """Where a task keeps what it healed: one file for each share of a partition's records."""
        return self.turn(number) / f"{_file_stem(place)}@{share}.arrivals"

    def all_healed_rows(self, number: int, place: Place) -> list[Path]:
        """Those files; a turn that was begun by version 2 has one, without a share in its name."""
        stem = _file_stem(place)
        return [self.turn(number) / f"{stem}.arrivals", *self.turn(number).glob(f"{stem}@*.arrivals")]

    def stream_healed_rows(self, number: int) -> Path:
        """What the steps that span the stream healed."""
        return self.turn(number) / "@stream.arrivals"

    def passed_elements(self, number: int, place: Place, share: int = 0) -> Path:
        """What waits for steps that span the stream."""
        return self.turn(number) / f"{_file_stem(place)}@{share}.passed"

    def all_passed_elements(self, number: int, place: Place) -> list[Path]:
        return sorted(self.turn(number).glob(f"{_file_stem(place)}@*.passed"))

    def program(self, number: int) -> Path:
        """Which program a turn was begun with."""
        return self.turn(number) / "@program"

    def carried_state(self, number: int) -> Path:
        """What the steps that span the stream held when a turn ended."""
        return self.root / "carried" / f"@stream.{number}"

    @property
    def memories(self) -> Path:
        """What steps know of elements that are long settled, as it was after each turn."""
        return self.root / "memory"

    @property
    def dead_letters(self) -> Path:
        return self.root / "dead"

    def failures(self, place: Place) -> Path:
        return self.root / "failures" / f"{_file_stem(place)}.jsonl"

    def turn(self, number: int) -> Path:
        return self.turns / str(number)

    @property
    def turns(self) -> Path:
        return self.root / "turns"

    def prepare(self, number: int) -> None:
        """Make the folders of a turn. Raises FormatTooNew if a newer Floodmark has worked here."""
        ensure_folder(self.root)
        mark_version(self.root)
        for folder in (
            self.turn(number),
            self.root / "carried",
            self.root / "failures",
            self.root / "locks",
            self.memories,
        ):
            ensure_folder(folder)

    @contextmanager
    def lock(self, place: Place) -> Iterator[None]:
        """Hold the partition against other tasks and drivers, the late ones too."""
        with file_lock(self._lock_file(place), exclusive=True, patience_seconds=LOCK_PATIENCE_SECONDS):
            yield

    @contextmanager
    def lock_share(self, place: Place, share: int) -> Iterator[None]:
        """Hold one share of a partition's records; tasks with other shares may work beside, and nobody else."""
        own = self._lock_file(place).with_name(f"{_file_stem(place)}@{share}")
        with (
            file_lock(self._lock_file(place), exclusive=False, patience_seconds=LOCK_PATIENCE_SECONDS),
            file_lock(own, exclusive=True, patience_seconds=LOCK_PATIENCE_SECONDS),
        ):
            yield

    @contextmanager
    def lock_failures(self, place: Place) -> Iterator[None]:
        """Hold the log of failures against the tasks with other shares, for one line."""
        with file_lock(self._lock_file(place).with_name(f"{_file_stem(place)}@failures"), exclusive=True):
            yield

    def _lock_file(self, place: Place) -> Path:
        return self.root / "locks" / _file_stem(place)


@dataclass(frozen=True)
class TaskFiles:
    """The files of a stream's folder that go along with the tasks of a job, and come back with their results.

    What a task had done is lost with it, if its machine does not send the result: its records then run again.
    """

    number: int
    contents: Mapping[str, bytes]

    @classmethod
    def of(cls, state: StateFolder, number: int, places: Iterable[Place]) -> TaskFiles:
        """What tasks need to know of these partitions: who is settled, and who has failed how often."""
        paths = [path for place in places for path in (state.states(number, place), state.failures(place))]
        there = [path for path in paths if path.exists()]
        return cls(number, {str(path.relative_to(state.root)): path.read_bytes() for path in there})

    @contextmanager
    def unpacked(self) -> Iterator[Path]:
        """A folder of the task's own machine with these files, until the block ends."""
        with tempfile.TemporaryDirectory(prefix="floodmark-task-") as root:
            StateFolder(Path(root)).prepare(self.number)
            for name, content in self.contents.items():
                Path(root, name).write_bytes(content)
                Path(root, "locks", Path(name).stem).touch()  # tasks that share a partition do not make it themselves
            yield Path(root)

    def changes(self, root: Path) -> Iterator[tuple[str, bytes]]:
        """What a task has done: the journals that it changed, and what it added to all other files."""
        for path in sorted(file for part in ("turns", "failures") for file in (root / part).rglob("*")):
            name, content = str(path.relative_to(root)), path.read_bytes() if path.is_file() else b""
            before = self.contents.get(name, b"")
            if content != before:
                yield name, content if name.endswith(JOURNAL) else content[len(before) :]

    def take_back(self, root: Path, changes: Iterable[tuple[str, bytes]]) -> None:
        """Put what tasks have done into the stream's folder: a record's byte last, as it says that all is there."""
        for name, content in sorted(changes, key=lambda change: change[0].endswith(JOURNAL)):
            if name.endswith(JOURNAL):
                self._merge(root / name, self.contents[name], content)
            else:
                _append(root / name, content)

    def _merge(self, path: Path, before: bytes, after: bytes) -> None:
        """Several tasks may have had the same journal, each for records of its own."""
        with path.open("r+b") as file:
            now = bytearray(file.read())
            for place in (place for place, state in enumerate(after) if state != before[place]):
                now[place] = after[place]
            file.seek(0)
            file.write(now)
            file.flush()
            os.fsync(file.fileno())


def _append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def require_known_folder(root: Path) -> int:
    """The version of a stream's files. Raises FormatTooNew if this program does not know it."""
    found = FIRST
    with suppress(FileNotFoundError):
        found = int((root / FORMAT_FILE).read_text())
    require_known(found, "what a stream keeps", where=str(root), known=VERSION)
    return found


def mark_version(root: Path) -> None:
    """Say that what is written from now on is of this version: an older program must not read it."""
    if require_known_folder(root) != VERSION:
        replace_file(root / FORMAT_FILE, f"{VERSION}\n")


def _file_stem(place: Place) -> str:
    return f"{file_name(place[0])}.{place[1]}"

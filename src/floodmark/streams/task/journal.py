"""What the tasks of a turn write as they go, in a folder that the driver and all executors share.

The journal is one byte for every offset, set before and after the user's code runs; the log of failures and the healed
rows lie beside it. A task that is evaluated twice, or again after its worker died, finds there what is settled. Whoever
writes holds the lock of the partition.
"""

from __future__ import annotations

import json
import mmap
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeAlias

from floodmark.logs import redact
from floodmark.machine import replace_file, sync_folder

if TYPE_CHECKING:
    from floodmark.hwm import Json


UNTOUCHED, RUNNING, DONE, DROPPED, FAILED, HELD, SUSPECT, ALONE, KILLED, EARLIER, DEAD, PASSED = range(12)
"""HELD: a step keeps the record for its batch. SUSPECT: its worker died while it ran, perhaps because of another.
ALONE: a suspect runs by itself. KILLED: it died then too. EARLIER: settled before this turn. DEAD: given up.
PASSED: its first steps are over, and what they made is on disk for those that span the stream."""

OUTCOMES = {"done": DONE, "dropped": DROPPED, "failed": FAILED, "passed": PASSED}
TAKEN = bytes((DONE, DROPPED, FAILED, HELD, DEAD))
_UNSETTLED = re.compile(b"[^%s]" % re.escape(bytes((UNTOUCHED, DONE, DROPPED, EARLIER, DEAD))))
LONGEST_ERROR = 4_000
Headers: TypeAlias = "tuple[tuple[str, bytes | None], ...]"


@dataclass(frozen=True)
class Journal:
    """The bytes of one partition in one turn; the first stands for offset `low`."""

    low: int
    states: mmap.mmap | SharedStates

    @classmethod
    @contextmanager
    def open(cls, path: Path, low: int) -> Iterator[Journal]:
        """The journal as it is on disk; hold the lock of its partition."""
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as states:
            yield cls(low, states)

    @classmethod
    @contextmanager
    def open_share(cls, path: Path, low: int) -> Iterator[Journal]:
        """The same for a task beside others: what it writes are its own bytes, one by one."""
        with path.open("r+b", buffering=0) as file:
            yield cls(low, SharedStates(file.fileno()))

    @property
    def upto(self) -> int:
        return self.low + len(self.states)

    def blame(self, *, alone: int = KILLED) -> bool:
        """After a crash: who was running may have caused it, and who ran alone did. Says whether there was anybody.

        `alone` is SUSPECT where the driver may have died as well.
        """
        running, by_itself = self.offsets(RUNNING), self.offsets(ALONE)
        self.set_state(running, SUSPECT)
        self.set_state(by_itself, alone)
        return bool(running or by_itself)

    def let_go(self, carried: Iterable[int], passed: Iterable[int] = ()) -> None:
        """What a step held and nobody carries has to come again: from disk, if it `passed` the first steps there."""
        lost = set(self.offsets(HELD)) - set(carried)
        self.set_state(lost.difference(passed), UNTOUCHED)
        self.set_state(lost.intersection(passed), PASSED)

    def offsets(self, *states: int) -> list[int]:
        """The records in these states, in order."""
        content = bytes(self.states)
        return sorted(self.low + place for state in states for place in _places(content, state))

    def set_state(self, offsets: Iterable[int], state: int) -> None:
        """Set the state of some records."""
        for offset in offsets:
            self.states[offset - self.low] = state

    def touched_upto(self) -> int:
        """The offset after the last one that has any state."""
        return self.low + len(bytes(self.states).rstrip(bytes((UNTOUCHED,))))

    def unsettled_offsets(self, start: int, upto: int, read_upto: int) -> list[int]:
        """Records below `read_upto` that wait, once a job has read from `start` to before `upto` to its end.

        Where that job met nothing, there is no record; what lies beside its range was not asked for and waits.
        """
        waiting = [self.low + match.start() for match in _UNSETTLED.finditer(bytes(self.states))]
        unread = [*self._untouched_offsets(self.low, start), *self._untouched_offsets(upto, read_upto)]
        return sorted(offset for offset in {*waiting, *unread} if offset < read_upto)

    def _untouched_offsets(self, start: int, end: int) -> list[int]:
        part = self.states[max(start - self.low, 0) : max(end - self.low, 0)]
        return [max(start, self.low) + place for place in _places(part, UNTOUCHED)]

    def count(self, *states: int) -> int:
        """How many records are in these states."""
        content = bytes(self.states)
        return sum(content.count(state) for state in states)


class SharedStates:
    """The bytes of a journal for a task that shares a partition with others, perhaps on other machines.

    Only its own bytes are ever written, each by itself: a mapped page would bring back what another task has changed.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._seen = bytearray(os.pread(descriptor, os.fstat(descriptor).st_size, 0))

    def __len__(self) -> int:
        return len(self._seen)

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401 (a number or a slice, as of bytes)
        return self._seen[place]

    def __setitem__(self, place: int, state: int) -> None:
        os.pwrite(self._descriptor, bytes((state,)), place)
        self._seen[place] = state

    def __bytes__(self) -> bytes:
        return bytes(self._seen)

    def flush(self) -> None:
        """Make them outlive the machine."""
        os.fsync(self._descriptor)


def create_journal(path: Path, low: int, upto: int, states: Iterable[tuple[int, int, int]]) -> None:
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
    return [match.start() for match in re.finditer(re.escape(bytes((state,))), states)]


class RawRecord(NamedTuple):
    """A record as Kafka gave it; `timestamp` counts milliseconds."""

    key: bytes | None
    value: bytes | None
    headers: Headers | None
    timestamp: int

    def serialize(self) -> dict[str, Json]:
        headers: Json = None if self.headers is None else [[name, bytes_to_text(value)] for name, value in self.headers]
        key, value = bytes_to_text(self.key), bytes_to_text(self.value)
        return {"key": key, "value": value, "headers": headers, "timestamp": self.timestamp}

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> RawRecord:
        headers = stored["headers"]
        pairs = None if headers is None else tuple((name, bytes_from_text(value)) for name, value in headers)
        return cls(bytes_from_text(stored["key"]), bytes_from_text(stored["value"]), pairs, stored["timestamp"])


@dataclass(frozen=True)
class FailedRecord:
    """A record that failed: how often, when first and last (seconds of the epoch), and why the last time."""

    offset: int
    attempts: int
    first_at: float
    last_at: float
    step: str
    error: str
    raw: RawRecord = field(repr=False)

    def __str__(self) -> str:
        return f"{self.step}: {self.error}" if self.step else self.error


def read_failures(path: Path) -> dict[int, FailedRecord]:
    """The failed records by their offsets; a line that a crash cut off is none."""
    failures: dict[int, FailedRecord] = {}
    for entry in _entries(path):
        offset, known = entry["offset"], failures.get(entry["offset"])
        if known is None and "record" not in entry:
            continue
        last = {"attempts": entry["attempt"], "last_at": entry["at"], "step": entry["step"], "error": entry["error"]}
        if known is None:
            raw = RawRecord.deserialize(entry["record"])
            failures[offset] = FailedRecord(offset, first_at=entry["at"], raw=raw, **last)
        else:
            failures[offset] = replace(known, **last)
    return failures


class FailureLog:
    """The failed records of one partition: every attempt with its error, and the record's bytes at the first one.

    It outlives the turn, so that a record can be tried again when Kafka's retention has taken it away. Open for whoever
    holds the lock of the partition.
    """

    def __init__(self, path: Path, guard: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self.records = read_failures(path)
        self._file: BinaryIO | None = None
        self._path = path
        self._guard = guard
        """For a log that other tasks write to as well: held for every line."""
        self._is_synced = True

    def attempts(self, offset: int) -> int:
        """How often the record has failed already."""
        known = self.records.get(offset)
        return known.attempts if known else 0

    def add(self, offset: int, *, at: float, step: str, error: str, raw: RawRecord) -> None:
        """One more failed attempt; it survives this process on return, and the machine after `sync`."""
        known = self.records.get(offset)
        text = redact(error)[:LONGEST_ERROR]
        failed = FailedRecord(offset, self.attempts(offset) + 1, known.first_at if known else at, at, step, text, raw)
        entry: dict[str, Json] = {"offset": offset, "attempt": failed.attempts, "at": at, "step": step, "error": text}
        if known is None:
            entry["record"] = raw.serialize()
        with self._guard():
            self._open().write(json.dumps(entry).encode() + b"\n")
        self.records[offset], self._is_synced = failed, False

    def sync(self) -> None:
        """Make what was added durable."""
        if self._file is not None and not self._is_synced:
            os.fsync(self._file.fileno())
            self._is_synced = True

    def close(self) -> None:
        """Make it durable and let go of the file."""
        self.sync()
        if self._file is not None:
            self._file.close()

    def _open(self) -> BinaryIO:
        if self._file is None:
            self._file = self._path.open("ab", buffering=0)
            if self._file.tell() and not self._path.read_bytes().endswith(b"\n"):
                self._file.write(b"\n")  # a crash cut the last line off; the next must not become part of it
        return self._file


def keep_failures(path: Path, offsets: Collection[int]) -> None:
    """Forget the records that are settled now; hold the lock of the partition."""
    if not path.exists():
        return
    if not offsets:
        path.unlink()
        return
    lines = [json.dumps(entry) for entry in _entries(path) if entry["offset"] in offsets]
    replace_file(path, "".join(f"{line}\n" for line in lines))


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                yield json.loads(line)
            except ValueError:
                continue


def bytes_to_text(value: bytes | None) -> str | None:
    """In Base64, as it is kept in lines of JSON; null stays null."""
    return None if value is None else b64encode(value).decode()


def bytes_from_text(text: str | None) -> bytes | None:
    """What `bytes_to_text` was given."""
    return None if text is None else b64decode(text)

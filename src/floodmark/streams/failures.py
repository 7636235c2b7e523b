"""The log of failed records of one partition: every attempt with its error, and the record's bytes at the first one.

It outlives the turn, so that a record can be tried again when Kafka's retention has taken it away.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

from floodmark.hwm import Json
from floodmark.logs import redact
from floodmark.stores.durable import replace_file
from floodmark.streams.base64_text import bytes_of, text_of

LONGEST_ERROR = 4_000

Headers: TypeAlias = "tuple[tuple[str, bytes | None], ...]"


class Raw(NamedTuple):
    """A record as Kafka gave it; `timestamp` counts milliseconds."""

    key: bytes | None
    value: bytes | None
    headers: Headers | None
    timestamp: int

    def serialize(self) -> dict[str, Json]:
        headers: Json = None if self.headers is None else [[name, text_of(value)] for name, value in self.headers]
        return {"key": text_of(self.key), "value": text_of(self.value), "headers": headers, "timestamp": self.timestamp}

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> Raw:
        headers = stored["headers"]
        found = None if headers is None else tuple((name, bytes_of(value)) for name, value in headers)
        return cls(bytes_of(stored["key"]), bytes_of(stored["value"]), found, stored["timestamp"])


@dataclass(frozen=True)
class Failed:
    """A record that failed: how often, when first and last (seconds of the epoch), and why the last time."""

    offset: int
    attempts: int
    first_at: float
    last_at: float
    step: str
    error: str
    raw: Raw = field(repr=False)

    def __str__(self) -> str:
        return f"{self.step}: {self.error}" if self.step else self.error


def read(path: Path) -> dict[int, Failed]:
    """The failed records by their offsets; a line that a crash cut off is none."""
    found: dict[int, Failed] = {}
    for entry in _entries(path):
        offset, known = entry["offset"], found.get(entry["offset"])
        if known is None and "record" not in entry:
            continue
        last = {"attempts": entry["attempt"], "last_at": entry["at"], "step": entry["step"], "error": entry["error"]}
        if known is None:
            found[offset] = Failed(offset, first_at=entry["at"], raw=Raw.deserialize(entry["record"]), **last)
        else:
            found[offset] = replace(known, **last)
    return found


class FailureLog:
    """The log, open for whoever holds the lock of the partition."""

    def __init__(self, path: Path) -> None:
        self.known = read(path)
        self._file: BinaryIO | None = None
        self._path = path
        self._is_synced = True

    def attempts(self, offset: int) -> int:
        """How often the record has failed already."""
        known = self.known.get(offset)
        return known.attempts if known else 0

    def add(self, offset: int, *, at: float, step: str, error: str, raw: Raw) -> None:
        """One more failed attempt; it survives this process on return, and the machine after `sync`."""
        known = self.known.get(offset)
        told = redact(error)[:LONGEST_ERROR]
        failed = Failed(offset, self.attempts(offset) + 1, known.first_at if known else at, at, step, told, raw)
        entry: dict[str, Json] = {"offset": offset, "attempt": failed.attempts, "at": at, "step": step, "error": told}
        if known is None:
            entry["record"] = raw.serialize()
        self._opened().write(json.dumps(entry).encode() + b"\n")
        self.known[offset], self._is_synced = failed, False

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

    def _opened(self) -> BinaryIO:
        if self._file is None:
            self._file = self._path.open("ab", buffering=0)
            if self._file.tell() and not self._path.read_bytes().endswith(b"\n"):
                self._file.write(b"\n")  # a crash cut the last line off; the next must not become part of it
        return self._file


def keep_only(path: Path, offsets: Collection[int]) -> None:
    """Forget the records that are settled now; hold the lock of the partition."""
    if not path.exists():
        return
    if not offsets:
        path.unlink()
        return
    kept = [json.dumps(entry) for entry in _entries(path) if entry["offset"] in offsets]
    replace_file(path, "".join(f"{line}\n" for line in kept))


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                yield json.loads(line)
            except ValueError:
                continue

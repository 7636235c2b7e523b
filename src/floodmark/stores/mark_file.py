"""The text of a mark file: line 1 names job and stamp, line 2 is the record, the rest are history and receipts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from floodmark.errors import MarkUnreadable
from floodmark.stores.page import Entry
from floodmark.stores.wire import compact

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Part = Literal["history", "run"]


@dataclass(frozen=True)
class MarkFile:
    """Everything that one rename commits. `logs` says how many bytes of each log of items are committed."""

    entry: Entry | None = None
    logs: Mapping[str, int] = field(default_factory=dict)
    tail: tuple[str, ...] = ()

    def text(self, job: str) -> str:
        one = self.entry
        first = {"format": 1, "job": job, "stamp": one and one.stamp, "number": one and one.number}
        whole = {**first, "modified_time": one and one.modified_time, "logs": dict(self.logs)}
        return "\n".join([compact(whole), one.val if one else "null", *self.tail, ""])

    def newest(self, part: Part, limit: int) -> list[str]:
        start = _prefix(part)
        return [line[len(start) : -1] for line in reversed(self.tail) if line.startswith(start)][:limit]

    def with_line(self, part: Part, text: str, keep: int) -> MarkFile:
        """The file with a line more, and without the oldest ones of that part above `keep`."""
        return replace(self, tail=(*self.tail, f"{_prefix(part)}{text}}}")).trimmed(part, keep)

    def trimmed(self, part: Part, keep: int) -> MarkFile:
        """The file without the oldest lines of that part above `keep`."""
        dropped = frozenset([at for at, line in enumerate(self.tail) if line.startswith(_prefix(part))][:-keep])
        return replace(self, tail=tuple(line for at, line in enumerate(self.tail) if at not in dropped))


def _prefix(part: Part) -> str:
    return f'{{"{part}":'


def peek(path: Path, job: str, where: str) -> Mapping[str, Any] | None:
    """Line 1 alone; None if there is no file."""
    try:
        with path.open("rb") as file:
            return _first(file.readline(), job, where)
    except FileNotFoundError:
        return None


def load(path: Path, job: str, where: str) -> MarkFile:
    """The whole file; an empty MarkFile if there is none. Raises MarkUnreadable if it is damaged."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return MarkFile()
    first = _first(lines[0] if lines else b"", job, where)
    if len(lines) < 2 or not lines[1].endswith(b"\n"):
        raise MarkUnreadable(job, where=where, reason="its file ends in the middle of the record")
    entry = (
        Entry(first["stamp"], first["number"], first["modified_time"], _decoded(lines[1])) if first["stamp"] else None
    )
    return MarkFile(entry, first["logs"], tuple(_decoded(line) for line in lines[2:]))


def salvage(path: Path) -> MarkFile:
    """What can be kept of a damaged file when its record is replaced: history and receipts."""
    lines = (_decoded(line) for line in path.read_bytes().splitlines())
    return MarkFile(tail=tuple(line for line in lines if line.startswith((_prefix("history"), _prefix("run")))))


def _first(line: bytes, job: str, where: str) -> Mapping[str, Any]:
    try:
        first: dict[str, Any] = json.loads(line)
        if line.endswith(b"\n") and first["format"] == 1 and {"job", "stamp", "number", "logs"} <= first.keys():
            return first
        reason = "its file is not of a format that this version knows"
    except (ValueError, KeyError, TypeError) as error:
        reason = f"the first line of its file is damaged ({error})"
    raise MarkUnreadable(job, where=where, reason=reason)


def _decoded(line: bytes) -> str:
    # A damaged byte is shown and kept: what needs the line finds it unreadable by itself.
    return line.decode("utf-8", "backslashreplace").rstrip("\n")

"""Marks on files: the list of those that were read, or the modification time up to which they were.

Paths in them are text, absolute and under their directory, on a disk or behind a scheme such as `s3a://bucket`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from floodmark.errors import MarkInvalid
from floodmark.hwm.columns import OrderedHWM
from floodmark.hwm.maps import FrozenMap
from floodmark.hwm.mark import HWM, Json, register
from floodmark.hwm.parsing import (
    EPOCH,
    EXACT,
    database_text,
    exact_decimal,
    from_json_text,
    split_moment,
    strict_int,
    to_nanoseconds,
)

if TYPE_CHECKING:
    from typing_extensions import Self


_ROOT = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?)?(?=/)")


def directory_path(kind: str, path: object) -> str:
    """The absolute path of a directory, without the slash at its end."""
    text = _text(kind, path)
    found = absolute_path(kind, text if text.endswith("/") else text + "/")
    return (found.rstrip("/") or "/") if found.startswith("/") else found[:-1]


def file_path(kind: str, path: object, directory: str | None) -> str:
    """The absolute path of a file below the directory; any other is refused, also if it leaves it by `..`."""
    found = absolute_path(kind, _text(kind, path))
    if directory is not None and not found.startswith(directory if directory == "/" else directory + "/"):
        raise MarkInvalid(kind, path, reason=f"it is not under {directory}")
    return found


def absolute_path(kind: str, path: str) -> str:
    """The path without `.` and `..`; a relative one is refused."""
    local = path.startswith("/")
    if local and "/." not in path and "//" not in path:
        return path
    root = _ROOT.match(path)
    if not root:
        raise MarkInvalid(kind, path, reason="a path must be absolute")
    return f"{root[0]}/{'/'.join(_segments(kind, path[root.end() + 1 :], local))}"


def _segments(kind: str, path: str, local: bool) -> list[str]:
    kept: list[str] = []
    for segment in path.split("/"):
        # `a//b` is `a/b` on a disk, but another object in an object store.
        if segment == "." or (local and not segment):
            continue
        if segment == ".." and not kept:
            raise MarkInvalid(kind, path, reason="it leads above the root")
        kept.pop() if segment == ".." else kept.append(segment)
    return kept


def _text(kind: str, path: object) -> str:
    if isinstance(path, str):
        return path
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise MarkInvalid(kind, path, reason="a path is text")
    return text


SHOWN_AT_MOST = 20

_EMPTY: FrozenMap[str, FileStat | None] = FrozenMap()


class FileStat(NamedTuple):
    """What tells a rewritten file from the one that was read: its size in bytes, and nanoseconds since 1970.

    >>> FileStat(size=120, modified_ns=1_767_225_600_000_000_000) == FileStat(121, 1_767_225_600_000_000_000)
    False
    """

    size: int
    modified_ns: int


Files: TypeAlias = FrozenMap[str, "FileStat | None"]


@register
class FileListHWM(HWM[Files]):
    """Every file that was read: absolute paths under `directory`, each with its size and modification time if known.

    A value is a map from paths to (size, nanoseconds since 1970), or one path or many without them.

    >>> FileListHWM("files", ["/in/a.json"], directory="/in").covers("/in/a.json")
    True
    """

    kind: ClassVar[str] = "file_list"
    entity_alias: ClassVar[str | None] = "directory"
    empty: ClassVar[object] = _EMPTY

    def parse(self, value: object) -> Files:
        files = from_json_text(self.kind, value)
        if isinstance(files, (str, os.PathLike)):
            return self._from_entries([(files, None)])
        if isinstance(files, Mapping):
            return self._from_entries(files.items())
        if isinstance(files, Iterable) and not isinstance(files, (bytes, bytearray)):
            return self._from_entries((path, None) for path in files)
        raise MarkInvalid(self.kind, value, reason="not a path, paths, or a map from paths to (size, nanoseconds)")

    def parse_entity(self, entity: object) -> str:
        return directory_path(self.kind, entity)

    def dump(self) -> Json:
        return self.items()

    def show(self) -> Json:
        if len(self.value) <= SHOWN_AT_MOST:
            return [*sorted(self.value)]
        return {"files": len(self.value), "newest": self._newest()}

    def covers(self, value: object) -> bool:
        """Whether these files were read as they are now; where a size and time is not known, the path decides."""
        return all(self._was_read(path, stat) for path, stat in self.parse(value).items())

    def reaches(self, value: Files) -> bool:
        return not self._news(value)

    def joined(self, value: Files) -> Files:
        return self.value.plus(self._news(value))

    def items(self) -> dict[str, Json]:
        return {path: _item(stat) for path, stat in self.value.items()}

    def count(self) -> int:
        return len(self.value)

    def items_since(self, older: HWM[Any]) -> dict[str, Json] | None:
        added = self.value.entries_since(older.value)
        return None if added is None else {path: _item(stat) for path, stat in added.items()}

    def with_items(self, items: Mapping[str, Json]) -> Self:
        return self._with(self.parse(items), self.modified_time)

    def __add__(self, files: object) -> Self:
        return self.update(files)

    def __sub__(self, files: object) -> Self:
        gone = self.parse(files)
        kept = {path: stat for path, stat in self.value.items() if path not in gone}
        return self._with(FrozenMap(kept), None) if len(kept) < len(self.value) else self

    def _was_read(self, path: str, stat: FileStat | None) -> bool:
        known = self.value.get(path)
        return path in self.value and (known is None or stat is None or known == stat)

    def _news(self, files: Files) -> dict[str, FileStat | None]:
        """What the mark does not know yet: new paths, and other sizes or times of known ones."""
        known = self.value
        return {
            path: stat
            for path, stat in files.items()
            if path not in known or (stat is not None and known[path] != stat)
        }

    def _newest(self) -> str:
        return max(self.value.items(), key=lambda item: (item[1].modified_ns if item[1] else -1, item[0]))[0]

    def _from_entries(self, entries: Iterable[tuple[object, object]]) -> Files:
        found: dict[str, FileStat | None] = {}
        for given, given_stat in entries:
            path, stat = file_path(self.kind, given, self.entity), self._stat(given, given_stat)
            if found.setdefault(path, stat) != stat:
                raise MarkInvalid(self.kind, given, reason="it is there twice, with another size or time")
        return FrozenMap(found)

    def _stat(self, path: object, stat: object) -> FileStat | None:
        if stat is None or type(stat) is FileStat:
            return stat
        if not isinstance(stat, (tuple, list)) or len(stat) != 2:
            raise MarkInvalid(self.kind, {path: stat}, reason="not (size, nanoseconds since 1970)")
        return FileStat(strict_int(self.kind, stat[0]), strict_int(self.kind, stat[1]))


def _item(stat: FileStat | None) -> Json:
    return None if stat is None else list(stat)


_ONE, _SECOND = Decimal(1), Decimal(10**9)
_FIRST = to_nanoseconds(datetime.min.replace(tzinfo=timezone.utc))
_LAST = to_nanoseconds(datetime.max.replace(tzinfo=timezone.utc)) + 999


class FileMoment(NamedTuple):
    """A file in the order of modification: nanoseconds since 1970, then the path; without one, every file of then.

    >>> FileMoment(1_767_225_600_000_000_000, "/incoming/a.csv").modified.isoformat()
    '2026-01-01T00:00:00+00:00'
    """

    modified_ns: int
    path: str | None = None

    @property
    def modified(self) -> datetime:
        """The modification time, cut to the microseconds that a datetime has room for."""
        return EPOCH + timedelta(microseconds=self.modified_ns // 1000)


@register
class FileModifiedTimeHWM(OrderedHWM[FileMoment]):
    """Everything up to (modification time, path); the path tells files of one instant apart.

    A time is a datetime, ISO text or seconds since 1970; no zone is UTC.

    Nanoseconds, as `st_mtime_ns` gives them, are told from seconds by a `FileMoment`.

    >>> FileModifiedTimeHWM("files", ("2026-01-31T12:00:00Z", "/b.json")).covers(("2026-01-31T12:00:00Z", "/a.json"))
    True
    """

    kind: ClassVar[str] = "file_modification_time"
    entity_alias: ClassVar[str | None] = "directory"

    def parse_entity(self, entity: object) -> str:
        return directory_path(self.kind, entity)

    def read(self, value: object) -> FileMoment:
        if isinstance(value, FileMoment):
            return self._moment(value.modified_ns, value.path, value)
        pair = from_json_text(self.kind, value)
        if not isinstance(pair, (tuple, list)):
            return self._moment(self._nanoseconds(pair), None, value)
        if len(pair) != 2:
            raise MarkInvalid(self.kind, value, reason="not (modification time, path)")
        return self._moment(self._nanoseconds(pair[0]), pair[1], value)

    def write(self, value: FileMoment) -> Json:
        return [database_text(value.modified, value.modified_ns % 1000), value.path]

    def at_or_below(self, low: FileMoment, high: FileMoment) -> bool:
        return _rank(low) <= _rank(high)

    def shift(self, value: FileMoment, by: object, sign: int) -> FileMoment:
        if not isinstance(by, timedelta):
            raise MarkInvalid(self.kind, by, reason="a time moves by a timedelta")
        return FileMoment(value.modified_ns + sign * (by // timedelta(microseconds=1)) * 1000)

    def _moment(self, nanoseconds: int, path: object, given: object) -> FileMoment:
        if isinstance(nanoseconds, bool) or not isinstance(nanoseconds, int) or not _FIRST <= nanoseconds <= _LAST:
            raise MarkInvalid(
                self.kind, given, reason="outside the calendar; a number is seconds, FileMoment takes nanoseconds"
            )
        return FileMoment(nanoseconds, None if path is None else file_path(self.kind, path, self.entity))

    def _nanoseconds(self, value: object) -> int:
        if isinstance(value, datetime):
            return to_nanoseconds(value) + int(getattr(value, "nanosecond", 0))
        if isinstance(value, str):
            moment, nanoseconds = split_moment(self.kind, value)
            return to_nanoseconds(moment) + nanoseconds
        seconds = Decimal(repr(value)) if isinstance(value, float) else exact_decimal(self.kind, value)
        if not seconds.is_finite() or EXACT.remainder(EXACT.multiply(seconds, _SECOND), _ONE):
            raise MarkInvalid(self.kind, value, reason="not seconds since 1970, down to nanoseconds")
        return int(EXACT.multiply(seconds, _SECOND))


def _rank(moment: FileMoment) -> tuple[int, bool, str]:
    # A mark at a time alone lies above every file of that time.
    return moment.modified_ns, moment.path is None, moment.path or ""

"""A mark that remembers every file that was read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias

from floodmark.errors import MarkInvalid
from floodmark.hwm.frozen import FrozenMap
from floodmark.hwm.json_text import from_json_text
from floodmark.hwm.kinds import register
from floodmark.hwm.mark import HWM, Json
from floodmark.hwm.numbers import strict_int
from floodmark.hwm.paths import directory_path, file_path

if TYPE_CHECKING:
    from typing_extensions import Self

SHOWN_AT_MOST = 20

_EMPTY: FrozenMap[str, FileStat | None] = FrozenMap()


class FileStat(NamedTuple):
    """What tells a rewritten file from the one that was read: its size in bytes, and nanoseconds since 1970."""

    size: int
    modified_ns: int


Files: TypeAlias = FrozenMap[str, "FileStat | None"]


@register
class FileListHWM(HWM[Files]):
    """Absolute paths under `directory`, each with its size and modification time, or None where they are not known.

    A value is a map from paths to (size, nanoseconds since 1970), or one path or many without them.
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
        return {path: None if stat is None else list(stat) for path, stat in self.value.items()}

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

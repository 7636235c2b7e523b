"""Which files lie in a folder, with size and modification time, and how many rows a file holds; without Spark.

`scandir` looks at local disks, pyarrow behind a URL. Which files a batch reads is the source's business.
"""

from __future__ import annotations

import json
import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from floodmark.errors import SourceUnreadable
from floodmark.locations import arrow_place, is_remote, path_in_marks
from floodmark.logs import without_login

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyarrow import NativeFile
    from pyarrow.fs import FileInfo, FileSystem


CHUNK_BYTES = 1 << 20


class SeenFile(NamedTuple):
    """A file as it was seen: its absolute path (or URL), its size in bytes, its modification time in nanoseconds."""

    path: str
    size: int
    mtime_ns: int


def list_files(path: str, *, recursive: bool = True, glob: str | None = None) -> list[SeenFile]:
    """Every file in the folder that Spark would read, or the file itself, in no order.

    `glob` is held against a file's name, or against its path below the folder if it has a slash.
    Raises SourceUnreadable if the folder, or any folder below it, is not there or may not be read.
    """
    root = path_in_marks(path)
    listed = _remote_files(root, recursive) if is_remote(root) else _local_files(root, recursive)
    if glob is None:
        return list(listed)
    return [seen for seen in listed if _matches(seen.path, root, glob)]


def _matches(path: str, root: str, glob: str) -> bool:
    subject = path[len(root) :].lstrip("/") if "/" in glob else path.rsplit("/", 1)[-1]
    return fnmatchcase(subject, glob)


def is_hidden(name: str) -> bool:
    """Names that Spark leaves out without a word, so that counting them as read would lose them."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def _local_files(root: str, recursive: bool) -> Iterator[SeenFile]:
    try:
        if Path(root).is_dir():
            yield from _scan(root, recursive)
            return
        state = Path(root).stat()
    except OSError as error:
        raise unreadable(root, error) from error
    _require_visible(root)
    yield SeenFile(root, state.st_size, state.st_mtime_ns)


def _scan(root: str, recursive: bool) -> Iterator[SeenFile]:
    """A stack instead of recursion: deep trees cost no Python frames, and no generator per level."""
    folders = [root]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if is_hidden(entry.name):
                    continue
                if entry.is_dir():
                    folders.extend([entry.path] if recursive else [])
                    continue
                state = _state_of(entry)
                if state:
                    yield SeenFile(entry.path, state.st_size, state.st_mtime_ns)


def _state_of(entry: os.DirEntry[str]) -> os.stat_result | None:
    """A file that went away between the listing and this moment is as if it had never been listed."""
    try:
        return entry.stat()
    except FileNotFoundError:
        return None


def _remote_files(root: str, recursive: bool) -> Iterator[SeenFile]:
    from pyarrow.fs import FileSelector, FileType

    system, below = _open(root)
    try:
        info = system.get_file_info(below)
        if info.type == FileType.File:
            _require_visible(root)
            found = [info]
        else:
            found = system.get_file_info(FileSelector(below, recursive=recursive))
    except OSError as error:
        raise unreadable(root, error) from error
    for each in found:
        relative = each.path[len(below) :].lstrip("/")
        if each.type == FileType.File and not any(map(is_hidden, relative.split("/"))):
            yield SeenFile(f"{root}/{relative}" if relative else root, each.size, _modified_ns(each))


def _open(path: str) -> tuple[FileSystem, str]:
    """As `arrow_place`. Raises SourceUnreadable."""
    try:
        return arrow_place(path)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def _modified_ns(info: FileInfo) -> int:
    return int(info.mtime_ns or 0)


def current_files(paths: Iterable[str]) -> Mapping[str, SeenFile]:
    """The files as they are now; one that is not there any more is left out."""
    wanted = list(paths)
    if wanted and is_remote(wanted[0]):
        return {seen.path: seen for seen in _remote_states(wanted)}
    return {seen.path: seen for seen in map(_local_state, wanted) if seen}


def _local_state(path: str) -> SeenFile | None:
    try:
        state = Path(path).stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, error) from error
    return SeenFile(path, state.st_size, state.st_mtime_ns)


def _remote_states(paths: list[str]) -> Iterator[SeenFile]:
    from pyarrow.fs import FileType

    system, first = _open(paths[0])
    prefix = paths[0][: len(paths[0]) - len(first)]
    try:
        found = system.get_file_info([path[len(prefix) :] for path in paths])
    except OSError as error:
        raise unreadable(paths[0], error) from error
    for path, info in zip(paths, found, strict=True):
        if info.type == FileType.File:
            yield SeenFile(path, info.size, _modified_ns(info))


def _require_visible(path: str) -> None:
    if is_hidden(path.rsplit("/", 1)[-1]):
        reason = "Spark ignores files whose name begins with _ or . or ends with ._COPYING_"
        raise SourceUnreadable(without_login(path), reason=reason, hint="rename the file")


def unreadable(path: str, error: Exception) -> SourceUnreadable:
    """The error of a driver or the system, in our words and without a login."""
    where = getattr(error, "filename", None)
    reason = f"{getattr(error, 'strerror', None) or error}" + (f" ({where})" if where and where != path else "")
    return SourceUnreadable(without_login(path), reason=reason.rstrip("."))


def rows_in(path: str, file_format: str, *, header: bool = True) -> int:
    """The rows of one file; never too few: blank lines and line breaks within quotes count as rows.

    Raises SourceUnreadable, with the file, if it cannot be read.
    """
    if file_format == "parquet":
        return _in_file(path, _parquet_rows)
    if file_format == "json":
        return _in_file(path, _json_values)
    lines = _in_file(path, _lines_in)
    return max(lines - 1, 0) if file_format == "csv" and header else lines


def _in_file(path: str, count: Callable[[NativeFile], int]) -> int:
    import pyarrow as pa

    system, below = _open(path)
    is_parquet = count is _parquet_rows
    try:
        stream = (
            system.open_input_file(below) if is_parquet else system.open_input_stream(below, buffer_size=CHUNK_BYTES)
        )
        with stream:
            return count(stream)
    except (OSError, pa.ArrowInvalid) as error:
        raise unreadable(path, error) from error


def _parquet_rows(stream: NativeFile) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(stream).num_rows)


def _lines_in(stream: NativeFile) -> int:
    count, last = 0, b"\n"
    while chunk := stream.read(CHUNK_BYTES):
        count, last = count + chunk.count(b"\n"), chunk[-1:]
    return count + (last != b"\n")


def _json_values(stream: NativeFile) -> int:
    """The objects of a file that is one JSON value; one that cannot be parsed will be one dead letter."""
    try:
        value = json.loads(stream.read())
    except (ValueError, RecursionError):
        return 1
    return len(value) if isinstance(value, list) else 1

"""Marks in plain files: one file per job, replaced by rename, so that a reader sees the old record or the new one."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from os import SEEK_END
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from floodmark.errors import MarkUnreadable, StoreUnreachable
from floodmark.formats import KEY, require_known
from floodmark.logs import get_logger
from floodmark.machine import append_after, ensure_folder, file_lock, file_name, replace_file, sync_folder
from floodmark.patience import SILENT_SECONDS, saying_after
from floodmark.stores.paged import PagedMarkStore, utc_now
from floodmark.stores.run_index import EVERYTHING
from floodmark.stores.wire import Entry, compact, end_facts, is_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from floodmark.stores.wire import ItemRow, Page


log = get_logger(__name__)
FORMAT = 1
FEW_RUNS = 100
BLOCK = 16 * 1024
Part = Literal["history", "run"]


class FileMarkStore(PagedMarkStore):
    """Marks in a folder; a folder of its own below it for every namespace.

    >>> store = FileMarkStore(f"{folder}/marks", namespace="dev")
    >>> store.jobs(), store.read("orders")
    ([], None)
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        namespace: str = "default",
        keep_history: int = 100,
        keep_runs: int = 1000,
        patience_seconds: float = 10.0,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.folder = Path(folder)
        pages = FilePages(self.folder, namespace, patience_seconds)
        super().__init__(pages, namespace=namespace, keep_history=keep_history, keep_runs=keep_runs, now=now)


class FilePages:
    """The files of one namespace."""

    def __init__(self, root: Path, namespace: str, patience_seconds: float) -> None:
        self._root, self._folder = root, root / file_name(namespace)
        self._patience_seconds = patience_seconds

    def describe(self) -> str:
        return f"file:{self._root}"

    def names(self) -> Sequence[str]:
        with self._reachable():
            return [first["job"] for first in self._firsts()]

    def recorded_names(self) -> Sequence[str]:
        with self._reachable():
            return [first["job"] for first in self._firsts() if first["stamp"]]

    def _firsts(self) -> Iterator[Mapping[str, Any]]:
        paths = self._folder.glob("*.mark.jsonl")
        return filter(None, (peek(path, path.name, self.describe()) for path in paths))

    @contextmanager
    def reading(self, job: str) -> Iterator[Page]:
        stem = file_name(job)
        lock = self._folder / f"{stem}.lock"
        with self._reachable():
            if not lock.exists():  # nobody has written here yet, and a look writes nothing
                yield FilePage(self._folder, stem, job, self.describe())
                return
            with file_lock(lock, exclusive=False, patience_seconds=self._patience_seconds):
                yield FilePage(self._folder, stem, job, self.describe())

    @contextmanager
    def writing(self, job: str) -> Iterator[Page]:
        stem = file_name(job)
        with self._reachable():
            ensure_folder(self._folder)
            with file_lock(self._folder / f"{stem}.lock", exclusive=True, patience_seconds=self._patience_seconds):
                page = FilePage(self._folder, stem, job, self.describe())
                yield page
                page.flush()

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        try:
            with saying_after(SILENT_SECONDS, self._say_that_it_waits):
                yield
        except OSError as error:
            raise StoreUnreachable(self.describe(), reason=f"{type(error).__name__}: {error}") from error

    def _say_that_it_waits(self) -> None:
        log.warning("waiting for the store: another process may hold its lock", store=self.describe())

    def close(self) -> None:
        """Nothing stays open between two calls."""


class FilePage:
    """One job's files, used under its lock; changes are collected and written by `flush`.

    `<job>.mark.jsonl` is the record and all that is committed with it. `<job>.items.<base>.jsonl` are logs of the items
    of itemised marks: how much of them counts stands in the mark file, so that the rows of a crashed save never do.
    `<job>.lease.json` and `<job>.looked` change on their own.
    """

    def __init__(self, folder: Path, stem: str, job: str, where: str) -> None:
        self._folder, self._stem, self._job, self._where = folder, stem, job, where
        self._mark, self._lease, self._looked = (
            folder / f"{stem}.{part}" for part in ("mark.jsonl", "lease.json", "looked")
        )
        self._begin: MarkFile | None = None
        self._loaded: MarkFile | None = None
        self._changed: MarkFile | None = None
        self._rows: list[ItemRow] = []
        self._aside: dict[Path, str | None] = {}

    def stamp(self) -> str | None:
        first = peek(self._mark, self._job, self._where)
        stamp: str | None = first["stamp"] if first else None
        return stamp

    def entry(self) -> Entry | None:
        return self._head().entry

    def save(self, entry: Entry) -> None:
        try:
            self._changed = replace(self._file(), entry=entry)
        except MarkUnreadable:  # only a reset comes as far as this with a damaged record
            self._changed = replace(salvage(self._mark), entry=entry)

    def items(self, source: str, base: int, after: int, upto: int) -> Iterator[tuple[str, str]]:
        length, path = self._head().logs.get(str(base), 0), self._log(base)
        committed = (path.read_bytes() if path.exists() else b"")[:length]
        if len(committed) < length:
            raise MarkUnreadable(
                self._job, where=self._where, reason=f"{path.name} was {length} bytes long and is shorter"
            )
        for line in committed.splitlines():
            if after < int(line[1 : line.index(b",")]) <= upto:  # looked at before parsing: most lines are old ones
                _, found, item, value = json.loads(line)
                if found == source:
                    yield item, compact(value)

    def add_items(self, rows: Sequence[ItemRow]) -> None:
        self._rows += rows

    def keep_bases(self, used: frozenset[tuple[str, int]]) -> None:
        bases = {str(base) for _, base in used}
        file = self._file()
        self._changed = replace(file, logs={base: length for base, length in file.logs.items() if base in bases})

    def history(self, limit: int) -> Sequence[str]:
        return self._file().newest("history", limit)

    def add_history(self, number: int, val: str, keep: int) -> None:
        self._changed = self._file().with_line("history", val, keep)

    def trim_history(self, keep: int) -> None:
        self._changed = self._file().without_oldest("history", keep)

    def runs(self, limit: int) -> Sequence[str]:
        if limit > FEW_RUNS or self._changed is not None or self._loaded is not None:
            return self._file().newest("run", limit)
        return newest_in(self._mark, "run", limit) if peek(self._mark, self._job, self._where) else []

    def count_runs(self) -> int:
        return len(self._file().newest("run", EVERYTHING))

    def run_ends(self, limit: int) -> Sequence[Sequence[object]]:
        return [end_facts(text) for text in self.runs(limit)]

    def runs_named(self, begin: str, limit: int) -> Sequence[str]:
        return [text for text in self.runs(limit) if is_named(text, begin)]

    def add_run(self, text: str, keep: int) -> None:
        self._changed = self._file().with_line("run", text, keep)

    def trim_runs(self, keep: int) -> None:
        self._changed = self._file().without_oldest("run", keep)

    def lease(self) -> str | None:
        return _text(self._lease)

    def put_lease(self, text: str | None) -> None:
        self._aside[self._lease] = text

    def looked(self) -> str | None:
        return _text(self._looked)

    def put_looked(self, text: str) -> None:
        self._aside[self._looked] = text

    def forget(self) -> None:
        self._changed = None
        self._aside = dict.fromkeys((self._mark, self._lease, self._looked))  # the mark first: no log counts without it
        self._aside.update(dict.fromkeys(self._folder.glob(f"{self._stem}.items.*.jsonl")))

    def flush(self) -> None:
        """Items first, then the rename that makes them count, then what nothing points to any more."""
        if self._changed:
            logs = self._append_rows(self._changed.logs)
            replace_file(self._mark, replace(self._changed, logs=logs).text(self._job))
            self._remove_logs(logs)
        for path, text in self._aside.items():
            replace_file(path, text) if text is not None else path.unlink(missing_ok=True)

    def _append_rows(self, committed: Mapping[str, int]) -> Mapping[str, int]:
        logs = dict(committed)
        for base, rows in groupby(sorted(self._rows, key=lambda row: row.base), key=lambda row: row.base):
            lines = (f"[{row.number},{compact(row.source)},{compact(row.item)},{row.value}]\n" for row in rows)
            logs[str(base)] = append_after(self._log(base), logs.get(str(base), 0), "".join(lines))
        if self._rows:
            sync_folder(self._folder)
        return logs

    def _remove_logs(self, logs: Mapping[str, int]) -> None:
        if self._loaded and self._loaded.logs.keys() == logs.keys():
            return
        for path in self._folder.glob(f"{self._stem}.items.*.jsonl"):
            if path.name.split(".")[-2] not in logs:
                path.unlink()

    def _head(self) -> MarkFile:
        """The record and what belongs to it; where the rest is not known yet, without its past."""
        if self._begin is None and self._changed is None and self._loaded is None:
            self._begin = load_head(self._mark, self._job, self._where)
        return self._changed or self._loaded or self._begin or MarkFile()

    def _file(self) -> MarkFile:
        if self._changed is not None:
            return self._changed
        if self._loaded is None:
            self._loaded = load(self._mark, self._job, self._where)
        return self._loaded

    def _log(self, base: int) -> Path:
        return self._folder / f"{self._stem}.items.{base}.jsonl"


@dataclass(frozen=True)
class MarkFile:
    """Everything that one rename commits: line 1 names job and stamp, line 2 is the record, the rest are its past.

    `logs` says how many bytes of each log of items are committed.
    """

    entry: Entry | None = None
    logs: Mapping[str, int] = field(default_factory=dict)
    tail: tuple[str, ...] = ()

    def text(self, job: str) -> str:
        one = self.entry
        first = {KEY: FORMAT, "job": job, "stamp": one and one.stamp, "number": one and one.number}
        whole = {**first, "modified_time": one and one.modified_time, "logs": dict(self.logs)}
        return "\n".join([compact(whole), one.val if one else "null", *self.tail, ""])

    def newest(self, part: Part, limit: int) -> list[str]:
        start = _prefix(part)
        lines = (line for line in reversed(self.tail) if line.startswith(start))
        return [line[len(start) : -1] for line in islice(lines, limit)]

    def with_line(self, part: Part, text: str, keep: int) -> MarkFile:
        """The file with a line more, and without the oldest ones of that part above `keep`."""
        return replace(self, tail=(*self.tail, f"{_prefix(part)}{text}}}")).without_oldest(part, keep)

    def without_oldest(self, part: Part, keep: int) -> MarkFile:
        """The file without the oldest lines of that part above `keep`."""
        dropped = frozenset([at for at, line in enumerate(self.tail) if line.startswith(_prefix(part))][:-keep])
        return replace(self, tail=tuple(line for at, line in enumerate(self.tail) if at not in dropped))


def _prefix(part: Part) -> str:
    return f'{{"{part}":'


def peek(path: Path, job: str, where: str) -> Mapping[str, Any] | None:
    """Line 1 alone; None if there is no file."""
    try:
        with path.open("rb") as file:
            return _header(file.readline(), job, where)
    except FileNotFoundError:
        return None


def load(path: Path, job: str, where: str) -> MarkFile:
    """The whole file; an empty MarkFile if there is none. Raises MarkUnreadable if it is damaged."""
    try:
        with path.open("rb") as file:
            head = _head_in(file, job, where)
            lines = _text_of(file.read()).split("\n")
    except FileNotFoundError:
        return MarkFile()
    return replace(head, tail=tuple(lines if lines[-1] else lines[:-1]))


def load_head(path: Path, job: str, where: str) -> MarkFile:
    """As `load`, without the past that follows the record."""
    try:
        with path.open("rb") as file:
            return _head_in(file, job, where)
    except FileNotFoundError:
        return MarkFile()


def newest_in(path: Path, part: Part, limit: int) -> list[str]:
    """The newest lines of a part, read from the end of the file, most of which is older ones."""
    start, found, rest = _prefix(part), list[str](), b""
    with path.open("rb") as file:
        place = file.seek(0, SEEK_END)
        while place and len(found) < limit:
            size = min(BLOCK, place)
            place = file.seek(place - size)
            rest, *lines = (file.read(size) + rest).split(b"\n")
            texts = (_text_of(line) for line in reversed([rest, *lines] if not place else lines))
            found += [text[len(start) : -1] for text in texts if text.startswith(start)]
    return found[:limit]


def salvage(path: Path) -> MarkFile:
    """What can be kept of a damaged file when its record is replaced: history and receipts."""
    lines = _text_of(path.read_bytes()).split("\n")
    return MarkFile(tail=tuple(line for line in lines if line.startswith((_prefix("history"), _prefix("run")))))


def _head_in(file: BinaryIO, job: str, where: str) -> MarkFile:
    first, record = _header(file.readline(), job, where), file.readline()
    if not record.endswith(b"\n"):
        raise MarkUnreadable(job, where=where, reason="its file ends in the middle of the record")
    text = _text_of(record).rstrip("\n")
    entry = Entry(first["stamp"], first["number"], first["modified_time"], text) if first["stamp"] else None
    return MarkFile(entry, first["logs"])


def _header(line: bytes, job: str, where: str) -> Mapping[str, Any]:
    try:
        first: dict[str, Any] = json.loads(line)
        require_known(first[KEY], f"the file of job '{job}'", where=where, known=FORMAT)
        if line.endswith(b"\n") and {"job", "stamp", "number", "logs"} <= first.keys():
            return first
        reason = "the first line of its file is not whole"
    except (ValueError, KeyError, TypeError) as error:
        reason = f"the first line of its file is damaged ({error})"
    raise MarkUnreadable(job, where=where, reason=reason)


def _text_of(content: bytes) -> str:
    # A damaged byte is shown and kept: what needs the line finds it unreadable by itself.
    return content.decode("utf-8", "backslashreplace")


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None

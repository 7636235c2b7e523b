"""The files of one job, changed under its lock.

`<job>.mark.jsonl` is the record and all that is committed with it. `<job>.items.<base>.jsonl` are logs of the items of
itemised marks: how much of them counts stands in the mark file, so that the rows of a crashed save never do.
`<job>.lease.json` and `<job>.looked` change on their own.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from floodmark.errors import MarkUnreadable
from floodmark.stores.durable import append_after, replace_file, sync_folder
from floodmark.stores.mark_file import MarkFile, load, peek, salvage
from floodmark.stores.wire import compact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from floodmark.stores.page import Entry, ItemRow


class FilePage:
    """One job's files; changes are collected and written by `flush`."""

    def __init__(self, folder: Path, stem: str, job: str, where: str) -> None:
        self._folder, self._stem, self._job, self._where = folder, stem, job, where
        self._mark, self._lease, self._looked = (
            folder / f"{stem}.{part}" for part in ("mark.jsonl", "lease.json", "looked")
        )
        self._loaded: MarkFile | None = None
        self._changed: MarkFile | None = None
        self._rows: list[ItemRow] = []
        self._aside: dict[Path, str | None] = {}

    def stamp(self) -> str | None:
        first = peek(self._mark, self._job, self._where)
        stamp: str | None = first["stamp"] if first else None
        return stamp

    def entry(self) -> Entry | None:
        return self._file().entry

    def save(self, entry: Entry) -> None:
        try:
            self._changed = replace(self._file(), entry=entry)
        except MarkUnreadable:  # only a reset comes as far as this with a damaged record
            self._changed = replace(salvage(self._mark), entry=entry)

    def items(self, source: str, base: int, after: int, upto: int) -> Iterator[tuple[str, str]]:
        length, path = self._file().logs.get(str(base), 0), self._log(base)
        committed = (path.read_bytes() if path.exists() else b"")[:length]
        if len(committed) < length:
            raise MarkUnreadable(
                self._job, where=self._where, reason=f"{path.name} was {length} bytes long and is shorter"
            )
        for line in committed.splitlines():
            if after < int(line[1 : line.index(b",")]) <= upto:  # told before parsing: most lines are old ones
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
        self._changed = self._file().trimmed("history", keep)

    def runs(self, limit: int) -> Sequence[str]:
        return self._file().newest("run", limit)

    def add_run(self, text: str, keep: int) -> None:
        self._changed = self._file().with_line("run", text, keep)

    def trim_runs(self, keep: int) -> None:
        self._changed = self._file().trimmed("run", keep)

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

    def _file(self) -> MarkFile:
        if self._changed is not None:
            return self._changed
        if self._loaded is None:
            self._loaded = load(self._mark, self._job, self._where)
        return self._loaded

    def _log(self, base: int) -> Path:
        return self._folder / f"{self._stem}.items.{base}.jsonl"


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None

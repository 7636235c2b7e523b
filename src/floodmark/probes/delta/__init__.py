"""A Delta table through its log, without a JVM; rows are read only where somebody asks for some of them.

Which commits it has and what each did, how it stood at a version, and which of its files are gone.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

from floodmark.errors import DeltaTableMissing, SourceUnreadable
from floodmark.errors.causes import cause_of
from floodmark.hwm import Json
from floodmark.locations import local_path, native_uri
from floodmark.object_stores import delta_options
from floodmark.probes.delta.commits import Commit as Commit
from floodmark.probes.delta.commits import FileActions
from floodmark.probes.delta.commits import note as note

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable


T = TypeVar("T")

FEED = "delta.enableChangeDataFeed"
FENCE_COLUMN = "_fm_fence"
"""The only column of a table that was made to take a number before any row came: it counts as not there yet."""

SETTLED_NANOSECONDS = 2_000_000_000
"""How old the time of a folder has to be for a change of now to show in it, on disks that keep whole seconds too."""
COMMITS_AT_ONCE = 8
"""How many files of a log are read side by side: in an object store each takes a while."""
KEPT_COMMITS = 1_000
"""What a probe remembers of a log between two looks, at least: about a megabyte."""


class DeltaProbe:
    """Answers about one table. `refresh` looks at the log; every other question is answered as of that look."""

    def __init__(self, where: str) -> None:
        self.where = native_uri(where)
        self.local = local_path(where)
        self._table: DeltaTable | None = None
        self._head: tuple[int, int] | None = None
        self._log_settled: int | None = None
        self._commits: dict[int, Commit] = {}
        self._asked_after: int | None = None
        self._judged_version: int | None = None
        self._is_fence = False

    def refresh(self) -> bool:
        """Look again; False if there is no such table, or only a fence in its place.

        Raises SourceUnreadable if it could not look.
        """
        # A table that was dropped and made anew looks like one that stands still to a handle that is only updated:
        # it is updated only while the newest commit it knows is the very same file, which a remote store cannot tell.
        if self._table is not None and self._head is not None and self._head == self._head_now():
            if self._has_grown(self._table.version()):
                self._call(self._table.update_incremental)
        else:
            self._table, self._commits, self._judged_version = self._open(), {}, None
        self._head = self._head_now()
        self._forget_old_commits()
        return self._table is not None and not self.has_only_fences()

    def has_only_fences(self) -> bool:
        """Whether the table was made by a fence, and no batch has given it columns yet."""
        if self._table is not None and self._judged_version != self._table.version():
            self._is_fence = list(column_types(self._table)) == [FENCE_COLUMN]
            self._judged_version = self._table.version()
        return self._table is not None and self._is_fence

    def latest(self) -> int:
        return self._handle().version()

    def table_id(self) -> str:
        return str(self._handle().metadata().id)

    def columns(self) -> dict[str, str]:
        """By name, each with its type as Delta writes it."""
        return column_types(self._handle())

    def feed_is_on(self) -> bool:
        return self.properties().get(FEED, "false").lower() == "true"

    def properties(self) -> dict[str, str]:
        """The table's own settings."""
        return dict(self._handle().metadata().configuration)

    def features(self) -> TableFeatures:
        """What whoever writes to the table has to be able to do."""
        found = self._handle().protocol()
        listed = None if found.writer_features is None else frozenset(found.writer_features)
        return TableFeatures(found.min_writer_version, listed)

    def schema_json(self) -> str:
        """The columns as Spark and Delta write them."""
        return self._handle().schema().to_json()

    def partitions(self) -> list[str]:
        """The columns that the table is partitioned by."""
        return list(self._handle().metadata().partition_columns)

    def files(self) -> pa.Table:
        """A row for each file: `size_bytes`, `num_records`, and the lowest and highest value of columns (`min.id`)."""
        return as_arrow(self._handle().get_add_actions(flatten=True))

    def scan(self, predicate: str) -> pa.Table:
        """The rows for which the SQL holds, and perhaps more; the log says in which files they may be."""
        import pyarrow as pa

        table = self._handle()
        schema = pa.schema(table.schema().to_arrow())
        return pa.table(table.scan(schema.names, predicate=predicate)).cast(schema)

    def ask(self, question: Callable[[DeltaTable], T]) -> T:
        """An answer from the table as the last look saw it."""
        return question(self._handle())

    def commit(self, act: Callable[[DeltaTable], None]) -> None:
        """Let `act` commit on top of exactly what the last look saw; the probe knows the table as it is then."""
        act(self._handle())
        self._head = self._head_now()

    def recorded(self, ledger: str) -> int | None:
        """The highest transaction number of an application id."""
        return self._handle().transaction_version(ledger)

    def rows(self) -> int | None:
        """The table's rows by its files' own counts; None where a file has none, an upper bound where rows were
        deleted in place."""
        return rows_in(self.files())

    def rows_at(self, version: int) -> int | None:
        """The rows of an earlier version; None where its log or its files' counts no longer tell."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        if version < 0:
            return 0
        try:
            table = DeltaTable(self.where, version=version, storage_options=delta_options(self.where))
            return rows_in(as_arrow(table.get_add_actions(flatten=True)))
        except (DeltaError, OSError, KeyError):
            return None

    def files_and_bytes(self) -> tuple[int, int]:
        """How many files the table has now, and how large they are together."""
        sizes = self.file_sizes()
        return len(sizes), sum(sizes)

    def file_sizes(self) -> list[int]:
        """The size of each file, in bytes."""
        return self.files().column("size_bytes").to_pylist()  # type: ignore[no-any-return]

    def holds_rows(self) -> bool:
        """Whether a row is there; where the files do not say how many they hold, they count as not empty."""
        return self.rows() != 0

    def commits(self, after: int, upto: int) -> tuple[Commit, ...]:
        """The commits above `after`, oldest first. Those that were cleaned away are missing at the front."""
        wanted = range(after + 1, upto + 1)
        self._asked_after = after if self._asked_after is None else min(after, self._asked_after)
        if not all(version in self._commits for version in wanted):
            self._read_log(self.latest() - after)
        return tuple(self._commits[version] for version in wanted if version in self._commits)

    def file_actions(self, first: int, last: int) -> tuple[FileActions, ...]:
        """What these commits did to the table's files, oldest first. Raises FileNotFoundError if one is gone."""
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        files = PyFileSystem(DeltaStorageHandler(self.where, delta_options(self.where)))

        def actions(version: int) -> FileActions:
            with files.open_input_stream(f"_delta_log/{version:020d}.json") as commit:
                return FileActions.parse(version, commit.read().decode())

        with ThreadPoolExecutor(COMMITS_AT_ONCE) as readers:
            return tuple(readers.map(actions, range(first, last + 1)))

    def oldest(self) -> int:
        """The oldest version whose commit is still in the log."""
        self._read_log(None)
        return min(self._commits)

    def commit_of(self, ledger: str, number: int) -> Commit | None:
        """The commit that wrote a batch, if the log still has it."""
        return next((c for c in self._newest_first() if (c.ledger, c.number) == (ledger, number)), None)

    def last_batch(self, ledger: str) -> Commit | None:
        """The newest commit of a ledger that is no fence, if the log still has it."""
        return next((c for c in self._newest_first() if c.ledger == ledger and c.digest is not None), None)

    def commit_upto(self, ledger: str, number: int) -> Commit | None:
        """The last commit of a ledger up to a batch: that of the batch itself, unless it wrote to other tables only."""
        own = (commit for commit in self._newest_first() if commit.ledger == ledger)
        return next((commit for commit in own if commit.number is not None and commit.number <= number), None)

    def commits_of(self, ledger: str, since: int) -> tuple[Commit, ...]:
        """The commits of a ledger from batch `since` on, oldest first, as far back as the log still has them."""
        own = ((commit, commit.number) for commit in self._newest_first() if commit.ledger == ledger)
        numbered = takewhile(lambda pair: pair[1] is not None and pair[1] >= since, own)
        return tuple(commit for commit, _ in numbered)[::-1]

    def _newest_first(self) -> Iterator[Commit]:
        """Batch commits are nearly always among the newest, so the log is read in growing pieces."""
        seen = self.latest() + 1
        for size in (5, 50, 500, None):
            self._read_log(size)
            yield from (self._commits[v] for v in sorted(self._commits, reverse=True) if v < seen)
            seen = min(self._commits, default=0)
            if seen == 0:
                return

    def _read_log(self, newest: int | None) -> None:
        first = 0 if newest is None else self.latest() + 1 - newest
        if any(version not in self._commits for version in range(max(first, 0), self.latest() + 1)):
            entries = self._call(lambda: self._handle().history(newest))
            self._commits.update({commit.version: commit for commit in map(Commit.parse, entries)})

    def _forget_old_commits(self) -> None:
        """A loop asks for ever: the newest are kept, and those asked for since the last look, as a backlog is."""
        asked_after, self._asked_after = self._asked_after, None
        if self._table is None or len(self._commits) <= KEPT_COMMITS:
            return
        newest_kept = self._table.version() - KEPT_COMMITS
        last_forgotten = newest_kept if asked_after is None else min(newest_kept, asked_after)
        self._commits = {version: commit for version, commit in self._commits.items() if version > last_forgotten}

    def _open(self) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        if self.local is not None and not self._has_log(self.local):
            return None
        try:
            return self._call(lambda: DeltaTable(self.where, storage_options=delta_options(self.where)))
        except TableNotFoundError:
            return None

    def _has_log(self, table: Path) -> bool:
        """The native reader calls a folder that may not be read missing, too; the system tells the two apart."""
        try:
            with os.scandir(table / "_delta_log") as log:
                return any(entry.name.endswith((".json", ".parquet")) for entry in log)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise SourceUnreadable(f"delta table {table}", reason=str(error)) from error

    def _head_now(self) -> tuple[int, int] | None:
        if self.local is None or self._table is None:
            return None
        try:
            found = (self.local / "_delta_log" / f"{self._table.version():020d}.json").stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def _has_grown(self, version: int) -> bool:
        """Whether the folder of the log names anything newer: far cheaper than to have the log read again.

        A log of a month has hundreds of thousands of names, so they are listed only after the folder has changed; one
        that changed just now may change again without its time telling so.
        """
        if self.local is None:
            return True
        log, head = self.local / "_delta_log", f"{version:020d}.json"
        try:
            changed, now = log.stat().st_mtime_ns, time.time_ns()
            if changed == self._log_settled:
                return False
            with os.scandir(log) as names:
                has_grown = any(entry.name > head for entry in names if entry.name[0].isdigit())
        except OSError as error:
            raise SourceUnreadable(f"delta table {self.where}", reason=str(error)) from error
        self._log_settled = changed if not has_grown and now - changed > SETTLED_NANOSECONDS else None
        return has_grown

    def _handle(self) -> DeltaTable:
        if self._table is None:
            self.refresh()
        table = self._table  # once: another thread may look at the same table, and find it gone
        if table is None:
            raise DeltaTableMissing(self.where)
        return table

    def _call(self, look: Callable[[], T]) -> T:
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            return look()
        except TableNotFoundError:
            raise
        except (DeltaError, OSError) as error:
            cause = cause_of(error)
            raise SourceUnreadable(f"delta table {self.where}", reason=cause.reason, hint=cause.hint) from error


@dataclass(frozen=True)
class TableFeatures:
    """The version that a writer has to know, and the features by name; None for a table that has no list of them."""

    writer_version: int
    names: frozenset[str] | None


@dataclass(frozen=True)
class TableState:
    """Columns with their types as Delta writes them, and the size of each file in bytes."""

    columns: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)


def state_at(where: str, version: int) -> TableState | None:
    """The table at a version; None if its log no longer reaches back to it."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if version < 0:
        return TableState()  # before its first version
    try:
        table = DeltaTable(native_uri(where), version=version, storage_options=delta_options(where))
        files = as_arrow(table.get_add_actions(flatten=True))
    except (DeltaError, OSError):
        return None
    sizes = zip(files.column("path").to_pylist(), files.column("size_bytes").to_pylist(), strict=True)
    return TableState(column_types(table), dict(sizes))


def as_arrow(found: object) -> pa.Table:
    """What deltalake gives, as pyarrow's table: `pa.table` would load pandas first, which takes longer than a look."""
    import pyarrow as pa

    return pa.RecordBatchReader.from_stream(found).read_all()


def rows_in(files: pa.Table) -> int | None:
    """The rows of files by their own counts; None where one has none."""
    counts = files.column("num_records").to_pylist()
    return None if None in counts else sum(counts)


def column_types(table: DeltaTable) -> dict[str, str]:
    """The table's columns, each with its type as Delta writes it."""
    fields = json.loads(table.schema().to_json())["fields"]
    return {each["name"]: _type(each["type"]) for each in fields}


def _type(declared: Json) -> str:
    return declared if isinstance(declared, str) else json.dumps(declared, sort_keys=True)


def missing_files(where: str, version: int, latest: int) -> tuple[str, ...] | None:
    """Files of a version that the latest one does not have, and that are not in the table's folder any more.

    None if the log no longer reaches back to the version. Files that lie outside the folder (of a shallow clone) are
    another table's, and are not looked for.
    """
    then, now = state_at(where, version), state_at(where, latest)
    if then is None or now is None:
        return None
    given_up = [unquote(path) for path in then.files.keys() - now.files.keys() if not urlsplit(path).scheme]
    return _lost_paths(where, sorted(given_up)) if given_up else ()


def _lost_paths(where: str, paths: list[str]) -> tuple[str, ...]:
    """One question per file: what vacuum took away is nowhere in the log."""
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import FileType, PyFileSystem

    found = PyFileSystem(DeltaStorageHandler(native_uri(where), delta_options(where))).get_file_info(paths)
    return tuple(each.path for each in found if each.type == FileType.NotFound)

"""A Delta table through its log alone, without a JVM and without a row read.

Which commits it has and what each did, how it stood at a version, and which of its files are gone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from floodmark.errors import SourceUnreadable
from floodmark.formats import with_format, without_format
from floodmark.hwm import Json
from floodmark.locations import local_path, native_uri

if TYPE_CHECKING:
    from deltalake import DeltaTable


T = TypeVar("T")

FEED = "delta.enableChangeDataFeed"
NOTE = "floodmark"
"""The key under which a commit's user metadata names ledger, number and digest of its batch."""

MAINTENANCE = frozenset(
    {
        "ADD COLUMNS",
        "ADD CONSTRAINT",
        "ADD DELETION VECTOR FEATURE",
        "CHANGE COLUMN",
        "CHANGE COLUMNS",
        "CLUSTER BY",
        "COMPUTE STATS",
        "CREATE TABLE",
        "DROP COLUMNS",
        "DROP CONSTRAINT",
        "DROP FEATURE",
        "FSCK",
        "OPTIMIZE",
        "RENAME COLUMN",
        "REORG",
        "REPLACE COLUMNS",
        "SET TBLPROPERTIES",
        "UNSET TBLPROPERTIES",
        "UPDATE COLUMN METADATA",
        "UPDATE SCHEMA",
        "UPGRADE PROTOCOL",
        "VACUUM END",
        "VACUUM START",
    }
)
"""Operations that never bring or take a row. One that is not listed counts as data: a needless read costs little."""

INSERTED = ("numTargetRowsInserted", "numOutputRows", "num_inserted_rows", "num_added_rows")
UPDATED = ("numTargetRowsUpdated", "numUpdatedRows", "num_updated_rows", "num_target_rows_updated")
DELETED = ("numTargetRowsDeleted", "numDeletedRows", "num_deleted_rows", "num_target_rows_deleted")
REMOVED_FILES = ("numRemovedFiles", "num_removed_files")


class DeltaProbe:
    """Answers about one table. `refresh` looks at the log; every other question is answered as of that look."""

    def __init__(self, where: str) -> None:
        self.where = native_uri(where)
        self.local = local_path(where)
        self._table: DeltaTable | None = None
        self._head: tuple[int, int] | None = None
        self._commits: dict[int, Commit] = {}

    def refresh(self) -> bool:
        """Look again; False if there is no such table. Raises SourceUnreadable if it could not look."""
        # A table that was dropped and made anew looks like one that stands still to a handle that is only updated:
        # it is updated only while the newest commit it knows is the very same file, which a remote store cannot tell.
        if self._table is not None and self._head is not None and self._head == self._head_now():
            self._call(self._table.update_incremental)
        else:
            self._table, self._commits = self._open(), {}
        self._head = self._head_now()
        return self._table is not None

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

    def recorded(self, ledger: str) -> int | None:
        """The highest transaction number of an application id."""
        return self._handle().transaction_version(ledger)

    def rows(self) -> int | None:
        """The table's rows by its files' own counts; None where a file has none, an upper bound where rows were
        deleted in place."""
        import pyarrow as pa

        counts = pa.table(self._handle().get_add_actions(flatten=True)).column("num_records").to_pylist()
        return None if None in counts else sum(counts)

    def files_and_bytes(self) -> tuple[int, int]:
        """How many files the table has now, and how large they are together."""
        sizes = self.file_sizes()
        return len(sizes), sum(sizes)

    def file_sizes(self) -> list[int]:
        """The size of each file, in bytes."""
        import pyarrow as pa

        return pa.table(self._handle().get_add_actions(flatten=True)).column("size_bytes").to_pylist()  # type: ignore[no-any-return]

    def holds_rows(self) -> bool:
        """Whether a row is there; where the files do not say how many they hold, they count as not empty."""
        return self.rows() != 0

    def commits(self, after: int, upto: int) -> tuple[Commit, ...]:
        """The commits above `after`, oldest first. Those that were cleaned away are missing at the front."""
        wanted = range(after + 1, upto + 1)
        if not all(version in self._commits for version in wanted):
            self._read_log(self.latest() - after)
        return tuple(self._commits[version] for version in wanted if version in self._commits)

    def oldest(self) -> int:
        """The oldest version whose commit is still in the log."""
        self._read_log(None)
        return min(self._commits)

    def commit_of(self, ledger: str, number: int) -> Commit | None:
        """The commit that wrote a batch, if the log still has it."""
        return next((c for c in self._newest_first() if (c.ledger, c.number) == (ledger, number)), None)

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

    def _open(self) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        if self.local is not None and not self._has_log(self.local):
            return None
        try:
            return self._call(lambda: DeltaTable(self.where))
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

    def _handle(self) -> DeltaTable:
        if self._table is None and not self.refresh():
            raise SourceUnreadable(f"delta table {self.where}", reason="there is no such table")
        assert self._table is not None  # noqa: S101 - tells the type checker what refresh() just said
        return self._table

    def _call(self, look: Callable[[], T]) -> T:
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            return look()
        except TableNotFoundError:
            raise
        except (DeltaError, OSError) as error:
            raise SourceUnreadable(f"delta table {self.where}", reason=str(error).splitlines()[0]) from error


@dataclass(frozen=True)
class Commit:
    """What the log says of one version; counts are None where the log does not give them."""

    version: int
    operation: str
    timestamp_ms: int = 0
    parameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)
    ledger: str | None = None
    number: int | None = None
    digest: str | None = None

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> Commit:
        note = _parse_note(entry.get("userMetadata"))
        return cls(
            version=int(entry["version"]),
            operation=str(entry.get("operation", "")),
            timestamp_ms=int(entry.get("timestamp", 0)),
            parameters={name: str(value) for name, value in (entry.get("operationParameters") or {}).items()},
            metrics=_whole_numbers(entry.get("operationMetrics") or {}),
            ledger=note.get("ledger"),
            number=note.get("number"),
            digest=note.get("digest"),
        )

    @property
    def inserted_rows(self) -> int | None:
        found = self._first(INSERTED)
        if found is None or self.operation == "MERGE":
            return found
        return found - self.metrics.get("numCopiedRows", 0)

    @property
    def updated_rows(self) -> int:
        return self._first(UPDATED) or 0

    @property
    def deleted_rows(self) -> int:
        return self._first(DELETED) or 0

    @property
    def rows_written(self) -> int | None:
        """Rows of a batch that this commit put into the table, or took out of it by a merge."""
        return (
            (self.inserted_rows or 0) + self.updated_rows + self.deleted_rows
            if self.operation == "MERGE"
            else self.inserted_rows
        )

    @property
    def rows_in_feed(self) -> int | None:
        """How many rows the change feed has for it, where the log tells; an update has two."""
        if not (self._is_counted or self.inserted_rows):
            return None
        return (self.inserted_rows or 0) + 2 * self.updated_rows + self.deleted_rows

    @property
    def rewrites(self) -> bool:
        """Whether rows that were there before are gone or other ones now."""
        if self.operation in MAINTENANCE:
            return False
        if self._is_counted:
            return bool(self.updated_rows or self.deleted_rows)
        return self.operation in ("RESTORE", "TRUNCATE") or bool(self._first(REMOVED_FILES))

    @property
    def changes_rows(self) -> bool:
        """Whether a reader of changes has anything to see here; True where the log does not tell."""
        if self.operation in MAINTENANCE:
            return False
        return self.rewrites or bool(self.inserted_rows) or (self.inserted_rows is None and not self._is_counted)

    @property
    def counts_rows(self) -> bool:
        """Whether the log tells all that it did to rows: what an overwrite took away is not counted anywhere."""
        return self._is_counted or (self.inserted_rows is not None and not self.rewrites)

    @property
    def _is_counted(self) -> bool:
        return self._first(UPDATED + DELETED) is not None

    def sets_property(self, name: str) -> bool:
        return name in self.parameters.get("properties", "")

    def _first(self, names: tuple[str, ...]) -> int | None:
        return next((self.metrics[name] for name in names if name in self.metrics), None)


def note(ledger: str, number: int, digest: str | None, **more: Any) -> str:  # noqa: ANN401 - whatever JSON can hold
    """The user metadata that goes into the commit of a batch."""
    facts = {"ledger": ledger, "number": number, "digest": digest, **more}
    return json.dumps({NOTE: with_format(facts)}, sort_keys=True)


def _parse_note(text: object) -> Mapping[str, Any]:
    """Other writers put what they like into user metadata, so anything that is not ours reads as nothing."""
    try:
        metadata = json.loads(text) if isinstance(text, str) else {}
    except ValueError:
        return {}
    own = metadata.get(NOTE) if isinstance(metadata, dict) else None
    return without_format(own, "a commit", where="the log of a Delta table") if isinstance(own, dict) else {}


def _whole_numbers(metrics: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(value) for name, value in metrics.items() if str(value).lstrip("-").isdigit()}


@dataclass(frozen=True)
class TableState:
    """Columns with their types as Delta writes them, and the size of each file in bytes."""

    columns: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)


def state_at(where: str, version: int) -> TableState | None:
    """The table at a version; None if its log no longer reaches back to it."""
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if version < 0:
        return TableState()  # before its first version
    try:
        table = DeltaTable(native_uri(where), version=version)
        files = pa.table(table.get_add_actions(flatten=True))
    except (DeltaError, OSError):
        return None
    sizes = zip(files.column("path").to_pylist(), files.column("size_bytes").to_pylist(), strict=True)
    return TableState(column_types(table), dict(sizes))


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

    found = PyFileSystem(DeltaStorageHandler(native_uri(where))).get_file_info(paths)
    return tuple(each.path for each in found if each.type == FileType.NotFound)

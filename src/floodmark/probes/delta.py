"""Looking at a Delta table through its log alone: no JVM, no row read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from floodmark.errors import SourceUnreadable
from floodmark.probes.delta_commit import Commit
from floodmark.probes.delta_stand import column_types
from floodmark.probes.places import local_path, native_uri

if TYPE_CHECKING:
    from deltalake import DeltaTable

T = TypeVar("T")

FEED = "delta.enableChangeDataFeed"


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
            self._guarded(self._table.update_incremental)
        else:
            self._table, self._commits = self._opened(), {}
        self._head = self._head_now()
        return self._table is not None

    def latest(self) -> int:
        return self._there().version()

    def table_id(self) -> str:
        return str(self._there().metadata().id)

    def columns(self) -> dict[str, str]:
        """By name, each with its type as Delta writes it."""
        return column_types(self._there())

    def feed_is_on(self) -> bool:
        return self.properties().get(FEED, "false").lower() == "true"

    def properties(self) -> dict[str, str]:
        """The table's own settings."""
        return dict(self._there().metadata().configuration)

    def recorded(self, ledger: str) -> int | None:
        """The highest transaction number of an application id."""
        return self._there().transaction_version(ledger)

    def rows(self) -> int | None:
        """The table's rows by its files' own counts; None where a file has none, an upper bound where rows were
        deleted in place."""
        import pyarrow as pa

        counts = pa.table(self._there().get_add_actions(flatten=True)).column("num_records").to_pylist()
        return None if None in counts else sum(counts)

    def files_and_bytes(self) -> tuple[int, int]:
        """How many files the table has now, and how large they are together."""
        sizes = self.file_sizes()
        return len(sizes), sum(sizes)

    def file_sizes(self) -> list[int]:
        """The size of each file, in bytes."""
        import pyarrow as pa

        return pa.table(self._there().get_add_actions(flatten=True)).column("size_bytes").to_pylist()  # type: ignore[no-any-return]

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
            told = self._guarded(lambda: self._there().history(newest))
            self._commits.update({commit.version: commit for commit in map(Commit.parse, told)})

    def _opened(self) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        if self.local is not None and not self._has_log(self.local):
            return None
        try:
            return self._guarded(lambda: DeltaTable(self.where))
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

    def _there(self) -> DeltaTable:
        if self._table is None and not self.refresh():
            raise SourceUnreadable(f"delta table {self.where}", reason="there is no such table")
        assert self._table is not None  # noqa: S101 - tells the type checker what refresh() just said
        return self._table

    def _guarded(self, look: Callable[[], T]) -> T:
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            return look()
        except TableNotFoundError:
            raise
        except (DeltaError, OSError) as error:
            raise SourceUnreadable(f"delta table {self.where}", reason=str(error).splitlines()[0]) from error

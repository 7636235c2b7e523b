"""What happened to a Delta table between two batches of a job, told by its log alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from floodmark.errors import SourceUnreadable
from floodmark.hwm import Json
from floodmark.probes.delta import DeltaProbe
from floodmark.probes.delta_stand import Stand, stand_at

if TYPE_CHECKING:
    from floodmark.probes.delta_commit import Commit


@dataclass(frozen=True)
class RowChange:
    """Rows that commits brought, changed and took; None where the log does not tell."""

    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None


@dataclass(frozen=True)
class FileChange:
    """Files that only one of two versions has, and the size of both."""

    added: int | None = None
    removed: int | None = None
    bytes_before: int | None = None
    bytes_after: int | None = None


@dataclass(frozen=True)
class ColumnChange:
    """Columns by name with their types; of those that changed, the type before and after."""

    added: Mapping[str, str] = field(default_factory=dict)
    removed: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class TableChange:
    """From one version (None: before the first) to another, with the commits by operation.

    `unknown` says why something, or everything, is not told.
    """

    table: str
    from_version: int | None = None
    to_version: int | None = None
    commits: Mapping[str, int] = field(default_factory=dict)
    rows: RowChange = RowChange()
    files: FileChange = FileChange()
    columns: ColumnChange = ColumnChange()
    unknown: str | None = None

    def serialize(self) -> dict[str, Json]:
        return asdict(self)


def table_change(name: str, where: str | None, ledger: str, *, after: int, upto: int) -> TableChange:
    """The table from how batch `after` left it (0: as it was before the first) to how batch `upto` did."""
    if where is None:
        return TableChange(name, unknown="it is known by its name in a catalog, which only a session can ask")
    probe = DeltaProbe(where)
    try:
        own = probe.commits_of(ledger, after) if probe.refresh() else ()
        wrote = [commit for commit in own if after < (commit.number or 0) <= upto]
        if not wrote:
            return TableChange(name, unknown="its log has no commit of these runs")
        first = own[0].version if own[0].number == after else wrote[0].version - 1
        return _between(name, where, first, probe.commits(first, wrote[-1].version))
    except SourceUnreadable as error:
        return TableChange(name, unknown=error.reason)


def _between(name: str, where: str, first: int, commits: Sequence[Commit]) -> TableChange:
    last = commits[-1].version
    before, after = stand_at(where, first), stand_at(where, last)
    operations = dict(Counter(commit.operation for commit in commits))
    told = TableChange(name, first if first >= 0 else None, last, operations, _rows(commits))
    if before is None or after is None:
        return replace(told, unknown="its log no longer has all versions: files and columns are not known")
    return replace(told, files=_files(before, after), columns=_columns(before, after))


def _rows(commits: Iterable[Commit]) -> RowChange:
    """Upkeep moves rows between files, and counts as nothing."""
    changing = [commit for commit in commits if commit.changes_rows]
    inserts = [commit.inserted for commit in changing if commit.inserted is not None]
    inserted = sum(inserts) if len(inserts) == len(changing) else None
    if not all(commit.counts_rows for commit in changing):
        return RowChange(inserted)
    updated, deleted = sum(each.updated for each in changing), sum(each.deleted for each in changing)
    return RowChange(sum(inserts), updated, deleted)


def _files(before: Stand, after: Stand) -> FileChange:
    added, removed = after.files.keys() - before.files.keys(), before.files.keys() - after.files.keys()
    return FileChange(len(added), len(removed), sum(before.files.values()), sum(after.files.values()))


def _columns(before: Stand, after: Stand) -> ColumnChange:
    old, new = before.columns, after.columns
    return ColumnChange(
        added={name: kind for name, kind in new.items() if name not in old},
        removed={name: kind for name, kind in old.items() if name not in new},
        changed={name: (old[name], kind) for name, kind in new.items() if old.get(name, kind) != kind},
    )

"""The facts of a Delta table, from its log alone: when its rows last changed, how many there are, in how many files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from floodmark.errors import SourceUnreadable
from floodmark.probes.delta import DeltaProbe

if TYPE_CHECKING:
    from floodmark.health.watch import TableWatch

COMMITS_READ = 50
"""Maintenance rarely fills that many commits in a row; where it does, the oldest of them is the age that is told."""


@dataclass(frozen=True)
class TableFacts:
    """One look. `error`: it could not be looked at, which is not the same as empty; `exists` False: no such table."""

    name: str
    exists: bool = True
    changed: datetime | None = None
    rows: int | None = None
    files: int = 0
    bytes: int = 0
    error: str | None = None


def look_at(table: TableWatch) -> TableFacts:
    """Read the table's log; whatever goes wrong is a fact too."""
    probe = DeltaProbe(table.where)
    try:
        if not probe.refresh():
            return TableFacts(table.name, exists=False)
        files, size = probe.files_and_bytes()
        return TableFacts(table.name, True, last_change(probe), probe.rows(), files, size)
    except SourceUnreadable as error:
        return TableFacts(table.name, error=error.reason)


def last_change(probe: DeltaProbe) -> datetime | None:
    """When rows last came or went: compaction does not make a table fresh."""
    latest = probe.latest()
    newest_first = reversed(probe.commits(max(-1, latest - COMMITS_READ), latest))
    commits = list(newest_first)
    found = next((commit for commit in commits if commit.changes_rows), commits[-1] if commits else None)
    return datetime.fromtimestamp(found.timestamp_ms / 1000, timezone.utc) if found else None

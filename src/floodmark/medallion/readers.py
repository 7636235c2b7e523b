"""Who reads a table, and how far each has come: what nobody may clean away yet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from floodmark.hwm import VersionHWM

if TYPE_CHECKING:
    from floodmark.probes.delta import DeltaProbe
    from floodmark.stores.contract import MarkStore

MARGIN = timedelta(days=1)
"""A reader that is about to run must not find the last hour of its files gone."""
DEFAULT_LOG_RETENTION = timedelta(days=30)


@dataclass(frozen=True)
class Reader:
    """A job whose mark stands at a version of the table."""

    job: str
    version: int


@dataclass(frozen=True)
class Retention:
    """How long removed files and the log are kept."""

    files: timedelta
    log: timedelta

    def properties(self) -> dict[str, str]:
        """As the table's own properties: Delta cleans by these, whatever a statement says."""
        return {
            "delta.deletedFileRetentionDuration": _interval(self.files),
            "delta.logRetentionDuration": _interval(self.log),
        }


def readers_of(table_id: str, store: MarkStore) -> list[Reader]:
    """The jobs of this store that read the table by its versions, the slowest first."""
    found = []
    for job in store.jobs():
        record = store.read(job)
        for source, mark in record.marks.items() if record else ():
            is_it = record is not None and f"(table id {table_id})" in record.sources.get(source, "")
            if is_it and isinstance(mark, VersionHWM) and mark.value is not None:
                found.append(Reader(job, mark.value))
    return sorted(found, key=lambda reader: reader.version)


def safe_retention(probe: DeltaProbe, readers: list[Reader], wanted: timedelta, now: datetime) -> Retention:
    """What is asked for, or as long as the slowest reader needs."""
    needed = wanted
    behind = [reader for reader in readers if reader.version < probe.latest()]
    if behind:
        since = _time_of(probe, behind[0].version)
        needed = max(wanted, now - since + MARGIN)
    return Retention(needed, max(DEFAULT_LOG_RETENTION, needed))


def _time_of(probe: DeltaProbe, version: int) -> datetime:
    """When the version was made; the oldest that the log still has, if it is gone already."""
    commits = probe.commits(version - 1, version) or probe.commits(probe.oldest() - 1, probe.oldest())
    return datetime.fromtimestamp(commits[0].timestamp_ms / 1000, timezone.utc)


def _interval(duration: timedelta) -> str:
    hours = -(-int(duration.total_seconds()) // 3600)
    return f"interval {hours} hours"

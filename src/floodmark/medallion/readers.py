"""Who reads a table, and how far each has come: what nobody may clean away yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from floodmark.hwm import TableVersionsHWM, VersionHWM

if TYPE_CHECKING:
    from floodmark.probes.delta import DeltaProbe
    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import JobRecord

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
    records = [record for job in store.jobs() if (record := store.read(job)) is not None]
    found = [Reader(each.job, version) for each in records for version in versions_read(each, table_id)]
    return sorted(found, key=lambda reader: reader.version)


def versions_read(record: JobRecord, table_id: str) -> Iterator[int]:
    """How far the job has read the table: as its source, as an input of its fact, as the bronze of its task."""
    for source, mark in record.marks.items():
        told, beside = record.sources.get(source, ""), record.extras.get(source)
        if isinstance(mark, TableVersionsHWM):
            yield from (version for name, version in mark.value.items() if known_as(name, table_id) in told)
        elif f"(table id {table_id})" not in told:
            continue
        elif isinstance(mark, VersionHWM) and mark.value is not None:
            yield mark.value
        elif isinstance(beside, dict) and isinstance(version := beside.get("version"), int):
            yield version


def known_as(name: str, table_id: str) -> str:
    """How the fingerprint of a source with several tables names one of them."""
    return f"'{name}' (table id {table_id})"


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

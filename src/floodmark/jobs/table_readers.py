"""Who reads a table, and how far each has come: what nobody may clean away yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

from floodmark.hwm import HWM, TableVersionsHWM, VersionHWM
from floodmark.probes.delta import DeltaProbe
from floodmark.sinks.contract import OnDelta
from floodmark.sources import Delta
from floodmark.spark.tables import DeltaPlace

if TYPE_CHECKING:
    from floodmark.jobs.rollback import Past
    from floodmark.sinks.contract import Sink
    from floodmark.sinks.delta.target import RestorePoint
    from floodmark.sources.contract import Session, Source
    from floodmark.step import Step
    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import JobRecord


# Tables that jobs fill and other jobs read: who comes first, how far a reader has read, where it may go on.
def tables_filled(sinks: Iterable[Sink]) -> set[str]:
    """The Delta tables of sinks, as `RestorePoint.name` calls them."""
    found = [table for sink in sinks if isinstance(sink, OnDelta) for table in sink.tables()]
    return {str(DeltaPlace(table.path, table.table)) for table in found}


def versions_read(sources: Iterable[object], marks: Mapping[str, HWM[Any]]) -> dict[str, int]:
    """How far each Delta table was read, by these marks."""
    found: dict[str, int] = {}
    for source in sources:
        name = str(getattr(source, "name", ""))
        versions = _versions(marks.get(name), name)
        found |= {str(place): versions[table] for table, place in _places(source) if table in versions}
    return found


def newest_built_on(past: Past, sources: Sequence[object], tables: Mapping[str, RestorePoint]) -> JobRecord | None:
    """The newest state of a reader that has nothing but what these tables will hold once they are put back."""
    for record in past.records:
        read = {name: version for name, version in versions_read(sources, record.marks).items() if name in tables}
        if read and all(tables[name].holds(version) for name, version in read.items()):
            return record
    return None


def producers_first(steps: Sequence[Step]) -> list[Step]:
    """Jobs after those that fill what they read; jobs that wait for each other stay as they were given."""
    fills = {step.work.name: tables_filled(step.work.sinks) for step in steps}
    reads = {step.work.name: {str(place) for s in step.work.sources for _, place in _places(s)} for step in steps}
    needs = {job: [other for other in fills if other != job and fills[other] & reads[job]] for job in reads}
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError:
        return list(steps)
    return sorted(steps, key=lambda step: order.index(step.work.name))


def behind_restores(sources: Iterable[Source], marks: Mapping[str, HWM[Any]], session: Session) -> dict[str, HWM[Any]]:
    """The marks, each behind the commit that put its table back to the very rows that the mark stands for.

    Such a reader has read all that the table holds: the rows that came and were undone in between are not its concern,
    and it would stop at the commit that took them away if it takes added rows only.
    """
    followed = dict(marks)
    for source in sources:
        mark = marks.get(source.name)
        read = _versions(mark, source.name)
        moved = {
            table: _behind_restore(place.location(session), read[table])
            for table, place in _places(source)
            if table in read
        }
        if mark is not None and moved:
            followed[source.name] = mark.update(moved if isinstance(mark, TableVersionsHWM) else moved[source.name])
    return followed


def _behind_restore(location: str | None, version: int) -> int:
    probe = DeltaProbe(location or "")
    if location is None or not probe.refresh():
        return version
    for commit in reversed(probe.commits(version, probe.latest())):
        told = commit.parameters.get("version", "")
        if commit.operation == "RESTORE" and told.isdigit() and _is_same(probe, int(told), version):
            return commit.version
    return version


def _is_same(probe: DeltaProbe, one: int, other: int) -> bool:
    """Whether no row changed between two versions, as far as the log still tells."""
    low, high = sorted((one, other))
    commits = probe.commits(low, high)
    return len(commits) == high - low and not any(commit.changes_rows for commit in commits)


def _places(source: object) -> Iterator[tuple[str, DeltaPlace]]:
    """The tables of a source by their names in its mark; a fact reads several."""
    for table in getattr(source, "inputs", (source,) if isinstance(source, Delta) else ()):
        yield table.name, DeltaPlace(table.path, table.table)


def _versions(mark: HWM[Any] | None, name: str) -> dict[str, int]:
    if isinstance(mark, VersionHWM):
        return {} if mark.value is None else {name: mark.value}
    return dict(mark.value) if isinstance(mark, TableVersionsHWM) else {}


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
    found = [Reader(each.job, version) for each in records for version in versions_in(each, table_id)]
    return sorted(found, key=lambda reader: reader.version)


def versions_in(record: JobRecord, table_id: str) -> Iterator[int]:
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

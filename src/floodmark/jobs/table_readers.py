"""Which Delta tables jobs read and fill: who comes first, how far a reader has come, and what has to be kept for it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from floodmark.hwm import HWM, TableVersionsHWM, VersionHWM
from floodmark.probes.delta import DeltaProbe
from floodmark.sinks.contract import OnDelta
from floodmark.sources import Delta
from floodmark.spark.tables import DeltaPlace

if TYPE_CHECKING:
    from floodmark.jobs.rollback import Past
    from floodmark.sinks.delta.target import RestorePoint
    from floodmark.sources.contract import Session, Source
    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import JobRecord


MARGIN = timedelta(days=1)
"""A reader that is about to run must not find the last hour of its files gone."""
FILES_KEPT, LOG_KEPT = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
DEFAULT_FILE_RETENTION, DEFAULT_LOG_RETENTION = timedelta(days=7), timedelta(days=30)
INTERVAL = re.compile(r"(?:interval\s+)?(\d+)\s+(week|day|hour|minute|second)s?", re.IGNORECASE)
Table = TypeVar("Table")


class TableJob(Protocol):
    """What these questions need of a job: also the step's work is one."""

    @property
    def name(self) -> str: ...
    @property
    def sources(self) -> Sequence[object]: ...
    @property
    def sinks(self) -> Sequence[object]: ...


@runtime_checkable
class SeveralTables(Protocol):
    """A source that reads several Delta tables, whose versions are one mark; a fact is one."""

    @property
    def inputs(self) -> Sequence[Any]: ...


def reads(job: TableJob) -> frozenset[str]:
    """The Delta tables that a job reads, by path or name in the catalog.

    >>> reads(fm.Job("silver", fm.sources.Delta("/lake/raw"), [fm.sinks.Delta("/lake/orders")]))
    frozenset({'/lake/raw'})
    """
    return frozenset(str(place) for source in job.sources for _, place in _places(source))


def fills(job: TableJob) -> frozenset[str]:
    """The Delta tables that a job fills, called as `reads` does.

    >>> fills(fm.Job("silver", fm.sources.Delta("/lake/raw"), [fm.sinks.Delta("/lake/orders")]))
    frozenset({'/lake/orders'})
    """
    tables = [table for sink in job.sinks if isinstance(sink, OnDelta) for table in sink.tables()]
    return frozenset(str(DeltaPlace(table.path, table.table)) for table in tables)


def needs_of(jobs: Iterable[TableJob]) -> dict[str, tuple[str, ...]]:
    """By job: the others that fill a Delta table which it reads."""
    known = list(jobs)
    return needs_between({job.name: reads(job) for job in known}, {job.name: fills(job) for job in known})


def needs_between(
    reads: Mapping[str, frozenset[Table] | set[Table]], fills: Mapping[str, frozenset[Table] | set[Table]]
) -> dict[str, tuple[str, ...]]:
    """By job: the others that fill what it reads, whatever the tables are called by."""
    fillers: dict[Table, list[str]] = {}
    for job, tables in fills.items():
        for table in tables:
            fillers.setdefault(table, []).append(job)
    places = {job: place for place, job in enumerate(fills)}

    def upstream(job: str) -> set[str]:
        return {other for table in reads[job] for other in fillers.get(table, ()) if other != job}

    return {job: tuple(sorted(upstream(job), key=places.__getitem__)) for job in reads}


def order(needs: Mapping[str, Collection[str]]) -> list[str]:
    """Jobs after those that they need, and else as they were given; of a circle, the one that was given first."""
    waits = _without_circles({job: set(upstream) for job, upstream in needs.items()})
    ordered: list[str] = []
    while waits:
        ordered.append(next(job for job, upstream in waits.items() if not upstream & waits.keys()))
        del waits[ordered[-1]]
    return ordered


def _without_circles(waits: dict[str, set[str]]) -> dict[str, set[str]]:
    while True:
        try:
            TopologicalSorter(waits).prepare()
        except CycleError as error:
            circle = error.args[1]
            waits[min(circle, key=list(waits).index)] -= set(circle)
        else:
            return waits


def versions_read(record: JobRecord) -> dict[str, int]:
    """How far a job has read each Delta table, by the table's id.

    As its source, as an input of its fact, or as the bronze of its task: which table a mark is of stands in the
    fingerprint of its source. A table that was dropped and made anew is another one.
    """
    found: dict[str, int] = {}
    for table_id, version in _marks_of_tables(record):
        found[table_id] = min(version, found.get(table_id, version))  # read by two sources, the slower one counts
    return found


def _marks_of_tables(record: JobRecord) -> Iterator[tuple[str, int]]:
    for source, mark in record.marks.items():
        text, extra = record.sources.get(source, ""), record.extras.source(source).extras
        if isinstance(mark, TableVersionsHWM):
            named = [(_id_in(text, f"'{name}' "), version) for name, version in mark.value.items()]
        elif isinstance(mark, VersionHWM) and mark.value is not None:
            named = [(_id_in(text), mark.value)]
        else:
            version = extra.get("version")
            named = [(_id_in(text), version)] if isinstance(version, int) else []
        yield from ((table_id, version) for table_id, version in named if table_id)


def fingerprint_of_input(name: str, table_id: str) -> str:
    """How the fingerprint of a source with several tables names one of them."""
    return f"'{name}' (table id {table_id})"


def is_same_table(one: str, other: str) -> bool:
    """Whether two fingerprints of Delta sources are of the very same table, by path or by name."""
    return bool(_id_in(one)) and _id_in(one) == _id_in(other)


def _id_in(fingerprint: str, name: str = "") -> str:
    """The id behind a name, or the last one: the path that stands before it may be called anything."""
    _, found, rest = fingerprint.rpartition(f"{name}(table id ")
    return rest.partition(")")[0] if found else ""


def newest_built_on(past: Past, tables: Mapping[str, RestorePoint]) -> JobRecord | None:
    """The newest state of a reader that has nothing but what these tables will hold; `tables` are by id."""
    for record in past.records:
        read = {table_id: version for table_id, version in versions_read(record).items() if table_id in tables}
        if read and all(tables[table_id].holds(version) for table_id, version in read.items()):
            return record
    return None


def behind_restores(sources: Iterable[Source], marks: Mapping[str, HWM[Any]], session: Session) -> dict[str, HWM[Any]]:
    """The marks, each behind the commit that put its table back to the very rows that the mark stands for.

    Such a reader has read all that the table holds: the rows that came and were undone in between are not its concern,
    and it would stop at the commit that took them away if it takes added rows only.
    """
    followed = dict(marks)
    for source in sources:
        mark = marks.get(source.name)
        if isinstance(mark, TableVersionsHWM):
            probes = [(name, _probe(place, session)) for name, place in _places(source) if name in mark.value]
            followed[source.name] = mark.update({name: _behind_restore(p, mark.value[name]) for name, p in probes})
        elif isinstance(mark, VersionHWM) and mark.value is not None:
            for _, place in _places(source):
                followed[source.name] = mark.update(_behind_restore(_probe(place, session), mark.value))
    return followed


def names_by_id(sources: Iterable[object], session: Session) -> dict[str, str]:
    """The tables that sources read, by their ids; those that are not there have none."""
    places = [place for source in sources for _, place in _places(source)]
    return {probe.table_id(): str(place) for place in places if (probe := _probe(place, session)) is not None}


def _behind_restore(probe: DeltaProbe | None, version: int) -> int:
    for commit in reversed(probe.commits(version, probe.latest())) if probe else ():
        target = commit.parameters.get("version", "")
        if probe and commit.operation == "RESTORE" and target.isdigit() and _is_same(probe, int(target), version):
            return commit.version
    return version


def _is_same(probe: DeltaProbe, one: int, other: int) -> bool:
    """Whether no row changed between two versions, as far as the log still says."""
    low, high = sorted((one, other))
    commits = probe.commits(low, high)
    return len(commits) == high - low and not any(commit.changes_rows for commit in commits)


def _probe(place: DeltaPlace, session: Session) -> DeltaProbe | None:
    location = place.location(session)
    probe = DeltaProbe(location or "")
    return probe if location is not None and probe.refresh() else None


def _places(source: object) -> Iterator[tuple[str, DeltaPlace]]:
    """The tables of a source by their names in its mark."""
    tables = source.inputs if isinstance(source, SeveralTables) else [source] if isinstance(source, Delta) else []
    yield from ((table.name, DeltaPlace(table.path, table.table)) for table in tables)


@dataclass(frozen=True)
class Reader:
    """A job whose mark stands at a version of the table."""

    job: str
    version: int


@dataclass(frozen=True)
class TableRetention:
    """How long removed files and the log are kept."""

    files: timedelta
    log: timedelta

    def properties(self) -> dict[str, str]:
        """As the table's own properties: Delta cleans by these, whatever a statement says."""
        return {
            FILES_KEPT: _interval(self.files),
            LOG_KEPT: _interval(self.log),
        }

    def longer_than(self, duration: timedelta) -> TableRetention:
        """The same, but at least so long."""
        return TableRetention(max(self.files, duration), max(self.log, duration))


def kept_by(probe: DeltaProbe) -> TableRetention:
    """What the table's own properties say, or Delta's defaults."""
    found = probe.properties()
    files = _parse_interval(found.get(FILES_KEPT, ""), DEFAULT_FILE_RETENTION)
    return TableRetention(files, _parse_interval(found.get(LOG_KEPT, ""), DEFAULT_LOG_RETENTION))


def readers_of(table_id: str, store: MarkStore) -> list[Reader]:
    """The jobs of this store that read the table by its versions, the slowest first."""
    records = [record for job in store.jobs() if (record := store.read(job)) is not None]
    versions = [(record.job, versions_read(record).get(table_id)) for record in records]
    return sorted((Reader(job, at) for job, at in versions if at is not None), key=lambda reader: reader.version)


def safe_retention(probe: DeltaProbe, readers: list[Reader], wanted: timedelta, now: datetime) -> TableRetention:
    """What is asked for, or as long as the slowest reader needs."""
    needed = wanted
    behind = [reader for reader in readers if reader.version < probe.latest()]
    if behind:
        needed = max(wanted, now - time_of(probe, behind[0].version) + MARGIN)
    return TableRetention(needed, max(DEFAULT_LOG_RETENTION, needed))


def time_of(probe: DeltaProbe, version: int) -> datetime:
    """When the version was made; the oldest that the log still has, if it is gone already."""
    commits = probe.commits(version - 1, version) or probe.commits(probe.oldest() - 1, probe.oldest())
    return datetime.fromtimestamp(commits[0].timestamp_ms / 1000, timezone.utc)


def _parse_interval(text: str, default: timedelta) -> timedelta:
    """A property of one unit, which is how everybody writes it; anything else is taken for the default."""
    match = INTERVAL.fullmatch(text.strip())
    return timedelta(**{f"{match[2].lower()}s": int(match[1])}) if match else default


def _interval(duration: timedelta) -> str:
    hours = -(-int(duration.total_seconds()) // 3600)
    return f"interval {hours} hours"

"""Jobs that read what they fill, by themselves or through others: each run finds what the one before it wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from floodmark.locations import path_in_marks
from floodmark.project.kinds import DeltaSink, DeltaSource, FilesSink, FilesSource, PathOrTable
from floodmark.project.kinds.medallion import FactSource
from floodmark.project.kinds.servers import KafkaSink, KafkaSource

if TYPE_CHECKING:
    from floodmark.project.kinds import SinkModel, Site, SourceModel
    from floodmark.project.models import JobModel, Project


Circles: TypeAlias = "Mapping[str, Sequence[str]]"
"""By job, the jobs through which it reads what it fills, itself the last."""


def circles(project: Project, site: Site) -> Circles:
    """The shortest way from each job back to itself, for those that have one.

    A table of a database is no such place: its own rows come again only if their cursor moves.
    """
    fillers: dict[str, list[str]] = {}
    for job in project.jobs:
        for place in {place for sink in job.sinks for place in _filled(sink, site)}:
            fillers.setdefault(place, []).append(job.name)
    if not fillers:
        return {}
    needs = {job.name: _fillers_of(job, fillers, site) for job in project.jobs}
    ways = {name: _way_back(name, needs) for name in needs}
    return {name: way for name, way in ways.items() if way}


def _fillers_of(job: JobModel, fillers: Mapping[str, Sequence[str]], site: Site) -> list[str]:
    return [name for place in _read(job.source, site) for name in fillers.get(place, ())]


def _way_back(start: str, needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Job by job upstream until the start is met again; empty if it never is."""
    ways: dict[str, list[str]] = {}
    front = {name: [name] for name in needs[start]}
    while front and start not in ways:
        ways |= front
        front = {name: [*way, name] for last, way in front.items() for name in needs.get(last, ()) if name not in ways}
    return ways.get(start, [])


def _read(source: SourceModel, site: Site) -> Iterator[str]:
    if isinstance(source, DeltaSource):
        yield _table(source, site)
    elif isinstance(source, FactSource):
        yield from (_table(each, site) for each in (source.rows, *source.lookups))
    elif isinstance(source, FilesSource):
        yield path_in_marks(site.path(source.path))
    elif isinstance(source, KafkaSource):
        yield from (f"topic {topic} {','.join(source.bootstrap)}" for topic in source.topic)


def _filled(sink: SinkModel, site: Site) -> Iterator[str]:
    if isinstance(sink, DeltaSink):
        yield _table(sink, site)
    elif isinstance(sink, FilesSink):
        yield path_in_marks(site.path(sink.path))
    elif isinstance(sink, KafkaSink):
        yield f"topic {sink.topic} {','.join(sink.bootstrap)}"


def _table(table: PathOrTable, site: Site) -> str:
    return f"table {table.table}" if table.table else path_in_marks(str(table.place(site)))

"""Jobs that are written in Python, as the project knows jobs: each gets a model that says the same and builds itself.

The file and Python are two spellings of one thing, so whatever reads the models (lint, lineage, health, the pages)
knows these jobs too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import PrivateAttr, create_model

from floodmark import sinks, sources
from floodmark.errors import ConfigError, NotJobs
from floodmark.jobs.job import Job
from floodmark.locations import absolute, load_name, missing_part
from floodmark.medallion.dimensions import Members
from floodmark.medallion.facts import TouchedDates
from floodmark.project import kinds
from floodmark.project.file import Document
from floodmark.project.findings import Finding
from floodmark.project.kinds import Model, SinkModel, Site, SourceModel, medallion, servers
from floodmark.project.kinds.rules import RuleModel
from floodmark.project.models import DeadLetters, JobModel, Project, PythonJobs, Quarantine, Retries, Transform
from floodmark.project.streams import StreamJob
from floodmark.sinks.delta import DeltaDates
from floodmark.sources.tables import TableSource
from floodmark.sources.tables.cursor import Cursor

Kind = TypeVar("Kind", bound=Model)
SOURCES: dict[type, tuple[type[SourceModel], str]] = {
    sources.Files: (kinds.FilesSource, "files"),
    sources.Delta: (kinds.DeltaSource, "delta"),
    sources.Kafka: (servers.KafkaSource, "kafka"),
    sources.Postgres: (servers.PostgresSource, "postgres"),
    sources.Jdbc: (servers.JdbcSource, "jdbc"),
    sources.Sqlite: (servers.SqliteSource, "sqlite"),
    sources.Table: (servers.CatalogSource, "table"),
    TouchedDates: (medallion.FactSource, "fact"),
}
SINKS: dict[type, tuple[type[SinkModel], str]] = {
    sinks.Delta: (kinds.DeltaSink, "delta"),
    sinks.Scd1: (kinds.DeltaSink, "delta"),
    sinks.Scd2: (kinds.DeltaSink, "delta"),
    DeltaDates: (kinds.DeltaSink, "delta"),
    sinks.Kafka: (servers.KafkaSink, "kafka"),
    sinks.Postgres: (servers.PostgresSink, "postgres"),
    sinks.Files: (kinds.FilesSink, "files"),
    sinks.Console: (kinds.ConsoleSink, "console"),
}
MODES = {sinks.Scd1: "scd1", sinks.Scd2: "scd2", DeltaDates: "dates"}


class GivenJob(JobModel):
    """The model of a job that Python gave."""

    _job: Job | StreamJob = PrivateAttr()
    _beside: Callable[[], Path] = PrivateAttr()

    @property
    def job(self) -> Job:
        """The job itself; a stream does as one where it is run, planned or watched."""
        return self._job  # type: ignore[return-value]

    @property
    def has_batches(self) -> bool:
        """Not of a stream."""
        return isinstance(self._job, Job)

    def places_aside(self) -> dict[str, str]:
        """As the job has them: where it says nothing, beside the marks."""
        job = self._job
        places = {"quarantine": absolute(job.quarantine) if job.quarantine else self._folder("quarantine")}
        if job.dead_letters:
            has_path = isinstance(job.dead_letters, str)
            places["dead_letters"] = absolute(str(job.dead_letters)) if has_path else self._folder("dead_letters")
        return places

    def _folder(self, kind: str) -> str:
        return str(self._beside() / kind / self._job.name)


@dataclass(frozen=True)
class Unseen:
    """A Python name that could not be looked into: its place among the jobs, and why not."""

    name: str
    position: int
    error: ConfigError

    def finding(self, document: Document) -> Finding:
        """A name that is not there is a mistake; code that fails without Spark may do well with it."""
        where = document.where(("jobs", self.position, "python"))
        missing = missing_part(self.name, document.folder)
        if missing is not None:
            return Finding("FM110", where, None, f"{self.name}: {missing}", "write it, or fix the name")
        if isinstance(self.error, NotJobs):
            return Finding("FM113", where, None, self.error.message, self.error.hint)
        said = f"could not look inside {self.name}: {self.error.message}"
        return Finding("FM112", where, None, said, self.error.hint)


def with_python_jobs(project: Project, site: Site, beside: Callable[[], Path]) -> tuple[Project, list[Unseen]]:
    """The project with the jobs that its Python names give, and the names that gave none; modules are imported here.

    `beside` is where rows are put aside of jobs that name no place for them: the folder of the marks.
    """
    listed: list[JobModel | PythonJobs] = list(project.listed)
    unseen: list[Unseen] = []
    for position, each in enumerate(project.listed):
        if isinstance(each, PythonJobs):
            try:
                jobs = jobs_named(each.python, site.folder)
                listed[position] = each.holding([given_job(job, each.tags, beside) for job in jobs])
            except ConfigError as error:
                unseen.append(Unseen(each.python, position, error))
    return project.with_listed(listed), unseen


def setup_finding(project: Project, document: Document) -> Iterator[Finding]:
    """A function for the session that is not there."""
    missing = missing_part(project.setup, document.folder) if project.setup else None
    if missing is not None:
        said = f"{project.setup}: {missing}"
        yield Finding("FM110", document.where(("setup",)), None, said, "write it, or fix the name")


def jobs_named(name: str, folder: Path) -> list[Job | StreamJob]:
    """The job or stream of that name, or several, or those that a function of that name gives. Raises ConfigError."""
    from floodmark.streams.kafka import KafkaStream

    given = (Job, KafkaStream)
    named = load_name(name, folder)
    try:
        value = named() if callable(named) and not isinstance(named, given) else named
    except ConfigError:
        raise
    except Exception as error:
        said = f"{name}: calling it failed: {type(error).__name__}: {error}."
        raise ConfigError(said, hint=f"fix {name.partition(':')[0]}; it is called without arguments") from error
    several = isinstance(value, Iterable) and not isinstance(value, given)
    found: list[object] = list(value) if isinstance(value, Iterable) and several else [value]
    for each in found:
        if not isinstance(each, given):
            raise NotJobs(name, kind=type(each).__name__)
    return [StreamJob(each) if isinstance(each, KafkaStream) else each for each in found if isinstance(each, given)]


def given_job(job: Job | StreamJob, tags: Sequence[str], beside: Callable[[], Path]) -> GivenJob:
    """The model of a job."""
    model = GivenJob.model_construct(
        name=job.name,
        source=_source(job.sources),
        transform=_transform(job),
        rules=tuple(RuleModel.model_construct(name=rule.name, action=rule.action) for rule in job.rules),
        quarantine=Quarantine(path=job.quarantine) if job.quarantine else None,
        on_schema_change=job.on_schema_change,
        sinks=tuple(_sink(sink) for sink in job.sinks),
        dead_letters=DeadLetters() if job.dead_letters else None,
        every=job.every,
        retries=Retries(attempts=job.retries.attempts, backoff=f"{job.retries.backoff_seconds:g}s"),
        spool=absolute(job.spool) if job.spool else "spool",
        tags=tuple(dict.fromkeys([*tags, *job.tags])),
    )
    model._job, model._beside = job, beside
    return model


def _source(given: Sequence[object]) -> SourceModel:
    """By its first source: of several, the job itself knows the others."""
    source = given[0]
    kind, name = next((SOURCES[each] for each in type(source).__mro__ if each in SOURCES), (None, ""))
    if isinstance(source, TouchedDates):
        rows = _fields_of(source.rows, medallion.RowsTable)
        lookups = tuple(_fields_of(each, medallion.LookupTable) for each in source.lookups)
        return _standing_in(medallion.FactSource, source, type="fact", rows=rows, lookups=lookups)
    if kind is None:
        of = type(source)
        return _standing_in(kinds.PythonSource, source, type="python", object=f"{of.__module__}:{of.__qualname__}")
    if isinstance(source, TableSource):
        return _standing_in(kind, source, type=name, cursor=_cursor(source), key=_names(source.key))
    if isinstance(source, sources.Kafka):
        return _standing_in(kind, source, type=name, topic=source.topics, bootstrap=_names(source.bootstrap))
    return _standing_in(kind, source, type=name)


def _cursor(source: TableSource) -> servers.CursorModel | None:
    if not source.cursor:
        return None
    cursor = Cursor.of(source.cursor)
    return _fields_of(cursor, servers.CursorModel, column=cursor.columns, coalesce=tuple(cursor.coalesce))


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _sink(sink: object) -> SinkModel:
    kind, name = next((SINKS[each] for each in type(sink).__mro__ if each in SINKS), (SinkModel, "python"))
    mode = next((MODES[each] for each in type(sink).__mro__ if each in MODES), getattr(sink, "mode", "append"))
    return _standing_in(kind, sink, type=name, mode=mode)


def _transform(job: Job | StreamJob) -> Transform | None:
    if job.transform is None or isinstance(job.transform, str):
        return Transform(sql=job.transform) if job.transform else None
    if isinstance(job.transform, Members):
        return Transform.model_construct(dimension=_fields_of(job.transform, medallion.DimensionMembers))
    function = getattr(job.transform, "function", job.transform)
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", type(function).__name__)
    return Transform.model_construct(python=f"{module}:{name}")


class StandIn(Model):
    """What a model has that builds the very source or sink which it was made from."""

    _part: Any = PrivateAttr(default=None)

    def build(self, site: Site) -> Any:  # noqa: ANN401 - a source for the one kind, a sink for the other
        """The part itself, wherever it is asked for."""
        return self._part


def _standing_in(kind: type[Kind], part: object, **said: object) -> Kind:
    """A model of this kind with the fields of a source or sink."""
    model = _fields_of(part, _kind_that_stands_in(kind), **said)
    model._part = part
    return cast("Kind", model)


@cache
def _kind_that_stands_in(kind: type[Model]) -> Any:  # noqa: ANN401 - a class that is made here, of two kinds at once
    return create_model(f"Given{kind.__name__}", __base__=(StandIn, kind))


def _fields_of(part: object, kind: type[Kind], **said: object) -> Kind:
    names = [field.alias or name for name, field in kind.model_fields.items()]  # as files and Python spell them
    known = {name: getattr(part, name) for name in names if hasattr(part, name)}
    if not isinstance(known.get("schema", ""), str):
        del known["schema"]  # a StructType of Spark, or none
    known |= {name: absolute(known[name]) for name in ("path",) if isinstance(known.get(name), str)}
    return kind.model_construct(**{**known, **{name: each for name, each in said.items() if name in kind.model_fields}})

"""A target that moves the tables of a project elsewhere: into another folder, into another schema.

What jobs fill is moved, and so is what they read of each other; what comes from outside is read where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from floodmark.errors import ConfigError
from floodmark.locations import is_url
from floodmark.project.kinds import DeltaSink, DeltaSource, FilesSink, FilesSource, PathOrTable
from floodmark.project.kinds.medallion import FactSource
from floodmark.project.kinds.servers import CatalogSource, PostgresSink, PostgresSource
from floodmark.project.models import JobModel, PythonJobs, Quarantine

if TYPE_CHECKING:
    from floodmark.project.kinds import SinkModel, SourceModel
    from floodmark.project.kinds.monitoring import Health
    from floodmark.project.models import Project, Target


Place: TypeAlias = tuple[str, ...]
"""A folder, a table of the catalog, or a table of a database."""
MOVES = ("schema", "folder")
"""Fields of a target that say where tables go; all others are laid over those of the file."""


def move_tables(project: Project, name: str) -> Project:
    """The project as that target has it. Raises ConfigError where a table cannot go along."""
    target = project.targets[name]
    if target.schema_ is None and target.folder is None:
        return project
    if target.namespace is None and target.store is None:
        said = f"target '{name}' moves tables, and would move the marks of the others' tables."
        raise ConfigError(said, hint=f"give it marks of its own: namespace: {name}")
    if any(isinstance(each, PythonJobs) for each in project.listed):
        said = f"target '{name}' moves tables, and jobs that are written in Python say themselves where theirs are."
        raise ConfigError(said, hint="let their module read a variable, and leave schema and folder out of the target")
    move = Move(name, target, {place for job in project.jobs for sink in job.sinks for place in _filled(sink)})
    changed = project.with_listed([move.job(job) for job in project.jobs])
    return changed.model_copy(update={"health": move.health(project.health)})


def _filled(sink: SinkModel) -> Iterator[Place]:
    if isinstance(sink, DeltaSink | FilesSink) and sink.path:
        yield _folder(sink.path)
    if isinstance(sink, DeltaSink) and sink.table:
        yield _catalog(sink.table)
    if isinstance(sink, PostgresSink):
        yield _database(sink.url, sink.table)


def _folder(path: str) -> Place:
    return ("folder", path.removeprefix("./").rstrip("/"))


def _catalog(table: str) -> Place:
    return ("catalog", table.lower())


def _database(url: str, table: str) -> Place:
    return ("database", url, table if "." in table else f"public.{table}")


@dataclass(frozen=True)
class Move:
    """Where a target puts things, and what jobs of the project fill."""

    name: str
    target: Target
    filled: set[Place]

    def job(self, job: JobModel) -> JobModel:
        self._require_movable_sql(job)
        aside = {"quarantine": Quarantine(path=self.path(job.places_aside()["quarantine"]))}
        if job.dead_letters is not None:
            letters = self.path(job.places_aside()["dead_letters"])
            aside["dead_letters"] = job.dead_letters.model_copy(update={"path": letters})  # type: ignore[assignment]
        parts = {"source": self.source(job.source), "sinks": tuple(map(self.sink, job.sinks))}
        return job.model_copy(update={**parts, **aside, "spool": self.path(job.spool)})

    def sink(self, sink: SinkModel) -> SinkModel:
        changes: dict[str, Any] = {}
        if isinstance(sink, DeltaSink | FilesSink) and sink.path:
            changes["path"] = self.path(sink.path)
        if isinstance(sink, DeltaSink | PostgresSink) and sink.table:
            changes["table"] = self.table(sink.table)
        return sink.model_copy(update=changes)

    def source(self, source: SourceModel) -> SourceModel:
        if isinstance(source, FactSource):
            rows, lookups = self._same(source.rows), tuple(map(self._same, source.lookups))
            return source.model_copy(update={"rows": rows, "lookups": lookups})
        if isinstance(source, DeltaSource):
            same: DeltaSource = self._same(source)
            return same
        if isinstance(source, FilesSource) and _folder(source.path) in self.filled:
            return source.model_copy(update={"path": self.path(source.path)})
        if isinstance(source, CatalogSource) and _catalog(source.name) in self.filled:
            return source.model_copy(update={"name": self.table(source.name)})
        if isinstance(source, PostgresSource) and source.table and _database(source.url, source.table) in self.filled:
            return source.model_copy(update={"table": self.table(source.table)})
        return source

    def _same(self, table: Any) -> Any:  # noqa: ANN401 - a source, or a table of a fact
        """A Delta table that is read, moved if a job of the project fills it."""
        named: PathOrTable = table
        if named.path and _folder(named.path) in self.filled:
            return named.model_copy(update={"path": self.path(named.path)})
        if named.table and _catalog(named.table) in self.filled:
            return named.model_copy(update={"table": self.table(named.table)})
        return named

    def path(self, path: str) -> str:
        """A path seen from the project's folder, in the target's own."""
        if self.target.folder is None:
            return path
        if is_url(path) or path.startswith(("/", "~")):
            into = f"target '{self.name}' moves tables into {self.target.folder}"
            said = f"{into}, and {path} is not in the project's folder."
            raise ConfigError(said, hint="write it with a variable, as in ${LAKE}/orders, and set that for each target")
        return f"{self.target.folder.rstrip('/')}/{path}"

    def table(self, table: str) -> str:
        """A table's name with the target's schema; its catalog stays."""
        if self.target.schema_ is None:
            return table
        *catalog, _schema, name = ["", *table.split(".")] if "." not in table else table.split(".")
        return ".".join([*catalog, self.target.schema_, name])

    def health(self, health: Health) -> Health:
        """The tables that health names beside those of jobs."""
        tables: Mapping[str, Any] = {
            name: own.model_copy(update={"path": self.path(own.path)})
            if own.path and _folder(own.path) in self.filled
            else own
            for name, own in health.tables.items()
        }
        return health.model_copy(update={"tables": tables})

    def _require_movable_sql(self, job: JobModel) -> None:
        """A table that the SQL names beside its source would stay where it is."""
        if self.target.schema_ is None or job.transform is None or not job.transform.sql:
            return
        import sqlglot
        from sqlglot import exp

        try:
            tree = sqlglot.parse_one(job.transform.sql, read="spark")
        except sqlglot.errors.SqlglotError:
            return  # lint says so
        for table in tree.find_all(exp.Table):
            whole = ".".join(part.name for part in table.parts)
            if _catalog(whole) in self.filled:
                said = f"target '{self.name}' moves {whole}, and the SQL of job '{job.name}' names it."
                raise ConfigError(said, hint="write its schema with a variable: ${SCHEMA}." + table.name)

"""One job as a flow: from its source's tables through its transform to its sinks' tables, column by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.jobs.job import Job, as_transform
from floodmark.jobs.kinds import PythonSource
from floodmark.lineage import places
from floodmark.lineage.columns import Dataset, Origin, Origins, Relation
from floodmark.lineage.inputs import Known, names_in, tables_of
from floodmark.lineage.outputs import dataset_of, written
from floodmark.lineage.queries import columns_of, expression_origins
from floodmark.medallion.dimension import Members
from floodmark.sinks.scd_versions import INTERVAL
from floodmark.step.transform import Identity, Sql

if TYPE_CHECKING:
    from floodmark.jobs.kinds import Site
    from floodmark.jobs.project import JobModel


@dataclass(frozen=True)
class Unread:
    """A transform of which only the name is known: it is not imported, let alone run."""

    name: str


@dataclass(frozen=True)
class Parts:
    """What lineage needs of a job."""

    job: str
    sources: tuple[object, ...]
    transform: object
    sinks: tuple[object, ...]

    @classmethod
    def of_job(cls, job: Job) -> Parts:
        return cls(job.name, job.sources, as_transform(job.transform), tuple(job.sinks))

    @classmethod
    def of_model(cls, model: JobModel, site: Site) -> Parts:
        """From the project file. No module of the user's is imported, and nothing is connected to."""
        source = model.source if isinstance(model.source, PythonSource) else model.source.build(site)
        return cls(model.name, (source,), _declared(model, site), tuple(sink.build(site) for sink in model.sinks))


def _declared(model: JobModel, site: Site) -> object:
    given = model.transform
    if given is None:
        return Identity()
    if given.dimension is not None:
        return given.dimension.build(site)
    return Unread(given.python) if given.python else as_transform(given.sql)


@dataclass(frozen=True)
class Flow:
    """A job with what it reads and, for each dataset that it fills, where the columns come from.

    `unread` names a transform that is Python: which of its columns come from where was not read.
    """

    job: str
    inputs: tuple[Dataset, ...]
    outputs: Mapping[Dataset, Relation]
    unread: str | None = None


def flow_of(parts: Parts, known: Known) -> Flow:
    """The flow of one job. Raises ConfigError if its SQL cannot be parsed."""
    outputs = [(sink, dataset_of(sink)) for sink in parts.sinks]
    rows = _transformed(parts, known, [dataset for _, dataset in outputs])
    made = {dataset: _completed(written(sink, rows), known(dataset)) for sink, dataset in outputs}
    return Flow(parts.job, rows.datasets, made, _unread(parts.transform))


def _transformed(parts: Parts, known: Known, outputs: Sequence[Dataset]) -> Relation:
    tables = {name: table for source in parts.sources for name, table in tables_of(source, known).items()}
    transform = parts.transform
    if isinstance(transform, Sql):
        named = {"source": next(iter(tables.values()))} if len(tables) == 1 else tables
        return _query(parts.job, transform, named, known).beside(tables.values())
    if isinstance(transform, Members):
        return _members(transform, next(iter(tables.values())))
    if isinstance(transform, Identity):
        return next(iter(tables.values()))
    return _by_name(transform, list(tables.values()), next(filter(None, map(known, outputs)), None))


def _query(job: str, transform: Sql, tables: Mapping[str, Relation], known: Known) -> Relation:
    try:
        return columns_of(transform.text, tables, lambda name: _beside(name, known))
    except ConfigError as error:
        raise ConfigError(f"job '{job}': {error.message}", hint=error.hint) from error


def _beside(name: str, known: Known) -> Relation:
    """A table that the SQL names and no source gives: of the catalog, or by its path."""
    catalog, _, path = name.partition(".")
    dataset = places.folder(path) if catalog == "delta" and "/" in path else Dataset("catalog", name)
    return Relation.of(dataset, known(dataset))


def _members(members: Members, feed: Relation) -> Relation:
    columns: dict[str, Origins] = {name: expression_origins(sql, feed) for name, sql in members.columns.items()}
    interval = {name: feed.origins(name) for name in INTERVAL} if members.versions else {}
    named = {**columns, **interval}
    key = dict.fromkeys(origin.made("computed") for name in members.named_by for origin in named.get(name, ()))
    return Relation(feed.datasets, {members.key: tuple(key), **named})


def _by_name(transform: object, tables: Sequence[Relation], stored: Sequence[str] | None) -> Relation:
    """Columns that a function gives, as it declares them or as its table has them, under names that its rows had."""
    declared = names_in(getattr(transform, "schema", None))
    datasets = tuple(dict.fromkeys(dataset for table in tables for dataset in table.datasets))
    columns = {name: tuple(_namesakes(name, tables)) for name in declared or stored or ()}
    return Relation(datasets, columns)


def _namesakes(name: str, tables: Sequence[Relation]) -> list[Origin]:
    return [origin.made("by name") for table in tables if table.lists(name) for origin in table.origins(name)]


def _completed(rows: Relation, stored: Sequence[str] | None) -> Relation:
    """Columns that the stored table has and that came through a `*` are listed, too."""
    if not rows.rest or stored is None:
        return rows
    more = {name: rows.origins(name) for name in stored if not rows.lists(name)}
    return replace(rows, columns={**rows.columns, **more})


def _unread(transform: object) -> str | None:
    if isinstance(transform, Identity | Sql | Members):
        return None
    function = getattr(transform, "function", transform)
    return (
        transform.name if isinstance(transform, Unread) else getattr(function, "__qualname__", type(function).__name__)
    )

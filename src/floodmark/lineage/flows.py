"""One job as a flow: from its source's tables through its transform to its sinks' tables, column by column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp
from sqlglot.errors import SqlglotError

from floodmark import sinks, sources
from floodmark.errors import ConfigError
from floodmark.inputs import parse_sql
from floodmark.jobs.job import Job, as_transform
from floodmark.lineage import datasets as places
from floodmark.lineage.datasets import Dataset, Origin, Origins, Relation
from floodmark.lineage.queries import columns_of, expression_origins
from floodmark.medallion.dimensions import Members
from floodmark.medallion.facts import TouchedDates
from floodmark.project.kinds import PythonSource
from floodmark.project.python_jobs import GivenJob
from floodmark.sinks.contract import OWN
from floodmark.sinks.delta import DeltaDates
from floodmark.sinks.scd.arrival import CHANGE as SCD_CHANGE
from floodmark.sinks.scd.arrival import RENAMED, SNAPSHOT_AT
from floodmark.sinks.scd.events import INTERVAL
from floodmark.sources.kafka.reading import COLUMNS, PREFIX
from floodmark.sources.values import value_of
from floodmark.spark.table_files import CHANGE, TIME, VERSION
from floodmark.step.transform import Identity, Sql

if TYPE_CHECKING:
    from floodmark.project.kinds import Site
    from floodmark.project.models import JobModel


ColumnsOf: TypeAlias = Callable[[Dataset], Sequence[str] | None]
"""The columns of a dataset, where somebody knows them all."""
Place: TypeAlias = Callable[[str], Dataset]


@dataclass(frozen=True)
class Flow:
    """A job with what it reads and, for each dataset that it fills, where the columns come from.

    `unread_transform` names a transform that is Python: which of its columns come from where was not read.
    """

    job: str
    inputs: tuple[Dataset, ...]
    outputs: Mapping[Dataset, Relation]
    unread_transform: str | None = None


@dataclass(frozen=True)
class Parts:
    """What lineage needs of a job."""

    name: str
    sources: tuple[object, ...]
    transform: object
    sinks: tuple[object, ...]

    @classmethod
    def of_job(cls, job: Job) -> Parts:
        return cls(job.name, job.sources, as_transform(job.transform), tuple(job.sinks))

    @classmethod
    def of_model(cls, model: JobModel, site: Site) -> Parts:
        """From the project file. No module of the user's is imported, and nothing is connected to."""
        if isinstance(model, GivenJob):
            return cls.of_job(model.job)
        source = model.source if isinstance(model.source, PythonSource) else model.source.build(site)
        return cls(model.name, (source,), _transform_in(model, site), tuple(sink.build(site) for sink in model.sinks))


def _transform_in(model: JobModel, site: Site) -> object:
    transform = model.transform
    if transform is None:
        return Identity()
    if transform.dimension is not None:
        return transform.dimension.build()
    return UnreadTransform(transform.python) if transform.python else as_transform(transform.sql)


@dataclass(frozen=True)
class UnreadTransform:
    """A transform of which only the name is known: it is not imported, let alone run."""

    name: str


def inputs_of(parts: Parts) -> set[Dataset]:
    """What a job reads; where its SQL is such as only Spark can read, what its sources do."""
    try:
        return set(flow_of(parts, _without_columns).inputs)
    except ConfigError:
        tables = [table for source in parts.sources for table in tables_of(source, _without_columns).values()]
        return {dataset for table in tables for dataset in table.datasets}


def _without_columns(_dataset: Dataset) -> None:
    """Columns are not asked for."""


def flow_of(parts: Parts, known: ColumnsOf) -> Flow:
    """The flow of one job. Raises ConfigError if its SQL cannot be parsed."""
    outputs = [(sink, dataset_of(sink)) for sink in parts.sinks]
    rows = _rows_made_by(parts, known, [dataset for _, dataset in outputs])
    made = {dataset: _with_stored_columns(columns_in(sink, rows), known(dataset)) for sink, dataset in outputs}
    return Flow(parts.name, rows.datasets, made, _name_of_unread(parts.transform))


def _rows_made_by(parts: Parts, known: ColumnsOf, outputs: Sequence[Dataset]) -> Relation:
    tables = {name: table for source in parts.sources for name, table in tables_of(source, known).items()}
    transform = parts.transform
    if isinstance(transform, Sql):
        named = {"source": next(iter(tables.values()))} if len(tables) == 1 else tables
        return _query(parts.name, transform, named, known).beside(tables.values())
    if isinstance(transform, Members):
        return _members(transform, next(iter(tables.values())))
    if isinstance(transform, Identity):
        return next(iter(tables.values()))
    return _by_name(transform, list(tables.values()), next(filter(None, map(known, outputs)), None))


def _query(job: str, transform: Sql, tables: Mapping[str, Relation], known: ColumnsOf) -> Relation:
    try:
        return columns_of(transform.text, tables, lambda name: _beside(name, known))
    except ConfigError as error:
        raise ConfigError(f"job '{job}': {error.message}", hint=error.hint) from error


def _beside(name: str, known: ColumnsOf) -> Relation:
    """A table that the SQL names and no source gives: of the catalog, or by its path."""
    catalog, _, path = name.partition(".")
    dataset = places.folder(path) if catalog == "delta" and "/" in path else Dataset("catalog", name)
    return Relation.of(dataset, known(dataset))


def _members(members: Members, feed: Relation) -> Relation:
    columns: dict[str, Origins] = {name: expression_origins(sql, feed) for name, sql in members.columns.items()}
    interval = {name: feed.origins(name) for name in INTERVAL} if members.versions else {}
    named = {**columns, **interval}
    key = dict.fromkeys(origin.after_step("computed") for name in members.identity for origin in named.get(name, ()))
    return Relation(feed.datasets, {members.key: tuple(key), **named})


def _by_name(transform: object, tables: Sequence[Relation], stored: Sequence[str] | None) -> Relation:
    """Columns that a function gives, as it declares them or as its table has them, under names that its rows had."""
    declared = names_in(getattr(transform, "schema", None))
    datasets = tuple(dict.fromkeys(dataset for table in tables for dataset in table.datasets))
    columns = {name: tuple(_namesakes(name, tables)) for name in declared or stored or ()}
    return Relation(datasets, columns)


def _namesakes(name: str, tables: Sequence[Relation]) -> list[Origin]:
    return [origin.after_step("by name") for table in tables if table.lists(name) for origin in table.origins(name)]


def _with_stored_columns(rows: Relation, stored: Sequence[str] | None) -> Relation:
    """Columns that the stored table has and that came through a `*` are listed, too."""
    if not rows.rest or stored is None:
        return rows
    more = {name: rows.origins(name) for name in stored if not rows.lists(name)}
    return replace(rows, columns={**rows.columns, **more})


def _name_of_unread(transform: object) -> str | None:
    if isinstance(transform, Identity | Sql | Members):
        return None
    function = getattr(transform, "function", transform)
    return (
        transform.name
        if isinstance(transform, UnreadTransform)
        else getattr(function, "__qualname__", type(function).__name__)
    )


def tables_of(source: object, known: ColumnsOf) -> dict[str, Relation]:
    """The tables of a source, by the names that SQL has for them where a job has several."""
    if isinstance(source, TouchedDates):
        return {each.name: _stored_rows(places.delta(each.path, each.table), known) for each in source.inputs}
    return {str(getattr(source, "name", "source")): _rows_of(source, known)}


def _rows_of(source: object, known: ColumnsOf) -> Relation:
    if isinstance(source, sources.Delta):
        rows = _stored_rows(places.delta(source.path, source.table), known)
        added = (CHANGE, VERSION, TIME) if source.changes == "feed" else ()
        return Relation(rows.datasets, {**rows.columns, **dict.fromkeys(added, ())}, rows.rest)
    if isinstance(source, sources.Table):
        rows = _stored_rows(places.delta(None, source.table), known)
        added = (SNAPSHOT_AT, *(("_deleted",) if source.absent == "delete" else ())) if source.snapshot else ()
        return Relation(rows.datasets, {**rows.columns, **dict.fromkeys(added, ())}, rows.rest)
    if isinstance(source, sources.Files):
        return _declared_columns(places.folder(str(source.path)), source.schema, known)
    if isinstance(source, sources.Kafka):
        return _messages(source)
    if isinstance(source, sources.Postgres):
        return _in_database(source, lambda table: places.postgres(source.url, table), known, "postgres")
    if isinstance(source, sources.Sqlite):
        return _in_database(source, lambda table: places.sqlite(str(source.path), table), known, "sqlite")
    if isinstance(source, sources.Jdbc):
        return _in_database(source, lambda table: places.jdbc(source.url, table), known, "")
    name = getattr(source, "object", None) or type(source).__name__
    return Relation.of(Dataset("python", str(name)), None)


def _stored_rows(dataset: Dataset, known: ColumnsOf) -> Relation:
    return Relation.of(dataset, known(dataset))


def _declared_columns(dataset: Dataset, schema: object, known: ColumnsOf) -> Relation:
    names = names_in(schema) if schema is not None else None
    return Relation.of(dataset, names if names is not None else known(dataset))


def names_in(schema: object) -> list[str] | None:
    """The columns of a schema: DDL, a dataclass, or Spark's own; None if it is none of these."""
    if isinstance(schema, str):
        names = _names_in_text(schema)
        return None if names is None else list(names)
    if isinstance(schema, type) and is_dataclass(schema):
        return [each.name for each in fields(schema)]
    names = getattr(schema, "names", None)
    return list(names) if names is not None else None


@lru_cache(maxsize=1024)
def _names_in_text(ddl: str) -> tuple[str, ...] | None:
    try:
        table = parse_sql(f"CREATE TABLE t ({ddl})")
    except SqlglotError:
        return None
    return tuple(each.name for each in table.this.expressions if isinstance(each, exp.ColumnDef))


def _messages(source: sources.Kafka) -> Relation:
    value, datasets = value_of(source.value), [places.topic(source.bootstrap, topic) for topic in source.topics]
    if isinstance(value, str):
        names: list[str] | None = [name for name in COLUMNS if name in (*source.columns, "value")]
    else:
        fields_there = names_in(value.schema)
        own = [f"{PREFIX}{name}" for name in source.columns if name != "value"]
        names = [*fields_there, *own] if fields_there is not None else None
    rows = [Relation.of(dataset, names) for dataset in datasets]
    columns = {name: tuple(each.columns[name][0] for each in rows) for name in names or ()}
    return Relation(tuple(datasets), columns, tuple(rest for each in rows for rest in each.rest))


def _in_database(
    source: sources.Postgres | sources.Sqlite | sources.Jdbc, place: Place, known: ColumnsOf, dialect: str
) -> Relation:
    if source.table is not None:
        return _stored_rows(place(source.table), known)
    found: Mapping[str, Relation] = {}
    try:
        return columns_of(str(source.query), found, lambda name: _stored_rows(place(name), known), dialect)
    except ConfigError:  # the database's own dialect is not always one that can be read here
        return Relation.of(place("(query)"), None)


def dataset_of(sink: object) -> Dataset:
    """Where the rows go."""
    if isinstance(sink, sinks.Delta | sinks.Scd1 | DeltaDates):
        return places.delta(sink.path, sink.table)
    if isinstance(sink, sinks.Files):
        return places.folder(sink.path)
    if isinstance(sink, sinks.Kafka):
        return places.topic(sink.bootstrap, sink.topic)
    if isinstance(sink, sinks.Postgres):
        return places.postgres(sink.url, sink.table)
    return Dataset("console" if isinstance(sink, sinks.Console) else "python", str(getattr(sink, "name", sink)))


def columns_in(sink: object, rows: Relation) -> Relation:
    """The columns that the dataset gets; those that only help a sink to choose never reach it."""
    kept = replace(rows, columns={name: each for name, each in rows.columns.items() if not name.startswith(OWN)})
    if isinstance(sink, sinks.Scd1):
        return _with_history(sink, kept)
    if isinstance(sink, sinks.Kafka) and sink.value != "json":
        return _message(sink, kept)
    return kept


def _with_history(sink: sinks.Scd1, rows: Relation) -> Relation:
    columns = dict(rows.columns)
    if sink.changes == "feed":
        columns = {RENAMED.get(name, name): each for name, each in columns.items() if name != SCD_CHANGE}
    elif sink.changes == "snapshot" and not sink.sequence:
        columns[SNAPSHOT_AT] = ()
    if isinstance(sink, sinks.Scd2):
        renamed = replace(rows, columns=columns)
        since = [renamed.origins(name) for name in (sink.order.moment, sink.first_valid_from) if name]
        columns |= dict.fromkeys(INTERVAL, _computed_from(since))
    return replace(rows, columns=columns)


def _message(sink: sinks.Kafka, rows: Relation) -> Relation:
    """A message that is one expression, and its key."""
    value = expression_origins(sink.value.partition(":")[2], rows)
    key = {"key": expression_origins(sink.key, rows)} if sink.key else {}
    return replace(rows, columns={**key, "value": value}, rest=())


def _computed_from(columns: list[Origins]) -> Origins:
    return tuple(dict.fromkeys(origin.after_step("computed") for origins in columns for origin in origins))

"""What a source gives a transform to read: its tables, with the columns that are known of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TypeAlias

import sqlglot
from sqlglot import exp

from floodmark import sources
from floodmark.errors import ConfigError
from floodmark.lineage import places
from floodmark.lineage.columns import Dataset, Relation
from floodmark.lineage.queries import columns_of
from floodmark.medallion.fact_source import TouchedDates
from floodmark.sources.delta import CHANGE, TIME, VERSION
from floodmark.sources.kafka_reading import COLUMNS, PREFIX
from floodmark.sources.kafka_value import value_of

Known: TypeAlias = Callable[[Dataset], Sequence[str] | None]
"""The columns of a dataset, where somebody knows them all."""
Place: TypeAlias = Callable[[str], Dataset]


def tables_of(source: object, known: Known) -> dict[str, Relation]:
    """The tables of a source, by the names that SQL has for them where a job has several."""
    if isinstance(source, TouchedDates):
        return {each.name: _stored(places.delta(each.path, each.table), known) for each in source.inputs}
    return {str(getattr(source, "name", "source")): _rows_of(source, known)}


def _rows_of(source: object, known: Known) -> Relation:
    if isinstance(source, sources.Delta):
        rows = _stored(places.delta(source.path, source.table), known)
        added = (CHANGE, VERSION, TIME) if source.changes == "feed" else ()
        return Relation(rows.datasets, {**rows.columns, **dict.fromkeys(added, ())}, rows.rest)
    if isinstance(source, sources.Files):
        return _declared(places.folder(str(source.path)), source.schema, known)
    if isinstance(source, sources.Kafka):
        return _messages(source)
    if isinstance(source, sources.Postgres):
        return _in_database(source, lambda table: places.postgres(source.url, table), known, "postgres")
    if isinstance(source, sources.Sqlite):
        return _in_database(source, lambda table: places.sqlite(str(source.path), table), known, "sqlite")
    if isinstance(source, sources.Jdbc):
        return _in_database(source, lambda table: places.jdbc(source.url, table), known, "")
    told = getattr(source, "object", None) or type(source).__name__
    return Relation.of(Dataset("python", str(told)), None)


def names_in(schema: object) -> list[str] | None:
    """The columns of a schema: DDL, a dataclass, or Spark's own; None if it is none of these."""
    if isinstance(schema, str):
        return _names_in_text(schema)
    if isinstance(schema, type) and is_dataclass(schema):
        return [each.name for each in fields(schema)]
    names = getattr(schema, "names", None)
    return list(names) if names is not None else None


def _names_in_text(ddl: str) -> list[str] | None:
    try:
        table = sqlglot.parse_one(f"CREATE TABLE t ({ddl})", read="spark")
    except sqlglot.errors.SqlglotError:
        return None
    return [each.name for each in table.this.expressions if isinstance(each, exp.ColumnDef)]


def _stored(dataset: Dataset, known: Known) -> Relation:
    return Relation.of(dataset, known(dataset))


def _declared(dataset: Dataset, schema: object, known: Known) -> Relation:
    names = names_in(schema) if schema is not None else None
    return Relation.of(dataset, names if names is not None else known(dataset))


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
    source: sources.Postgres | sources.Sqlite | sources.Jdbc, place: Place, known: Known, dialect: str
) -> Relation:
    if source.table is not None:
        return _stored(place(source.table), known)
    found: Mapping[str, Relation] = {}
    try:
        return columns_of(str(source.query), found, lambda name: _stored(place(name), known), dialect)
    except ConfigError:  # the database's own dialect is not always one that can be read here
        return Relation.of(place("(query)"), None)

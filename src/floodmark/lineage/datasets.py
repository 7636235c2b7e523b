"""Datasets, their columns, and where these come from: the values that everything else here is said in.

Datasets are called by OpenLineage's rules for names, and never with a login in them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

from floodmark.locations import local_path, native_uri
from floodmark.logs import without_jdbc_login

Direct = Literal["as it is", "by name", "computed", "aggregated"]
"""`by name`: a column of that name is there, or may be; what happens to it on the way was not read."""
Indirect = Literal["filter", "join", "group", "sort", "window"]
T = TypeVar("T")
STRENGTH: Mapping[Direct, int] = {"as it is": 0, "by name": 1, "computed": 2, "aggregated": 3}
CONTAINER_FIRST = ("abfss", "az")
"""Schemes in which a container stands before the @, where others have a login."""


@dataclass(frozen=True)
class Dataset:
    """A table, a topic, a folder of files, named as OpenLineage does, so that tools know it again.

    >>> str(Dataset("file", "/lake/orders")), str(Dataset("kafka://broker:9092", "orders"))
    ('/lake/orders', 'kafka://broker:9092/orders')
    """

    namespace: str
    name: str

    def __str__(self) -> str:
        return self.name if self.namespace == "file" else f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Origin:
    """A column of a dataset from which a value is made.

    >>> amount = Origin(Dataset("file", "/lake/orders"), "amount")
    >>> amount.how, amount.after_step("computed").how
    ('as it is', 'computed')
    """

    dataset: Dataset
    column: str
    how: Direct = "as it is"

    def after_step(self, how: Direct) -> Origin:
        """The same column after one more step: what was computed once stays computed."""
        return self if STRENGTH[self.how] >= STRENGTH[how] else replace(self, how=how)


@dataclass(frozen=True)
class Influence:
    """A column that decides which rows there are, or in which order, and is in none of their values.

    >>> paid = Influence(Dataset("file", "/lake/orders"), "status", "filter")  # of `WHERE status = 'paid'`
    >>> paid.column
    'status'
    """

    dataset: Dataset
    column: str
    how: Indirect


@dataclass(frozen=True)
class Rest:
    """Columns of a dataset that nobody listed and that go through under their own names, all but some."""

    dataset: Dataset
    how: Direct = "as it is"
    without: frozenset[str] = frozenset()


Origins: TypeAlias = tuple[Origin, ...]


@dataclass(frozen=True)
class Relation:
    """Rows with the origins of their columns. With a `rest`, there are more columns than those listed.

    >>> orders = Relation.of(Dataset("file", "/lake/orders"), ["id", "amount"])
    >>> [origin.column for origin in orders.origins("amount")]
    ['amount']
    """

    datasets: tuple[Dataset, ...] = ()
    columns: Mapping[str, Origins] = field(default_factory=dict)
    rest: tuple[Rest, ...] = ()
    influences: tuple[Influence, ...] = ()

    @classmethod
    def of(cls, dataset: Dataset, columns: Iterable[str] | None) -> Relation:
        """The rows of a dataset as they lie there; None: nobody knows its columns."""
        if columns is None:
            return cls((dataset,), rest=(Rest(dataset),))
        return cls((dataset,), {name: (Origin(dataset, name),) for name in columns})

    def lists(self, name: str) -> bool:
        return any(known.lower() == name.lower() for known in self.columns)

    def origins(self, name: str) -> Origins:
        """Where the column comes from; nothing if that is not known, or if it is a constant."""
        listed = [origins for known, origins in self.columns.items() if known.lower() == name.lower()]
        if listed:
            return listed[0]
        return tuple(Origin(e.dataset, name, e.how) for e in self.rest if name.lower() not in e.without)

    def origins_in_query(self, name: str) -> Origins:
        """As a query names it. One that nobody has listed is taken to be there, since the query says so."""
        if self.rest or self.lists(name):
            return self.origins(name)
        return tuple(Origin(dataset, name, "by name") for dataset in self.datasets)

    def with_names(self, names: Sequence[str]) -> Relation:
        """The same columns under other names, by position; without names, as it is."""
        if not names or self.rest:
            return self
        return replace(self, columns=dict(zip(names, self.columns.values(), strict=False)))

    def by_name(self) -> Relation:
        """The same rows after something that was not read: whatever columns there are, they come by name."""
        return Relation(self.datasets, rest=tuple(Rest(dataset, "by name") for dataset in self.datasets))

    def every_origin(self) -> Origins:
        return tuple(dict.fromkeys(origin for origins in self.columns.values() for origin in origins))

    def beside(self, others: Iterable[Relation]) -> Relation:
        """This relation, with what the others read and are decided by."""
        all_of = [self, *others]
        return replace(self, datasets=_once(e.datasets for e in all_of), influences=_once(e.influences for e in all_of))


def union(first: Relation, second: Relation) -> Relation:
    """The rows of two queries under each other: by position where both list all their columns, else by name."""
    if first.rest or second.rest or len(first.columns) != len(second.columns):
        names = dict.fromkeys([*first.columns, *second.columns])
        columns = {name: _both(first.origins(name), second.origins(name)) for name in names}
    else:
        pairs = zip(first.columns.items(), second.columns.values(), strict=True)
        columns = {name: _both(one, other) for (name, one), other in pairs}
    return Relation(columns=columns, rest=_once([first.rest, second.rest])).beside([first, second])


def _both(one: Origins, other: Origins) -> Origins:
    return tuple(dict.fromkeys([*one, *other]))


def _once(groups: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(each for group in groups for each in group))


def folder(path: str) -> Dataset:
    """Files, or a Delta table that is known by its path."""
    local = local_path(path)
    if local is not None:
        return Dataset("file", str(local).rstrip("/"))
    parts = urlsplit(native_uri(path))
    authority = parts.netloc if parts.scheme in CONTAINER_FIRST else parts.netloc.rpartition("@")[2]
    return Dataset(f"{parts.scheme}://{authority}", parts.path.strip("/"))


def delta(path: str | None, table: str | None) -> Dataset:
    """A Delta table; which catalog knows its name is only known to a session."""
    return folder(path) if path is not None else Dataset("catalog", str(table))


def topic(bootstrap: str | Sequence[str], name: str) -> Dataset:
    """A topic, by the first of its brokers."""
    brokers = bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)
    return Dataset(f"kafka://{brokers.split(',')[0].strip()}", name)


def postgres(url: str, table: str) -> Dataset:
    """A table of PostgreSQL: a URL, or `host=… dbname=…`."""
    if "://" in url:
        parts = urlsplit(url.removeprefix("jdbc:"))
        host, database = parts.netloc.rpartition("@")[2], parts.path.strip("/")
    else:
        settings = dict(part.split("=", 1) for part in shlex.split(url) if "=" in part)
        host, database = (
            f"{settings.get('host', 'localhost')}:{settings.get('port', '5432')}",
            settings.get("dbname", ""),
        )
    authority = host if ":" in host else f"{host or 'localhost'}:5432"
    qualified = table if "." in table else f"public.{table}"
    return Dataset(f"postgres://{authority}", f"{database}.{qualified}" if database else qualified)


def jdbc(url: str, table: str) -> Dataset:
    """A table behind a JDBC driver."""
    if url.startswith("jdbc:postgresql:"):
        return postgres(url, table)
    kind, _, rest = without_jdbc_login(url).removeprefix("jdbc:").partition(":")
    authority, _, database = rest.removeprefix("//").partition("/")
    return Dataset(f"{kind}://{authority}", f"{database}.{table}" if database else table)


def sqlite(path: str, table: str) -> Dataset:
    """A table of a SQLite file."""
    return Dataset(f"sqlite://{local_path(path)}", table)

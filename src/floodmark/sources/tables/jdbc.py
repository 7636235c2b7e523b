"""Looking at a table behind any JDBC driver. Python has no driver for it, so Spark asks: this look starts a JVM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, SourceUnreadable
from floodmark.probes.cursor_ansi import Ansi
from floodmark.probes.cursor_asking import Asking
from floodmark.probes.cursor_columns import Catalog, Finder, kind_by_type
from floodmark.probes.cursor_query import Relation, for_jdbc
from floodmark.probes.cursor_sql import Dialect, Postgres
from floodmark.probes.postgres import FINDER as POSTGRES_FINDER
from floodmark.probes.postgres_catalog import catalog_sql, catalog_told
from floodmark.probes.tables import Asked, Bounds, Ceiling, Column, Cursor, Kind, Low, Point
from floodmark.sources.contract import Session

if TYPE_CHECKING:
    from pyspark.sql import Row
    from pyspark.sql.types import DataType, StructField

KINDS: dict[str, Kind] = {
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "int",
    "decimal": "decimal",
    "date": "date",
    "timestamp_ntz": "timestamp",
}
FINDER = Finder(kind_by_type(KINDS), ", ".join(KINDS))
QUOTES = {"mysql": "`", "mariadb": "`"}
GUESSED = (38, 18)
"""What Spark takes for a number without a scale; a column that really is decimal(38,18) looks the same."""


@dataclass(frozen=True)
class JdbcProbe(Asking):
    """One table or query behind a JDBC URL; `properties` hold driver and login. A probe serves one look or read."""

    url: str = field(repr=False)
    properties: Mapping[str, str] = field(repr=False)
    relation: Relation
    asked: Asked
    session: Session = field(repr=False)

    @property
    def dialect(self) -> Dialect:
        """How this database spells things."""
        return Postgres() if is_postgres(self.url) else Ansi(QUOTES.get(self.url.split(":")[1], '"'))

    def place(self) -> str:
        return without_login(self.url)

    def columns(self) -> tuple[Column, ...]:
        return self._told[0]

    @cached_property
    def _told(self) -> tuple[tuple[Column, ...], Catalog]:
        """The columns, and what the catalog says."""
        with self._failing_as_unreadable():
            described = self._described()
        names, catalog = self._postgres_facts(described) if is_postgres(self.url) else ({}, Catalog())
        return tuple(_column(each, names.get(each.name)) for each in described), catalog

    def cursor(self) -> Cursor:
        return self._cursor

    @cached_property
    def _cursor(self) -> Cursor:
        finder = POSTGRES_FINDER if is_postgres(self.url) else FINDER
        return finder.cursor(self.asked, *self._told, self.place())

    def bounds(self, low: Low, max_rows: int | None, ceilings: Sequence[Ceiling] = ()) -> Bounds:
        if max_rows and not is_postgres(self.url):
            raise ConfigError("this database cannot be read in parts of max_rows.", hint="leave max_rows out")
        return super().bounds(low, max_rows, ceilings)

    def keys_at(self, value: Point | None, at_most: int) -> tuple[Point, ...]:
        if isinstance(self.dialect, Ansi):
            self.dialect.packed_literal(())  # says why it cannot
        return super().keys_at(value, at_most)

    def _described(self) -> list[StructField]:
        nothing = {"after": "NULL", "upto": "NULL", "first_run": self.dialect.truth(True)}
        table = f"(SELECT * FROM {self.relation.sql(self.dialect.quote, nothing)} fm WHERE 1 = 0) fm"
        frame = self.session().read.jdbc(self.url, for_jdbc(table), properties=dict(self.properties))
        return list(frame.schema.fields)

    def _postgres_facts(self, described: list[StructField]) -> tuple[dict[str, str], Catalog]:
        """PostgreSQL's own names of types, and its catalog: Spark shows a time as a timestamp, and knows no index."""
        nothing = {"after": "NULL", "upto": "NULL", "first_run": "TRUE"}
        quote = self.dialect.quote
        items = [f"CAST(pg_typeof(fm.{quote(each.name)}) AS text) AS t{n}" for n, each in enumerate(described)]
        items.append(f"({catalog_sql(self.relation)}) AS c" if self.relation.table is not None else "NULL AS c")
        empty = f"(SELECT * FROM {self.relation.sql(quote, nothing)} fm LIMIT 0) fm"
        *names, catalog = self._rows(f"SELECT {', '.join(items)} FROM (SELECT 1) o LEFT JOIN {empty} ON TRUE")[0]
        types = {each.name: str(name) for each, name in zip(described, names, strict=True)}
        return types, Catalog() if catalog is None else catalog_told(catalog)

    def _rows(self, sql: str) -> list[Row]:
        table = for_jdbc(f"({sql}) fm")
        with self._failing_as_unreadable():
            return self.session().read.jdbc(self.url, table, properties=dict(self.properties)).collect()

    @contextmanager
    def _failing_as_unreadable(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not type(error).__module__.startswith(("pyspark.", "py4j.")):
                raise
            raise SourceUnreadable(self.place(), reason=self._reason(error)) from None

    def _reason(self, error: Exception) -> str:
        """The driver's own words, without the login: a driver may quote its URL."""
        lines = [line.strip() for line in str(error).splitlines()]
        told = next(
            (line for line in lines if "SQLException" in line or "PSQLException" in line), lines[0] if lines else ""
        )
        secrets = [value for name, value in self.properties.items() if "pass" in name.lower() and value]
        for secret in (self.url, *secrets):
            told = told.replace(secret, "…")
        return told


def is_postgres(url: str) -> bool:
    """Whether PostgreSQL is behind the URL: then everything is spelled and checked as its own source does."""
    return url.startswith("jdbc:postgresql:")


def without_login(url: str) -> str:
    """The URL's address alone: what stands before an @ or behind a ? or ; may be a login."""
    head = re.split(r"[?;]", url, maxsplit=1)[0]
    return f"jdbc:{head.split(':')[1]}:{head.rsplit('@', 1)[1]}" if "@" in head else head


def _column(described: StructField, own_name: str | None) -> Column:
    kind = described.dataType
    precision, scale = _sizes(kind)
    if own_name is not None:
        return Column(described.name, own_name, *((precision, scale) if own_name == "numeric" else ()))
    is_time = bool((described.metadata or {}).get("logical_time_type"))
    simple = "decimal" if kind.typeName().startswith("decimal") else kind.simpleString()
    return Column(described.name, "time" if is_time else simple, precision, scale)


def _sizes(kind: DataType) -> tuple[int | None, int | None]:
    sizes = (getattr(kind, "precision", None), getattr(kind, "scale", None))
    return (None, None) if sizes == GUESSED or None in sizes else sizes

"""A table or query behind any JDBC driver as a source; Spark asks and reads, since Python has no driver for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from floodmark.errors import ColumnUnmapped, ConfigError, SourceUnreadable
from floodmark.errors.causes import cause_of
from floodmark.errors.known_causes import jdbc_hint
from floodmark.fields import ColumnNames
from floodmark.logs import without_jdbc_login
from floodmark.probes.postgres import FINDER as POSTGRES_FINDER
from floodmark.probes.postgres import catalog_sql, parse_catalog
from floodmark.probes.tables import (
    Column,
    Kind,
    RequestedCursor,
    ResolvedCursor,
)
from floodmark.probes.tables.databases import KnownDatabase, MySql, database_behind, parse_catalog_rows
from floodmark.probes.tables.dialects import Dialect, Postgres
from floodmark.probes.tables.queries import SqlProbe
from floodmark.probes.tables.relation import Catalog, CursorFinder, Relation, for_jdbc, kind_by_type
from floodmark.sources.tables import TableSource
from floodmark.sources.tables.cursor import Cursor
from floodmark.sources.tables.postgres import select_columns as select_postgres_columns
from floodmark.sources.tables.reading import JdbcTable, SelectedColumn, require_ordered

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession
    from pyspark.sql.types import DataType, StructField

    from floodmark.hwm import Span
    from floodmark.sources.contract import Reading, Session


KINDS: dict[str, Kind] = {
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "int",
    "decimal": "decimal",
    "date": "date",
    "timestamp_ntz": "timestamp",
}
FINDER = CursorFinder(kind_by_type(KINDS), ", ".join(KINDS))
TEXT_FINDER = CursorFinder(kind_by_type({**KINDS, "string": "text"}), "string")
"""Of text only the database knows the order, so it is taken where that is asked for."""
ANSI_QUOTES = "SET SESSION sql_mode = CONCAT_WS(',', NULLIF(@@SESSION.sql_mode, ''), 'ANSI_QUOTES')"
"""Spark quotes names as the standard does where it does not know the URL, and MySQL would take those for texts."""
GUESSED = (38, 18)
"""What Spark takes for a number without a scale; a column that really is decimal(38,18) looks the same."""
UNCHANGED = frozenset(
    {"tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "string", "binary"}
    | {"date", "timestamp", "timestamp_ntz"}
)


@dataclass(frozen=True)
class Jdbc(TableSource):
    """Rows of a table or query, read above the mark of `cursor`; every look starts Spark.

    `options` go to the driver (user, password); the driver's jar has to be on Spark's class path. The cursor is a
    whole number, a decimal, a date or a timestamp; on PostgreSQL also a text. MySQL, MariaDB, SQL Server, Oracle and H2
    are asked which columns are unique; for any other database name several, or say `Cursor("id", unique=True)`.
    `types` may name columns to read as string. Timestamps of other databases than PostgreSQL pass through the JVM's
    zone: set user.timezone to UTC.

    >>> Jdbc("jdbc:mariadb://host/shop", table="orders", cursor="id").name
    'jdbc'
    """

    url: str = field(repr=False)
    table: str | None = None
    query: str | None = None
    cursor: str | Sequence[str] | Cursor = ""
    driver: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    types: Mapping[str, str] = field(default_factory=dict)
    partitions: int | None = None
    fetch_rows: int = 10_000
    name: str = "jdbc"
    key: ColumnNames = ColumnNames()

    def __post_init__(self) -> None:
        if not self.url.startswith("jdbc:") or self.url.count(":") < 2:
            raise ConfigError("the url does not begin with jdbc: and a database.", hint="jdbc:mysql://host:3306/shop")
        self.require_sound()

    def probe(self, session: Session) -> JdbcProbe:
        return JdbcProbe(self.url, self._properties(), self.relation, self.own_cursor.request(self.key), session)

    def read(self, spark: SparkSession, span: Span) -> Reading:
        """The rows of the span. Raises ColumnUnmapped for a column that Spark would change."""
        return self._jdbc_table(spark).reading(spark, span, self.partitions)

    def without_rows(self, spark: SparkSession) -> Reading:
        """The columns, as the database describes them."""
        return self._jdbc_table(spark).without_rows(spark)

    def _jdbc_table(self, spark: SparkSession) -> JdbcTable:
        probe = self.probe(lambda: spark)
        columns, cursor, source = probe.columns(), probe.cursor(), self.description(lambda: spark)
        require_ordered(cursor, self.types)
        if is_postgres(self.url):
            selected = select_postgres_columns(columns, self.types, source)
        else:
            selected = self._select_columns(columns, probe.dialect, source)
        properties = {**self._properties(), **self._custom_schema(columns)}
        return JdbcTable(self.url, properties, probe.dialect, self.relation, cursor, selected)

    def _select_columns(self, columns: Sequence[Column], dialect: Dialect, source: str) -> tuple[SelectedColumn, ...]:
        for column in columns:
            is_known = column.type in UNCHANGED or (column.type == "decimal" and column.precision is not None)
            if not is_known and column.name not in self.types:
                raise ColumnUnmapped(source, column=column.name, type_name=column.declaration)
        return tuple(SelectedColumn(column.name, dialect.quote(column.name)) for column in columns)

    def _custom_schema(self, columns: Sequence[Column]) -> dict[str, str]:
        """Spark's own way to get a column as the driver writes it."""
        if not self.types or is_postgres(self.url):
            return {}
        unknown = sorted(set(self.types) - {column.name for column in columns})
        if unknown or set(self.types.values()) != {"string"}:
            raise ConfigError("types: a JDBC column can be read as string only.", hint="check types and column names")
        return {"customSchema": ", ".join(f"`{name}` STRING" for name in self.types)}

    def _properties(self) -> dict[str, str]:
        ours = {"fetchsize": str(self.fetch_rows), "preferTimestampNTZ": "true"}
        if is_postgres(self.url):
            ours |= {"sessionInitStatement": "SET TIME ZONE 'UTC'", "readOnly": "true"}
        elif isinstance(database_behind(self.url), MySql):
            ours["sessionInitStatement"] = ANSI_QUOTES
        return ours | ({"driver": self.driver} if self.driver else {}) | dict(self.options)


@dataclass(frozen=True)
class JdbcProbe(SqlProbe):
    """One table or query behind a JDBC URL; `properties` hold driver and login. A probe serves one look or read."""

    url: str = field(repr=False)
    properties: Mapping[str, str] = field(repr=False)
    relation: Relation
    requested: RequestedCursor
    session: Session = field(repr=False)

    @property
    def dialect(self) -> Dialect:
        """How this database spells things."""
        return Postgres() if is_postgres(self.url) else database_behind(self.url)

    def place(self) -> str:
        return without_jdbc_login(self.url)

    def columns(self) -> tuple[Column, ...]:
        return self._facts[0]

    @cached_property
    def _facts(self) -> tuple[tuple[Column, ...], Catalog]:
        """The columns, and what the catalog says."""
        with self._failing_as_unreadable():
            fields = self._fields()
        names, catalog = self._postgres_facts(fields) if is_postgres(self.url) else ({}, self._catalog())
        return tuple(_column(each, names.get(each.name)) for each in fields), catalog

    def cursor(self) -> ResolvedCursor:
        return self._cursor

    @cached_property
    def _cursor(self) -> ResolvedCursor:
        finder = POSTGRES_FINDER if is_postgres(self.url) else TEXT_FINDER if self.requested.has_own_order else FINDER
        return finder.cursor(self.requested, *self._facts, self.place())

    def _catalog(self) -> Catalog:
        """What a database that is known by name says of a table; nothing of a query, or where it may not be asked."""
        if not isinstance(self.dialect, KnownDatabase) or self.relation.table is None:
            return Catalog()
        return parse_catalog_rows(self.fetch(self.dialect.catalog_sql(self.relation)))

    def _fields(self) -> list[StructField]:
        nothing = {"after": "NULL", "upto": "NULL", "first_run": self.dialect.truth(True)}
        table = f"(SELECT * FROM {self.relation.sql(self.dialect.quote, nothing)} fm WHERE 1 = 0) fm"
        frame = self.session().read.jdbc(self.url, for_jdbc(table), properties=dict(self.properties))
        return list(frame.schema.fields)

    def _postgres_facts(self, fields: list[StructField]) -> tuple[dict[str, str], Catalog]:
        """PostgreSQL's own names of types, and its catalog: Spark shows a time as a timestamp, and knows no index."""
        nothing = {"after": "NULL", "upto": "NULL", "first_run": "TRUE"}
        quote = self.dialect.quote
        items = [f"CAST(pg_typeof(fm.{quote(each.name)}) AS text) AS t{n}" for n, each in enumerate(fields)]
        items.append(f"({catalog_sql(self.relation)}) AS c" if self.relation.table is not None else "NULL AS c")
        empty = f"(SELECT * FROM {self.relation.sql(quote, nothing)} fm LIMIT 0) fm"
        *names, catalog = self.fetch(f"SELECT {', '.join(items)} FROM (SELECT 1) o LEFT JOIN {empty} ON TRUE")[0]
        types = {each.name: str(name) for each, name in zip(fields, names, strict=True)}
        return types, Catalog() if catalog is None else parse_catalog(catalog)

    def fetch(self, sql: str) -> list[Row]:
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
            cause = cause_of(error)
            if cause.blame == "setup":
                hint = jdbc_hint(self.url) if "driver" in cause.reason.lower() else cause.hint
                raise SourceUnreadable(self.place(), reason=cause.reason, hint=hint) from None
            raise SourceUnreadable(self.place(), reason=self._reason(error)) from None

    def _reason(self, error: Exception) -> str:
        """The driver's own words, without the login: a driver may quote its URL."""
        lines = [line.strip() for line in str(error).splitlines()]
        line = next(
            (line for line in lines if "SQLException" in line or "PSQLException" in line), lines[0] if lines else ""
        )
        secrets = [value for name, value in self.properties.items() if "pass" in name.lower() and value]
        for secret in (self.url, *secrets):
            line = line.replace(secret, "…")
        return line


def is_postgres(url: str) -> bool:
    """Whether PostgreSQL is behind the URL: then everything is spelled and checked as its own source does."""
    return url.startswith("jdbc:postgresql:")


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

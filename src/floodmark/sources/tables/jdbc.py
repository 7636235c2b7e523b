"""A table or query behind any JDBC driver as a source; Spark asks and reads, since Python has no driver for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from floodmark.errors import ColumnUnmapped, ConfigError, SourceUnreadable
from floodmark.logs import without_jdbc_login
from floodmark.probes.postgres import FINDER as POSTGRES_FINDER
from floodmark.probes.postgres import catalog_sql, catalog_told
from floodmark.probes.tables import Asked, Bounds, Ceiling, Column, Kind, Low, Point
from floodmark.probes.tables import Cursor as Seen
from floodmark.probes.tables.dialects import Ansi, Dialect, Postgres
from floodmark.probes.tables.questions import Asking
from floodmark.probes.tables.relation import Catalog, Finder, Relation, for_jdbc, kind_by_type
from floodmark.sources.contract import Reading, Request, Session, Sight
from floodmark.sources.tables.cursor import Cursor, entity, fingerprint
from floodmark.sources.tables.looking import looker_for, repeated_by
from floodmark.sources.tables.postgres import selected as postgres_columns
from floodmark.sources.tables.reading import JdbcTable, require_ordered
from floodmark.sources.tables.safety import guard_of
from floodmark.spark.faults import explained

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession
    from pyspark.sql.types import DataType, StructField

    from floodmark.hwm import HWM, Span


# Looking at a table behind any JDBC driver. Python has no driver for it, so Spark asks: this look starts a JVM.
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
        return without_jdbc_login(self.url)

    def columns(self) -> tuple[Column, ...]:
        return self._told[0]

    @cached_property
    def _told(self) -> tuple[tuple[Column, ...], Catalog]:
        """The columns, and what the catalog says."""
        with self._failing_as_unreadable():
            described = self._described()
        names, catalog = self._postgres_facts(described) if is_postgres(self.url) else ({}, Catalog())
        return tuple(_column(each, names.get(each.name)) for each in described), catalog

    def cursor(self) -> Seen:
        return self._cursor

    @cached_property
    def _cursor(self) -> Seen:
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


UNCHANGED = frozenset(
    {"tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "string", "binary"}
    | {"date", "timestamp", "timestamp_ntz"}
)


@dataclass(frozen=True)
class Jdbc:
    """Rows of a table or query, read above the mark of `cursor`; every look starts Spark.

    `options` go to the driver (user, password); the driver's jar has to be on Spark's class path. The cursor is a
    whole number, a decimal, a date or a timestamp; on PostgreSQL also a text. Other databases cannot be asked whether
    a column is unique: name several, or say `Cursor("id", unique=True)`. `types` may name columns to read as string.
    Timestamps of other databases than PostgreSQL pass through the JVM's zone: set user.timezone to UTC.
    """

    url: str = field(repr=False)
    table: str | None = None
    query: str | None = None
    cursor: str | Cursor = ""
    driver: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    types: Mapping[str, str] = field(default_factory=dict)
    partitions: int | None = None
    fetch_rows: int = 10_000
    name: str = "jdbc"
    key: Sequence[str] = ()
    _relation: Relation = field(init=False, repr=False, compare=False)
    _cursor: Cursor = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.url.startswith("jdbc:") or self.url.count(":") < 2:
            raise ConfigError("the url does not begin with jdbc: and a database.", hint="jdbc:mysql://host:3306/shop")
        object.__setattr__(self, "_relation", Relation(self.table, self.query))
        object.__setattr__(self, "_cursor", Cursor.of(self.cursor))

    def fingerprint(self, session: Session) -> str:
        return fingerprint(without_jdbc_login(self.url), entity(self._relation), self._probe(session).cursor())

    def repeats_by(self) -> tuple[str, ...]:
        """Its key and its cursor, where rows are read again."""
        return repeated_by(self._cursor, self.key)

    def restates(self) -> str | None:
        """A row without a cursor comes again once it has one."""
        return self._cursor.restates

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        """Two or three small statements through Spark."""
        whole, name = not self._relation.is_bounded, entity(self._relation)
        probe = self._probe(session)
        guard = guard_of(self._cursor.safety, probe)
        what = (self._described(), self.name, name, self._cursor, probe)
        return looker_for(self._cursor)(*what, is_whole=whole, guard=guard).look(mark, request)

    def read(self, spark: SparkSession, span: Span) -> Reading:
        """The rows of the span. Raises ColumnUnmapped for a column that Spark would change."""
        return self._table(spark).reading(spark, span, self.partitions)

    def without_rows(self, spark: SparkSession) -> Reading:
        """The columns, as the database describes them."""
        return self._table(spark).without_rows(spark)

    def _table(self, spark: SparkSession) -> JdbcTable:
        probe = self._probe(lambda: spark)
        columns = probe.columns()
        chosen = postgres_columns if is_postgres(self.url) else self._chosen
        cursor, items = probe.cursor(), chosen(columns, self.types, self._described())
        require_ordered(cursor, self.types)
        properties = {**self._properties(), **self._as_text(columns)}
        return JdbcTable(self.url, properties, probe.dialect, self._relation, cursor, items)

    def explain(self, error: Exception, spark: SparkSession, span: Span) -> SourceUnreadable | None:
        """A value that Spark cannot hold, met while reading."""
        return explained(error, self._described())

    def _chosen(self, columns: Sequence[Column], types: Mapping[str, str], source: str) -> tuple[Plain, ...]:
        dialect = self._probe(_no_session).dialect
        for column in columns:
            is_known = column.type in UNCHANGED or (column.type == "decimal" and column.precision is not None)
            if not is_known and column.name not in types:
                raise ColumnUnmapped(source, column=column.name, type_name=column.declared)
        return tuple(Plain(column.name, dialect) for column in columns)

    def _as_text(self, columns: Sequence[Column]) -> dict[str, str]:
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
        return ours | ({"driver": self.driver} if self.driver else {}) | dict(self.options)

    def _probe(self, session: Session) -> JdbcProbe:
        return JdbcProbe(self.url, self._properties(), self._relation, self._cursor.asked(self.key), session)

    def _described(self) -> str:
        return f"{without_jdbc_login(self.url)} {entity(self._relation)}"


@dataclass(frozen=True)
class Plain:
    """A column that is read as it is."""

    name: str
    dialect: Dialect
    arrival: str | None = None

    @property
    def item(self) -> str:
        """The column in a select list."""
        return self.dialect.quote(self.name)


def _no_session() -> SparkSession:
    raise LookupError("how a database spells names is known without a session")

"""A table or query behind any JDBC driver as a source; Spark asks and reads, since Python has no driver for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from floodmark.errors import ColumnUnmapped, ConfigError
from floodmark.probes.cursor_query import Relation
from floodmark.probes.cursor_sql import Dialect
from floodmark.probes.tables import Column
from floodmark.sources.contract import Reading, Request, Session, Sight
from floodmark.sources.table_cursor import Cursor, entity, fingerprint
from floodmark.sources.table_guard import explained
from floodmark.sources.table_jdbc import JdbcTable, require_ordered
from floodmark.sources.table_jdbc_probe import JdbcProbe, is_postgres, without_login
from floodmark.sources.table_postgres_types import selected as postgres_columns
from floodmark.sources.table_safety import guard_of
from floodmark.sources.table_safety_lag import looker_for, repeated_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.errors import SourceUnreadable
    from floodmark.hwm import HWM, Span

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
        return fingerprint(without_login(self.url), entity(self._relation), self._probe(session).cursor())

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
        return f"{without_login(self.url)} {entity(self._relation)}"


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

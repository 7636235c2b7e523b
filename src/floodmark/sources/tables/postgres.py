"""A PostgreSQL table or query as a source: rows above the mark, by a column that grows."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from floodmark.errors import ColumnUnmapped, ConfigError
from floodmark.fields import ColumnNames
from floodmark.postgres import Address
from floodmark.probes.postgres import PostgresProbe
from floodmark.probes.tables import Column
from floodmark.probes.tables.dialects import XMIN, text_literal
from floodmark.probes.tables.dialects import Postgres as Dialect
from floodmark.sources.tables import TableSource, no_session
from floodmark.sources.tables.copying import CopyReader
from floodmark.sources.tables.cursor import Cursor
from floodmark.sources.tables.reading import JdbcTable, SelectedColumn, require_ordered
from floodmark.sources.tables.safety import postgres_guard
from floodmark.spark.faults import END, fault_begin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from floodmark.hwm import Span
    from floodmark.probes.tables import TableProbe
    from floodmark.sources.contract import Reading, Session
    from floodmark.sources.tables.safety import Guard


DRIVER = "org.postgresql.Driver"
PASSED_ON = ("sslmode", "sslrootcert", "sslcert", "sslkey", "options")
"""Parameters of the URL that the JDBC driver knows by the same name."""
PLAIN = frozenset({"smallint", "integer", "bigint", "boolean", "real", "double precision", "bytea"})
TEXTS = frozenset({"text", "character varying", "character"})
WRITTEN = frozenset({"uuid", "json", "jsonb", "xml", "inet", "cidr", "macaddr", "macaddr8", "citext", "name"})
"""Types with one exact text, which is what Spark gets."""
ARRAYS = frozenset({"smallint[]", "integer[]", "bigint[]", "boolean[]", "text[]", "character varying[]"})
TIMES = {"timestamp without time zone": "timestamp", "timestamp with time zone": "timestamptz"}
LARGEST_DECIMAL = 38
DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
MAPPED = {"string": "text", "long": "bigint", "bigint": "bigint", "int": "integer", "double": "double precision"}
EXACT_AS_DOUBLE = (">= CAST('1902-01-01 00:00:00+00' AS {})", "< CAST('2038-01-01 00:00:00+00' AS {})")
"""Below 2^31 seconds a double tells microseconds apart with room to spare, at a third of what a numeric costs."""
SQL = Dialect()


@dataclass(frozen=True)
class Postgres(TableSource):
    """Rows of a table (`public.orders`) or of a query, read above the mark of `cursor`.

    A query may name `:after` and `:upto`; they become literals, and the query is bounded from outside as well. On a
    first run `:after` lies below every value, or is NULL if the query names `:first_run` to tell. Such a query shows
    only what lies above the mark, so a source that was truncated goes unnoticed; text has to be compared there by its
    bytes (COLLATE "C"), as we do.

    A look is one round trip on a kept, read-only connection, and another if rows have to wait.

    `types` says what a column becomes that Spark has no type for, as in `{"total": "decimal(38,10)"}`. `partitions`
    left out means one per core, at most 8: each is a connection. `key` tells rows apart that share a value of the
    cursor; left out, it is the primary key.

    >>> Postgres("postgresql://host/shop", table="public.orders", cursor="seq").table
    'public.orders'
    """

    url: str = field(repr=False)
    table: str | None = None
    query: str | None = None
    cursor: str | Sequence[str] | Cursor = ""
    key: ColumnNames = ColumnNames()
    types: Mapping[str, str] = field(default_factory=dict)
    partitions: int | None = None
    fetch_rows: int = 10_000
    name: str = "postgres"

    def __post_init__(self) -> None:
        self.require_sound()

    def probe(self, session: Session = no_session) -> PostgresProbe:
        return self._kept_probe

    def read(self, spark: SparkSession, span: Span) -> Reading:
        """The rows of the span. Raises ColumnUnmapped for a column that Spark would change."""
        partitions = self.partitions or (1 if self._is_by_xmin else None)  # each scans the table
        return self._jdbc_table().reading(spark, span, partitions)

    def without_rows(self, spark: SparkSession) -> Reading:
        """The columns, as the database describes them."""
        return self._jdbc_table().without_rows(spark)

    def close(self) -> None:
        """Let go of the connection; the next look makes a new one."""
        if "_kept_probe" in vars(self):  # else nobody has looked, and the URL need not be read for this
            self._kept_probe.close()

    @cached_property
    def _kept_probe(self) -> PostgresProbe:
        """Made at the first look, since the URL is read with the driver."""
        return PostgresProbe(Address.parse(self.url), self.relation, self.own_cursor.request(self.key), self.name)

    @cached_property
    def _kept_guard(self) -> Guard:
        """Kept, since it asks once whether it fits this server."""
        return postgres_guard(self.own_cursor.safety, self._kept_probe, is_by_xmin=self._is_by_xmin)

    def _guard(self, probe: TableProbe) -> Guard:
        return self._kept_guard

    @property
    def _is_whole(self) -> bool:
        return super()._is_whole and not self._is_by_xmin

    @property
    def _is_by_xmin(self) -> bool:
        return self.own_cursor.columns == (XMIN.name,)

    def _jdbc_table(self) -> JdbcTable:
        address, cursor = self._kept_probe.address, self._kept_probe.cursor()
        require_ordered(cursor, self.types)
        found = self._kept_probe.columns()
        columns = select_columns(found, self.types, self.description(no_session))
        application = f"floodmark/{self.name}"
        properties = jdbc_properties(address, self.fetch_rows, application)
        bulk = CopyReader(address, application, self._kept_probe.copy)
        schemas = self._known_schemas
        return JdbcTable(jdbc_url(address), properties, SQL, self.relation, cursor, columns, bulk, schemas, found)

    @cached_property
    def _known_schemas(self) -> dict[Hashable, StructType]:
        """Filled by the first reading."""
        return {}


def jdbc_url(address: Address) -> str:
    """The address as JDBC writes it, without the login."""
    if address.host.startswith("/"):
        raise ConfigError(
            "Spark reads PostgreSQL over TCP, and the url names a socket.", hint="name a host and a port in the url"
        )
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"jdbc:postgresql://{host}:{address.port}/{address.database}"


def jdbc_properties(address: Address, fetch_rows: int, application: str) -> dict[str, str]:
    """What the driver is given beside the URL; `readOnly` and UTC hold for every session of Spark's."""
    passed = {name: value for name, value in address.options.items() if name in PASSED_ON}
    return {
        "driver": DRIVER,
        "user": address.user,
        "fetchsize": str(fetch_rows),
        "ApplicationName": application,
        "readOnly": "true",
        "preferTimestampNTZ": "true",
        "sessionInitStatement": "SET TIME ZONE 'UTC'",
        **({"password": address.password} if address.password else {}),
        **passed,
    }


def select_columns(columns: Sequence[Column], types: Mapping[str, str], source: str) -> tuple[SelectedColumn, ...]:
    """Every column, so that Spark gets its values unchanged, or none at all.

    Raises ColumnUnmapped, by name, for a type that Spark would change without a word.
    """
    unknown = sorted(set(types) - {column.name for column in columns})
    if unknown:
        raise ConfigError(f"types: {source} has no column {unknown[0]!r}.", hint="take it out of types")
    return tuple(_select(column, types.get(column.name), source) for column in columns)


def _select(column: Column, wanted: str | None, source: str) -> SelectedColumn:
    name = SQL.quote(column.name)
    if wanted is not None:
        return _as_selected(column, _cast(column, name, wanted))
    if column.type in TIMES:
        return _moment(column, name)
    if column.type in PLAIN | TEXTS:
        return _as_selected(column, name)
    if _fits_decimal(column):  # of the same precision in both branches: else PostgreSQL forgets it
        return _as_selected(column, _unless(column, name, f"{name} <> 'NaN'", column.declaration, "Spark has no NaN"))
    if column.type in WRITTEN:
        return _as_selected(column, f"CAST({name} AS text)")
    if column.type == "date":
        return _as_selected(column, _unless(column, name, f"isfinite({name})", "date", "Spark has no infinity"))
    if column.type in ARRAYS:
        is_flat = f"array_ndims({name}) = 1 OR cardinality({name}) = 0"
        return _as_selected(column, _unless(column, name, is_flat, column.type, "Spark's have one dimension"))
    raise ColumnUnmapped(source, column=column.name, type_name=column.declaration)


def _as_selected(column: Column, sql: str, arrival: str | None = None) -> SelectedColumn:
    return SelectedColumn(column.name, f"{sql} AS {SQL.quote(column.name)}", arrival)


def _fits_decimal(column: Column) -> bool:
    precision, scale = column.precision, column.scale
    if column.type != "numeric" or precision is None or scale is None:
        return False
    return scale <= precision <= LARGEST_DECIMAL


def _moment(column: Column, name: str) -> SelectedColumn:
    """Microseconds since 1970: a java.sql.Timestamp passes through the JVM's zone and loses hours that it skips."""
    short = TIMES[column.type]
    finite = _unless(column, name, f"isfinite({name})", short, "Spark has no infinity")
    arrival = (
        "timestamp_micros({0})"
        if short == "timestamptz"
        else "timestampadd(MICROSECOND, {0}, TIMESTAMP_NTZ '1970-01-01 00:00:00')"
    )
    exact = f"CAST(extract(epoch FROM {finite}) * 1000000 AS bigint)"
    near = " AND ".join(f"{name} {bound.format(column.type)}" for bound in EXACT_AS_DOUBLE)
    fast = f"CAST(date_part('epoch', {name}) * 1000000 AS bigint)"
    return _as_selected(column, f"CASE WHEN {near} THEN {fast} ELSE {exact} END", arrival)


def _cast(column: Column, name: str, wanted: str) -> str:
    decimal = DECIMAL.fullmatch(wanted.strip().lower())
    as_type = f"numeric({decimal[1]},{decimal[2]})" if decimal else MAPPED.get(wanted.strip().lower())
    if as_type is None:
        raise ConfigError(
            f"types: column {column.name!r} cannot be read as {wanted!r}.", hint=f"{', '.join(MAPPED)} or decimal(p,s)"
        )
    cast = f"CAST({name} AS {as_type})"
    if as_type in ("text", "double precision"):
        return cast
    return _unless(column, cast, f"{name} = {cast}", as_type, f"{wanted} would round it")


def _unless(column: Column, value: str, condition: str, as_type: str, why: str) -> str:
    """The value where the condition holds or there is none; else the statement fails, with the column and the value.

    PostgreSQL has no function that fails: a text that is not of the type, and is made at run time, does.
    """
    name = SQL.quote(column.name)
    begin, end = f"{fault_begin('value')}column {column.name!r} holds ", f": {why}{END}"
    words = f"{text_literal(begin)} || CAST({name} AS text) || {text_literal(end)}"
    return f"CASE WHEN {name} IS NULL OR {condition} THEN {value} ELSE CAST({words} AS {as_type}) END"

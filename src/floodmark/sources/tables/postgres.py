"""A PostgreSQL table or query as a source: rows above the mark, by a column that grows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from floodmark.errors import ColumnUnmapped, ConfigError
from floodmark.probes.postgres import Address, PostgresProbe
from floodmark.probes.tables import Column
from floodmark.probes.tables.dialects import XMIN, text_literal
from floodmark.probes.tables.dialects import Postgres as Dialect
from floodmark.probes.tables.relation import Relation
from floodmark.sources.contract import Reading, Request, Session, Sight
from floodmark.sources.tables.cursor import Cursor, entity, fingerprint
from floodmark.sources.tables.looking import looker_for, repeated_by
from floodmark.sources.tables.reading import JdbcTable, require_ordered
from floodmark.sources.tables.safety import postgres_guard
from floodmark.spark.faults import GUARD_BEGIN as BEGIN
from floodmark.spark.faults import GUARD_END as END
from floodmark.spark.faults import explained

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.errors import SourceUnreadable
    from floodmark.hwm import HWM, Span
    from floodmark.sources.tables.safety import Guard


# How each column of a PostgreSQL table is selected so that Spark gets every value unchanged, or none at all.
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
class Selected:
    """A column as it is selected, and what Spark does with it on arrival (None: nothing)."""

    name: str
    sql: str
    arrival: str | None = None

    @property
    def item(self) -> str:
        """The column in a select list."""
        return f"{self.sql} AS {SQL.quote(self.name)}"


def selected(columns: Sequence[Column], types: Mapping[str, str], source: str) -> tuple[Selected, ...]:
    """Every column. Raises ColumnUnmapped, by name, for a type that Spark would change without a word."""
    unknown = sorted(set(types) - {column.name for column in columns})
    if unknown:
        raise ConfigError(f"types: {source} has no column {unknown[0]!r}.", hint="take it out of types")
    return tuple(_selected(column, types.get(column.name), source) for column in columns)


def _selected(column: Column, wanted: str | None, source: str) -> Selected:
    name = SQL.quote(column.name)
    if wanted is not None:
        return Selected(column.name, _mapped(column, name, wanted))
    if column.type in TIMES:
        return _moment(column, name)
    if column.type in PLAIN | TEXTS:
        return Selected(column.name, name)
    if _fits_decimal(column):  # of the same precision in both branches: else PostgreSQL forgets it
        return Selected(column.name, _unless(column, name, f"{name} <> 'NaN'", column.declared, "Spark has no NaN"))
    if column.type in WRITTEN:
        return Selected(column.name, f"CAST({name} AS text)")
    if column.type == "date":
        return Selected(column.name, _unless(column, name, f"isfinite({name})", "date", "Spark has no infinity"))
    if column.type in ARRAYS:
        is_flat = f"array_ndims({name}) = 1 OR cardinality({name}) = 0"
        return Selected(column.name, _unless(column, name, is_flat, column.type, "Spark's have one dimension"))
    raise ColumnUnmapped(source, column=column.name, type_name=column.declared)


def _fits_decimal(column: Column) -> bool:
    precision, scale = column.precision, column.scale
    if column.type != "numeric" or precision is None or scale is None:
        return False
    return scale <= precision <= LARGEST_DECIMAL


def _moment(column: Column, name: str) -> Selected:
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
    return Selected(column.name, f"CASE WHEN {near} THEN {fast} ELSE {exact} END", arrival)


def _mapped(column: Column, name: str, wanted: str) -> str:
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
    begin, end = f"{BEGIN}column {column.name!r} holds ", f": {why}{END}"
    words = f"{text_literal(begin)} || CAST({name} AS text) || {text_literal(end)}"
    return f"CASE WHEN {name} IS NULL OR {condition} THEN {value} ELSE CAST({words} AS {as_type}) END"


DRIVER = "org.postgresql.Driver"
PASSED_ON = ("sslmode", "sslrootcert", "sslcert", "sslkey", "options")
"""Parameters of the URL that the JDBC driver knows by the same name."""


@dataclass(frozen=True)
class Postgres:
    """Rows of a table (`public.orders`) or of a query, read above the mark of `cursor`.

    A query may name `:after` and `:upto`; they become literals, and the query is bounded from outside as well. On a
    first run `:after` lies below every value, or is NULL if the query names `:first_run` to tell. Such a query shows
    only what lies above the mark, so a source that was truncated goes unnoticed; text has to be compared there by its
    bytes (COLLATE "C"), as we do.

    `types` says what a column becomes that Spark has no type for, as in `{"total": "decimal(38,10)"}`. `partitions`
    left out means one per core, at most 8: each is a connection. `key` tells rows apart that share a value of the
    cursor; left out, it is the primary key.
    """

    url: str = field(repr=False)
    table: str | None = None
    query: str | None = None
    cursor: str | Cursor = ""
    key: Sequence[str] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    partitions: int | None = None
    fetch_rows: int = 10_000
    name: str = "postgres"
    _relation: Relation = field(init=False, repr=False, compare=False)
    _cursor: Cursor = field(init=False, repr=False, compare=False)
    _probes: dict[str, PostgresProbe] = field(init=False, repr=False, compare=False, default_factory=dict)
    _guards: dict[str, Guard] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_relation", Relation(self.table, self.query))
        object.__setattr__(self, "_cursor", Cursor.of(self.cursor))

    def fingerprint(self, session: Session) -> str:
        return fingerprint(self._probe().place(), entity(self._relation), self._probe().cursor())

    def repeats_by(self) -> tuple[str, ...]:
        """Its key and its cursor, where rows are read again."""
        return repeated_by(self._cursor, self.key)

    def restates(self) -> str | None:
        """A row without a cursor comes again once it has one."""
        return self._cursor.restates

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        """One round trip on a kept, read-only connection, and another if rows have to wait."""
        probe = self._probe()
        is_whole = not self._relation.is_bounded and not self._is_by_xmin
        what = (self._described(), self.name, entity(self._relation), self._cursor, probe)
        return looker_for(self._cursor)(*what, is_whole=is_whole, guard=self._guard()).look(mark, request)

    def read(self, spark: SparkSession, span: Span) -> Reading:
        """The rows of the span. Raises ColumnUnmapped for a column that Spark would change."""
        partitions = self.partitions or (1 if self._is_by_xmin else None)  # each scans the table
        return self._table().reading(spark, span, partitions)

    def without_rows(self, spark: SparkSession) -> Reading:
        """The columns, as the database describes them."""
        return self._table().without_rows(spark)

    def explain(self, error: Exception, spark: SparkSession, span: Span) -> SourceUnreadable | None:
        """A value that Spark cannot hold, met while reading."""
        return explained(error, self._described())

    def close(self) -> None:
        """Let go of the connection; the next look makes a new one."""
        for probe in self._probes.values():
            probe.close()

    def _table(self) -> JdbcTable:
        probe = self._probe()
        address, cursor = probe.address, probe.cursor()
        require_ordered(cursor, self.types)
        columns = selected(probe.columns(), self.types, self._described())
        properties = jdbc_properties(address, self.fetch_rows, f"floodmark/{self.name}")
        return JdbcTable(jdbc_url(address), properties, Dialect(), self._relation, cursor, columns)

    def _probe(self) -> PostgresProbe:
        if "only" not in self._probes:  # made at the first look: the URL is read with the driver
            address = Address.parse(self.url)
            self._probes["only"] = PostgresProbe(address, self._relation, self._cursor.asked(self.key), self.name)
        return self._probes["only"]

    @property
    def _is_by_xmin(self) -> bool:
        return self._cursor.columns == (XMIN.name,)

    def _guard(self) -> Guard:
        if "only" not in self._guards:  # kept, since it asks once whether it fits this server
            self._guards["only"] = postgres_guard(self._cursor.safety, self._probe(), is_by_xmin=self._is_by_xmin)
        return self._guards["only"]

    def _described(self) -> str:
        return f"{self._probe().place()} {entity(self._relation)}"


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
    passed = {name: value for name, value in address.options if name in PASSED_ON}
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

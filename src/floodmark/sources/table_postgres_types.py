"""How each column of a PostgreSQL table is selected so that Spark gets every value unchanged, or none at all."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from floodmark.errors import ColumnUnmapped, ConfigError
from floodmark.probes.cursor_sql import Postgres, text_literal
from floodmark.probes.tables import Column
from floodmark.sources.table_guard import BEGIN, END

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
SQL = Postgres()


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

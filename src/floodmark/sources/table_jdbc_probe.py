"""Looking at a table behind any JDBC driver. Python has no driver for it, so Spark asks: this look starts a JVM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, SourceUnreadable
from floodmark.probes.cursor_query import Relation, for_jdbc
from floodmark.probes.cursor_sql import Ansi, Dialect, Postgres, above, counted_bounds, from_clause
from floodmark.probes.postgres import cursor_among as postgres_cursor
from floodmark.probes.tables import Bounds, Column, Cursor, Kind, Low
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
QUOTES = {"mysql": "`", "mariadb": "`"}
GUESSED = (38, 18)
"""What Spark takes for a number without a scale; a column that really is decimal(38,18) looks the same."""


@dataclass(frozen=True)
class JdbcProbe:
    """One table or query behind a JDBC URL; `properties` hold driver and login. A probe serves one look or read."""

    url: str = field(repr=False)
    properties: Mapping[str, str] = field(repr=False)
    relation: Relation
    column: str
    session: Session = field(repr=False)

    @property
    def dialect(self) -> Dialect:
        """How this database spells things."""
        return Postgres() if is_postgres(self.url) else Ansi(QUOTES.get(self.url.split(":")[1], '"'))

    def place(self) -> str:
        return without_login(self.url)

    def columns(self) -> tuple[Column, ...]:
        return self._columns

    @cached_property
    def _columns(self) -> tuple[Column, ...]:
        with self._failing_as_unreadable():
            described = self._described()
            names = self._postgres_types(described) if is_postgres(self.url) else {}
        return tuple(_column(each, names.get(each.name)) for each in described)

    def cursor(self) -> Cursor:
        columns = self.columns()
        if is_postgres(self.url):
            return postgres_cursor(columns, self.column, self.place())
        return ansi_cursor(columns, self.column, self.place())

    def bounds(self, low: Low, max_rows: int | None) -> Bounds:
        if max_rows and not is_postgres(self.url):
            raise ConfigError("this database cannot be read in parts of max_rows.", hint="leave max_rows out")
        cursor, dialect = self.cursor(), self.dialect
        relation = from_clause(dialect, self.relation, cursor, low, None)
        asked = dialect.bounds(relation, cursor, above(dialect, cursor, low), max_rows)
        with self._failing_as_unreadable():
            row = self._row(asked)
        padded = isinstance(dialect, Ansi)  # its text is of a fixed width
        return counted_bounds([value.strip() if padded and isinstance(value, str) else value for value in row])

    def _described(self) -> list[StructField]:
        nothing = {"after": "NULL", "upto": "NULL", "first_run": self.dialect.truth(True)}
        table = f"(SELECT * FROM {self.relation.sql(self.dialect.quote, nothing)} fm WHERE 1 = 0) fm"
        frame = self.session().read.jdbc(self.url, for_jdbc(table), properties=dict(self.properties))
        return list(frame.schema.fields)

    def _postgres_types(self, described: list[StructField]) -> dict[str, str]:
        """PostgreSQL's own names: Spark shows a time as a timestamp, and an infinity as the year 9999."""
        nothing = {"after": "NULL", "upto": "NULL", "first_run": "TRUE"}
        quote = self.dialect.quote
        items = ", ".join(f"CAST(pg_typeof(fm.{quote(each.name)}) AS text) AS t{n}" for n, each in enumerate(described))
        empty = f"(SELECT * FROM {self.relation.sql(quote, nothing)} fm LIMIT 0) fm"
        row = self._row(f"SELECT {items} FROM (SELECT 1) o LEFT JOIN {empty} ON TRUE")
        return {each.name: str(name) for each, name in zip(described, row, strict=True)}

    def _row(self, sql: str) -> Row:
        table = for_jdbc(f"({sql}) fm")
        return self.session().read.jdbc(self.url, table, properties=dict(self.properties)).collect()[0]

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


def ansi_cursor(columns: tuple[Column, ...], name: str, place: str) -> Cursor:
    """The cursor by Spark's name of its type. Raises ConfigError for a text: how it is ordered is not known."""
    found = next((column for column in columns if column.name == name), None)
    if found is None:
        names = ", ".join(column.name for column in columns)
        raise ConfigError(f"{place} has no column {name!r} to read by.", hint=f"its columns are: {names}")
    kind = KINDS.get(found.type)
    if kind is None:
        known = ", ".join(KINDS)
        raise ConfigError(f"the cursor {name!r} is of type {found.type}.", hint=f"types that a mark follows: {known}")
    return Cursor(name, "int" if kind == "decimal" and found.scale == 0 else kind, found.type)


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

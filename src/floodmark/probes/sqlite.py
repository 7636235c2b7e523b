"""A SQLite table as Python's own driver sees it: declared types, and how far the cursor reaches above a mark."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from floodmark.errors import ConfigError, SourceUnreadable
from floodmark.probes.cursor_query import Relation
from floodmark.probes.cursor_sql import Sqlite, above, counted_bounds, from_clause
from floodmark.probes.tables import Bounds, Column, Cursor, Low

SQL = Sqlite()
DECIMAL = re.compile(r"(?:NUMERIC|DECIMAL)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
WORDS = ("CHAR", "CLOB", "TEXT", "DATE", "TIME", "UUID", "JSON")
"""Declared types whose values are text in SQLite; a date or time is one that was written in ISO form."""
BUSY_SECONDS = 10


@dataclass
class SqliteProbe:
    """One table or query of one file, which is opened read-only for each look."""

    path: Path
    relation: Relation
    column: str
    _cursor: Cursor | None = field(default=None, repr=False)

    def place(self) -> str:
        return f"sqlite {self.path}"

    def columns(self) -> tuple[Column, ...]:
        nothing = {"after": "NULL", "upto": "NULL", "first_run": "1"}
        view = f"CREATE TEMP VIEW fm_described AS SELECT * FROM {self.relation.sql(SQL.quote, nothing)}"
        with opened(self.path) as connection:
            connection.execute(view)  # in memory: a view tells the declared types of a query's columns too
            told = connection.execute("SELECT name, type FROM pragma_table_info('fm_described')").fetchall()
        return tuple(_column(str(name), str(declared or "").upper()) for name, declared in told)

    def cursor(self) -> Cursor:
        if self._cursor is None:
            self._cursor = cursor_among(self.columns(), self.column, self.place())
        return self._cursor

    def bounds(self, low: Low, max_rows: int | None) -> Bounds:
        cursor = self.cursor()
        relation = from_clause(SQL, self.relation, cursor, low, None)
        with opened(self.path) as connection:
            asked = SQL.bounds(relation, cursor, above(SQL, cursor, low), max_rows)
            return counted_bounds(connection.execute(asked).fetchone())


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The file, read-only. Raises SourceUnreadable if it is not there or no database."""
    try:
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)
        try:
            yield connection
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise SourceUnreadable(f"sqlite {path}", reason=str(error)) from error


def cursor_among(columns: tuple[Column, ...], name: str, place: str) -> Cursor:
    """The cursor column: a whole number, or a text that grows. Raises ConfigError if it is neither."""
    found = next((column for column in columns if column.name == name), None)
    if found is None:
        names = ", ".join(column.name for column in columns)
        raise ConfigError(f"{place} has no column {name!r} to read by.", hint=f"its columns are: {names}")
    if "INT" in found.type:
        return Cursor(name, "int", found.type)
    if any(word in found.type for word in WORDS):
        return Cursor(name, "text", found.type)
    raise ConfigError(
        f"the cursor {name!r} is declared {found.type or 'without a type'}.",
        hint="types that a mark follows in SQLite: INTEGER, TEXT, DATE, DATETIME, TIMESTAMP",
    )


def _column(name: str, declared: str) -> Column:
    found = DECIMAL.fullmatch(declared)
    return Column(name, "DECIMAL", int(found[1]), int(found[2] or 0)) if found else Column(name, declared)

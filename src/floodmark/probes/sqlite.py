"""A SQLite table as Python's own driver sees it: declared types, and how far the cursor reaches above a mark."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from floodmark.errors import SourceUnreadable
from floodmark.probes.tables import Column, Kind, RequestedCursor, ResolvedCursor
from floodmark.probes.tables.dialects import Sqlite, text_literal
from floodmark.probes.tables.queries import SqlProbe
from floodmark.probes.tables.relation import Catalog, CursorFinder, Relation

SQL = Sqlite()
DECIMAL = re.compile(r"(?:NUMERIC|DECIMAL)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
WORDS = ("CHAR", "CLOB", "TEXT", "DATE", "TIME", "UUID", "JSON")
"""Declared types whose values are text in SQLite; a date or time is one that was written in ISO form."""
BUSY_SECONDS = 10
UNIQUE = (
    "SELECT i.name, c.name FROM pragma_index_list({}) AS i, pragma_index_info(i.name) AS c"
    ' WHERE i."unique" AND NOT i.partial AND NOT EXISTS'
    " (SELECT 1 FROM pragma_index_info(i.name) AS e WHERE e.name IS NULL)"
)
"""Unique indexes over plain columns of the whole table, a row for each column."""


@dataclass
class SqliteProbe(SqlProbe):
    """One table or query of one file, which is opened read-only for each look."""

    path: Path
    relation: Relation
    requested: RequestedCursor
    _cursor: ResolvedCursor | None = field(default=None, repr=False)

    @property
    def dialect(self) -> Sqlite:
        return SQL

    def place(self) -> str:
        return f"sqlite {self.path}"

    def columns(self) -> tuple[Column, ...]:
        nothing = {"after": "NULL", "upto": "NULL", "first_run": "1"}
        view = f"CREATE TEMP VIEW fm_described AS SELECT * FROM {self.relation.sql(SQL.quote, nothing)}"
        with open_file(self.path) as connection:
            connection.execute(view)  # in memory: a view tells the declared types of a query's columns too
            columns = connection.execute("SELECT name, type FROM pragma_table_info('fm_described')").fetchall()
        return tuple(_column(str(name), str(declared or "").upper()) for name, declared in columns)

    def cursor(self) -> ResolvedCursor:
        if self._cursor is None:
            self._cursor = FINDER.cursor(self.requested, self.columns(), self._catalog(), self.place())
        return self._cursor

    def _catalog(self) -> Catalog:
        """Nothing is said of a query, a view or a virtual table."""
        if self.relation.table is None:
            return Catalog()
        table = text_literal(self.relation.parts()[-1])
        columns = self.fetch(f'SELECT name, "notnull", pk FROM pragma_table_info({table})')
        indexes = self.fetch(UNIQUE.format(table))
        if not any(pk for *_, pk in columns) and not indexes:
            is_table = self.fetch(f"SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = {table}")
            return Catalog(()) if is_table else Catalog()
        key = tuple(name for name, _, pk in sorted(columns, key=lambda column: column[2]) if pk)
        unique = {index: frozenset(name for of, name in indexes if of == index) for index, _ in indexes}
        # Only an INTEGER PRIMARY KEY is never null; of others SQLite allows it, by an old mistake that it keeps.
        required = frozenset(name for name, is_required, _ in columns if is_required)
        return Catalog((*([frozenset(key)] if key else []), *unique.values()), key, required)

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        with open_file(self.path) as connection:
            return connection.execute(sql).fetchall()


@contextmanager
def open_file(path: Path) -> Iterator[sqlite3.Connection]:
    """The file, read-only. Raises SourceUnreadable if it is not there or no database."""
    try:
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)
        try:
            yield connection
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise SourceUnreadable(f"sqlite {path}", reason=str(error)) from error


def _kind(column: Column) -> Kind | None:
    """A whole number, or a text that grows."""
    if "INT" in column.type:
        return "int"
    return "text" if any(word in column.type for word in WORDS) else None


FINDER = CursorFinder(_kind, "INTEGER, TEXT, DATE, DATETIME, TIMESTAMP")


def _column(name: str, declared: str) -> Column:
    found = DECIMAL.fullmatch(declared)
    return Column(name, "DECIMAL", int(found[1]), int(found[2] or 0)) if found else Column(name, declared)

"""SQL around a cursor in each dialect: names are quoted, values become typed literals, nothing is pasted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from floodmark.errors import SourceUnreadable
from floodmark.probes.cursor_query import Relation
from floodmark.probes.tables import Bounds, Cursor, Kind, Low

COUNTED_AT_MOST = 100_000
"""Rows above the mark are counted up to here: an index does that in some 10 ms."""


POSTGRES_TOPS = {"smallint": str(2**15 - 1), "integer": str(2**31 - 1), "bigint": str(2**63 - 1), "numeric": "NaN"}
"""In PostgreSQL NaN lies above every other number."""


class Dialect(Protocol):
    """How one database spells names, values and the question how far a table reaches."""

    def quote(self, name: str) -> str:
        """A name, whatever is in it."""

    def literal(self, value: str | None, cursor: Cursor) -> str:
        """A value of the cursor's type; None is NULL of that type."""

    def top(self, cursor: Cursor) -> str:
        """A literal at or above every value that a mark can hold."""

    def bottom(self, cursor: Cursor) -> str:
        """A literal below every value that a mark can hold; of text the empty one, which is the lowest there is."""

    def ordered(self, cursor: Cursor) -> str:
        """The cursor as it is compared: text by its bytes.

        Always as a column of `fm`: a bare name would mean a select list's own text of it, and 9 lies above 10 there.
        """

    def truth(self, value: bool) -> str:
        """TRUE or FALSE."""

    def bounds(self, relation: str, cursor: Cursor, above: str, max_rows: int | None) -> str:
        """One statement that gives highest, lowest, rows, nulls and cut in this order, all as text."""


@dataclass(frozen=True)
class Postgres:
    """PostgreSQL."""

    def quote(self, name: str) -> str:
        return quoted(name, '"')

    def literal(self, value: str | None, cursor: Cursor) -> str:
        if value is None:
            return f"CAST(NULL AS {cursor.type})"
        # Right whatever the server's standard_conforming_strings is.
        text = "E" + text_literal(value.replace("\\", "\\\\")) if "\\" in value else text_literal(value)
        return f"CAST({text} AS {cursor.type})"

    def top(self, cursor: Cursor) -> str:
        tops: Mapping[Kind, str] = {"decimal": "NaN", "text": "\U0010ffff" * 4, "uuid": "f" * 32}
        top = POSTGRES_TOPS.get(cursor.type) or tops.get(cursor.kind, "infinity")
        return f"CAST({text_literal(top)} AS {cursor.type})"

    def bottom(self, cursor: Cursor) -> str:
        bottoms: Mapping[Kind, str] = {"text": "", "uuid": "0" * 32}
        as_type = "numeric" if cursor.kind == "int" else cursor.type  # wider: there is a lowest bigint
        return f"CAST({text_literal(bottoms.get(cursor.kind, '-infinity'))} AS {as_type})"

    def ordered(self, cursor: Cursor) -> str:
        return f"fm.{self.quote(cursor.column)}" + (' COLLATE "C"' if cursor.kind == "text" else "")

    def truth(self, value: bool) -> str:
        return "TRUE" if value else "FALSE"

    def bounds(self, relation: str, cursor: Cursor, above: str, max_rows: int | None) -> str:
        return limited_bounds(self, relation, cursor, above, max_rows)


@dataclass(frozen=True)
class Sqlite:
    """SQLite, whose values have types of their own and whose dates are text."""

    def quote(self, name: str) -> str:
        return quoted(name, '"')

    def literal(self, value: str | None, cursor: Cursor) -> str:
        if value is None:
            return "NULL"
        return str(int(value)) if cursor.kind == "int" else text_literal(value)

    def top(self, cursor: Cursor) -> str:
        return "9223372036854775807" if cursor.kind == "int" else text_literal("\U0010ffff" * 4)

    def bottom(self, cursor: Cursor) -> str:
        return "-1e19" if cursor.kind == "int" else "''"

    def ordered(self, cursor: Cursor) -> str:
        return f"fm.{self.quote(cursor.column)}" + (" COLLATE BINARY" if cursor.kind == "text" else "")

    def truth(self, value: bool) -> str:
        return "1" if value else "0"

    def bounds(self, relation: str, cursor: Cursor, above: str, max_rows: int | None) -> str:
        return limited_bounds(self, relation, cursor, above, max_rows)


@dataclass(frozen=True)
class Ansi:
    """Any other database behind JDBC; `mark` is what it quotes names with. How it orders text is not known."""

    mark: str = '"'

    def quote(self, name: str) -> str:
        return quoted(name, self.mark)

    def literal(self, value: str | None, cursor: Cursor) -> str:
        if value is None:
            return "NULL"
        if cursor.kind in ("int", "decimal"):
            return value
        return f"{'DATE' if cursor.kind == 'date' else 'TIMESTAMP'} {text_literal(value.replace('T', ' '))}"

    def top(self, cursor: Cursor) -> str:
        tops: Mapping[Kind, str] = {"date": "9999-12-31", "timestamp": "9999-12-31 23:59:59.999999"}
        return self.literal(tops.get(cursor.kind, "9" * 38), cursor)

    def bottom(self, cursor: Cursor) -> str:
        bottoms: Mapping[Kind, str] = {"date": "0001-01-01", "timestamp": "0001-01-01 00:00:00"}
        return self.literal(bottoms.get(cursor.kind, "-" + "9" * 38), cursor)

    def ordered(self, cursor: Cursor) -> str:
        return f"fm.{self.quote(cursor.column)}"

    def truth(self, value: bool) -> str:
        return "(1 = 1)" if value else "(1 = 0)"

    def bounds(self, relation: str, cursor: Cursor, above: str, max_rows: int | None) -> str:
        """Aggregates alone: how a result is limited differs from database to database."""
        column = self.ordered(cursor)
        lowest = f"(SELECT CAST(MIN({column}) AS CHAR(64)) FROM {relation} fm WHERE {above})"
        rows = f"(SELECT COUNT(*) FROM {relation} fm WHERE {above})"
        nulls = f"(SELECT COUNT(*) FROM {relation} fm WHERE {column} IS NULL)"
        return f"SELECT CAST(MAX({column}) AS CHAR(64)) h, {lowest} l, {rows} r, {nulls} n, NULL c FROM {relation} fm"


def limited_bounds(dialect: Dialect, relation: str, cursor: Cursor, above: str, max_rows: int | None) -> str:
    """Each part is a lookup at one end of the index, where there is one; all of them see one snapshot."""
    column, ordered = f"fm.{dialect.quote(cursor.column)}", dialect.ordered(cursor)
    text = f"SELECT CAST({column} AS text) FROM {relation} AS fm WHERE"
    cut = f"({text} {above} ORDER BY {ordered} LIMIT 1 OFFSET {max_rows - 1})" if max_rows else "NULL"
    counted = f"SELECT 1 FROM {relation} AS fm WHERE {above} LIMIT {COUNTED_AT_MOST + 1}"
    return (
        f"SELECT ({text} {column} IS NOT NULL ORDER BY {ordered} DESC LIMIT 1) AS h,"
        f" ({text} {above} ORDER BY {ordered} LIMIT 1) AS l,"
        f" (SELECT count(*) FROM ({counted}) AS counted) AS r,"
        f" (SELECT count(*) FROM {relation} AS fm WHERE {column} IS NULL) AS n, {cut} AS c"
    )


def counted_bounds(row: Sequence[Any]) -> Bounds:
    """The one row that such a statement gives."""
    highest, lowest, rows, nulls, cut = row
    counted = int(rows) if int(rows) <= COUNTED_AT_MOST else None
    return Bounds(_text(highest), _text(lowest), counted, int(nulls), _text(cut))


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def from_clause(dialect: Dialect, relation: Relation, cursor: Cursor, low: Low, upto: str | None) -> str:
    """The table or query, with the bounds in it where the query asks for them; `upto` None is before it is known.

    A start that is read too counts as a first run: the user's `> :after` would leave it out.
    """
    is_first = low.value is None or low.inclusive
    nothing = dialect.literal(None, cursor) if "first_run" in relation.named else dialect.bottom(cursor)
    values = {
        "after": nothing if is_first else dialect.literal(low.value, cursor),
        "upto": dialect.top(cursor) if upto is None else dialect.literal(upto, cursor),
        "first_run": dialect.truth(is_first),
    }
    return relation.sql(dialect.quote, values)


def above(dialect: Dialect, cursor: Cursor, low: Low) -> str:
    """The condition for what lies above the low bound; a row without a cursor never does."""
    if low.value is None:
        return f"fm.{dialect.quote(cursor.column)} IS NOT NULL"
    return f"{dialect.ordered(cursor)} {'>=' if low.inclusive else '>'} {dialect.literal(low.value, cursor)}"


def at_or_below(dialect: Dialect, cursor: Cursor, value: str) -> str:
    """The condition for what lies at or below a value."""
    return f"{dialect.ordered(cursor)} <= {dialect.literal(value, cursor)}"


def quoted(name: str, mark: str) -> str:
    """A name between quoting marks; those within it are doubled."""
    if not name or "\0" in name:
        raise SourceUnreadable(f"a column or table called {name!r}", reason="no database has such a name")
    return f"{mark}{name.replace(mark, mark * 2)}{mark}"


def text_literal(value: str) -> str:
    """A text between quotes; those within it are doubled."""
    if "\0" in value:
        raise SourceUnreadable("a value with a zero byte", reason="no database can compare it")
    return "'" + value.replace("'", "''") + "'"

"""How each database spells names, values and comparisons: names quoted, values as typed literals, nothing pasted."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from floodmark.errors import ConfigError, SourceUnreadable
from floodmark.locations import quote
from floodmark.probes.tables import CursorColumn, CursorValue, Kind

Sign = Literal["=", "<", "<=", ">", ">="]

XMIN = CursorColumn("xmin", "xid8", "bigint", is_nullable=False)
"""The transaction that wrote a row, as a cursor: every row version has one, and it costs the table nothing. No index
knows the column, so every look and every read scans the table."""
BITS = "CAST(CAST(fm.xmin AS text) AS bigint)"
LAST = "(SELECT CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint) - 1)"
FULL_XMIN = f"(CASE WHEN {BITS} < 3 THEN {BITS} ELSE {LAST} - (({LAST} - {BITS}) & 4294967295) END)"
"""A row keeps the lower 32 bits of its transaction's id. The full id is the highest one with these bits below the next
id of the server, which is right while a row is younger than 2^32 transactions; one that is older would be read again,
and is never missed. Ids below 3 are no transactions: rows from before the beginning have them."""
POSTGRES_TOPS = {"smallint": str(2**15 - 1), "integer": str(2**31 - 1), "bigint": str(2**63 - 1), "numeric": "NaN"}
"""In PostgreSQL NaN lies above every other number."""


class Dialect(Protocol):
    """How one database spells things."""

    def quote(self, name: str) -> str:
        """A name, whatever is in it."""

    def literal(self, value: str | None, column: CursorColumn) -> str:
        """A value of the column's type; None is NULL of that type."""

    def top(self, column: CursorColumn) -> str:
        """A literal at or above every value that a mark can hold."""

    def bottom(self, column: CursorColumn) -> str:
        """A literal below every value that a mark can hold; of text the empty one, which is the lowest there is."""

    def operand(self, column: CursorColumn) -> str:
        """The column as it is compared: text by its bytes.

        Always as a column of `fm`: a bare name would mean a select list's own text of it, and 9 lies above 10 there.
        """

    def comparison(self, left: Sequence[str], sign: Sign, right: Sequence[str]) -> str:
        """Two rows of expressions, compared from left to right."""

    def pack(self, expressions: Sequence[str]) -> str:
        """The texts of one or several expressions, as one value."""

    def pack_literal(self, texts: CursorValue) -> str:
        """What `pack` gives for these texts."""

    def unpack(self, value: object, width: int) -> CursorValue | None:
        """So many texts again, from what the driver made of them."""

    def unpack_key(self, value: object, width: int) -> CursorValue | None:
        """The texts of a key again, as far as they were packed otherwise than those of a cursor."""

    def truth(self, value: bool) -> str:
        """TRUE or FALSE."""

    def untrue(self, condition: str) -> str:
        """Whether the condition is false, or not known: NOT would leave out a row where it is not."""

    def ahead(self, column: CursorColumn, seconds: float) -> str:
        """The database's own clock and so many seconds, as a value of the column."""


@dataclass(frozen=True)
class Postgres:
    """PostgreSQL."""

    def quote(self, name: str) -> str:
        return _quote(name, '"')

    def literal(self, value: str | None, column: CursorColumn) -> str:
        return f"CAST({'NULL' if value is None else _escape(value)} AS {column.type})"

    def top(self, column: CursorColumn) -> str:
        tops: Mapping[Kind, str] = {"decimal": "NaN", "text": "\U0010ffff" * 4, "uuid": "f" * 32}
        top = POSTGRES_TOPS.get(column.type) or tops.get(column.kind, "infinity")
        return f"CAST({text_literal(top)} AS {column.type})"

    def bottom(self, column: CursorColumn) -> str:
        bottoms: Mapping[Kind, str] = {"text": "", "uuid": "0" * 32}
        as_type = "numeric" if column.kind == "int" else column.type  # wider: there is a lowest bigint
        return f"CAST({text_literal(bottoms.get(column.kind, '-infinity'))} AS {as_type})"

    def operand(self, column: CursorColumn) -> str:
        if column == XMIN:
            return FULL_XMIN
        by_bytes = column.kind == "text" and not column.has_own_order
        return _value_of(self, column) + (' COLLATE "C"' if by_bytes else "")

    def comparison(self, left: Sequence[str], sign: Sign, right: Sequence[str]) -> str:
        return f"{row(left)} {sign} {row(right)}"

    def pack(self, expressions: Sequence[str]) -> str:
        texts = [f"CAST({each} AS text)" for each in expressions]
        return texts[0] if len(texts) == 1 else f"ARRAY[{', '.join(texts)}]"

    def pack_literal(self, texts: CursorValue) -> str:
        literals = [_escape(text) for text in texts]
        return literals[0] if len(literals) == 1 else f"ARRAY[{', '.join(literals)}]"

    def unpack(self, value: object, width: int) -> CursorValue | None:
        return _key_texts(value) if isinstance(value, list) else _single(value)

    def unpack_key(self, value: object, width: int) -> CursorValue | None:
        return self.unpack(value, width)

    def truth(self, value: bool) -> str:
        return "TRUE" if value else "FALSE"

    def untrue(self, condition: str) -> str:
        """Of a CASE the planner would expect few rows, and scan the table for them."""
        return f"({condition}) IS NOT TRUE"

    def ahead(self, column: CursorColumn, seconds: float) -> str:
        """A column without a zone holds the server's own time, and our session is in UTC."""
        moment = f"(now() + interval '{seconds:.3f} seconds')"
        if column.kind == "timestamptz":
            return moment
        if column.kind not in ("timestamp", "date"):
            raise _no_clock(f"the cursor {column.name!r} is {column.type}, which no clock tells")
        zone = "(SELECT reset_val FROM pg_settings WHERE name = 'TimeZone')"
        return f"CAST({moment} AT TIME ZONE {zone} AS {column.type})"


@dataclass(frozen=True)
class Sqlite:
    """SQLite, whose values have types of their own and whose dates are text."""

    def quote(self, name: str) -> str:
        return _quote(name, '"')

    def literal(self, value: str | None, column: CursorColumn) -> str:
        if value is None:
            return "NULL"
        return str(int(value)) if column.kind == "int" else text_literal(value)

    def top(self, column: CursorColumn) -> str:
        return "9223372036854775807" if column.kind == "int" else text_literal("\U0010ffff" * 4)

    def bottom(self, column: CursorColumn) -> str:
        return "-1e19" if column.kind == "int" else "''"

    def operand(self, column: CursorColumn) -> str:
        by_bytes = column.kind == "text" and not column.has_own_order
        return _value_of(self, column) + (" COLLATE BINARY" if by_bytes else "")

    def comparison(self, left: Sequence[str], sign: Sign, right: Sequence[str]) -> str:
        return f"{row(left)} {sign} {row(right)}"

    def pack(self, expressions: Sequence[str]) -> str:
        texts = [f"CAST({each} AS text)" for each in expressions]
        return texts[0] if len(texts) == 1 else f"json_array({', '.join(texts)})"

    def pack_literal(self, texts: CursorValue) -> str:
        literals = [text_literal(text) for text in texts]
        return literals[0] if len(literals) == 1 else f"json_array({', '.join(literals)})"

    def unpack(self, value: object, width: int) -> CursorValue | None:
        return _single(value) if width == 1 or value is None else _key_texts(json.loads(str(value)))

    def unpack_key(self, value: object, width: int) -> CursorValue | None:
        return self.unpack(value, width)

    def truth(self, value: bool) -> str:
        return "1" if value else "0"

    def untrue(self, condition: str) -> str:
        return f"({condition}) IS NOT TRUE"

    def ahead(self, column: CursorColumn, seconds: float) -> str:
        raise _no_clock("a SQLite file has none of its own")


@dataclass(frozen=True)
class Ansi:
    """Any other database behind JDBC; `mark` is what it quotes names with. How it orders text is not known."""

    mark: str = '"'

    def quote(self, name: str) -> str:
        return _quote(name, self.mark)

    def literal(self, value: str | None, column: CursorColumn) -> str:
        if value is None:
            return "NULL"
        if column.kind in ("int", "decimal"):
            return value
        if column.kind == "text":
            return text_literal(value)
        return f"{'DATE' if column.kind == 'date' else 'TIMESTAMP'} {text_literal(value.replace('T', ' '))}"

    def top(self, column: CursorColumn) -> str:
        tops: Mapping[Kind, str] = {"date": "9999-12-31", "timestamp": "9999-12-31 23:59:59.999999"}
        return self.literal(tops.get(column.kind, "9" * 38), column)

    def bottom(self, column: CursorColumn) -> str:
        bottoms: Mapping[Kind, str] = {"date": "0001-01-01", "timestamp": "0001-01-01 00:00:00"}
        return self.literal(bottoms.get(column.kind, "-" + "9" * 38), column)

    def operand(self, column: CursorColumn) -> str:
        return _value_of(self, column)

    def comparison(self, left: Sequence[str], sign: Sign, right: Sequence[str]) -> str:
        """Written out, since not every database compares rows."""
        return _row_comparison(list(left), sign, list(right))

    def pack(self, expressions: Sequence[str]) -> str:
        """One alone; a database that is not known has no value of several."""
        return f"CAST({expressions[0]} AS CHAR(64))"

    def pack_literal(self, texts: CursorValue) -> str:
        raise ConfigError(
            "rows with the same cursor cannot be told apart in this database.",
            hint="read by several columns, as in column: [updated_at, id], or say unique: true if no two are the same",
        )

    def unpack(self, value: object, width: int) -> CursorValue | None:
        found = _single(value)
        return found and tuple(text.strip() for text in found)  # its text is of a fixed width

    def unpack_key(self, value: object, width: int) -> CursorValue | None:
        return self.unpack(value, width)

    def truth(self, value: bool) -> str:
        return "(1 = 1)" if value else "(1 = 0)"

    def untrue(self, condition: str) -> str:
        """Not every database has IS NOT TRUE."""
        return f"CASE WHEN {condition} THEN 1 ELSE 0 END = 0"

    def text_of(self, expression: str, column: CursorColumn) -> str:
        """A value of the column as text, which a mark reads."""
        return expression if column.kind == "text" else f"CAST({expression} AS CHAR(64))"

    def page(self, offset: int, rows: int) -> str:
        """So many rows after so many others, behind ORDER BY; as the standard has it since 2008."""
        return f"OFFSET {offset} ROWS FETCH NEXT {rows} ROWS ONLY"

    def ahead(self, column: CursorColumn, seconds: float) -> str:
        """As JDBC has every driver translate it; whole seconds, by the clock and zone of the database's session."""
        if column.kind != "timestamp":
            raise _no_clock(f"the cursor {column.name!r} is {column.type}, which no clock tells")
        return f"{{fn TIMESTAMPADD(SQL_TSI_SECOND, {math.floor(seconds)}, CURRENT_TIMESTAMP)}}"

    def require_moment(self, column: CursorColumn) -> None:
        """Raises ConfigError for a column that no clock tells."""
        if column.kind not in ("timestamp", "date"):
            raise _no_clock(f"the cursor {column.name!r} is {column.type}, which no clock tells")

    def as_column(self, moment: str, column: CursorColumn) -> str:
        """A moment as a value of the column."""
        return f"CAST({moment} AS DATE)" if column.kind == "date" else moment


def _value_of(dialect: Dialect, column: CursorColumn) -> str:
    """The column's value, or the first of its fallbacks that has one."""
    names = [f"fm.{dialect.quote(name)}" for name in (column.name, *column.fallbacks)]
    return names[0] if len(names) == 1 else f"COALESCE({', '.join(names)})"


def row(expressions: Sequence[str]) -> str:
    """Several expressions as a row; one alone stays as it is."""
    return expressions[0] if len(expressions) == 1 else f"({', '.join(expressions)})"


def _quote(name: str, mark: str) -> str:
    """A name between quoting marks; those within it are doubled."""
    if not name or "\0" in name:
        raise SourceUnreadable(f"a column or table called {name!r}", reason="no database has such a name")
    return quote(name, mark)


def text_literal(value: str) -> str:
    """A text between quotes; those within it are doubled."""
    if "\0" in value:
        raise SourceUnreadable("a value with a zero byte", reason="no database can compare it")
    return "'" + value.replace("'", "''") + "'"


def _escape(value: str) -> str:
    """Right whatever the server's standard_conforming_strings is."""
    return "E" + text_literal(value.replace("\\", "\\\\")) if "\\" in value else text_literal(value)


def _single(value: object) -> CursorValue | None:
    """One text, from what the driver made of it."""
    return None if value is None else (str(value),)


def _key_texts(values: Sequence[str | None]) -> CursorValue:
    if None in values:
        raise SourceUnreadable("a row whose key has a null", reason="no two such rows can be told apart")
    return tuple(map(str, values))


def _no_clock(why: str) -> ConfigError:
    """A setting asks for the database's clock, and there is none that could be meant."""
    return ConfigError(
        f"max_future and delay go by the database's clock, and {why}.", hint="leave max_future and delay out"
    )


def _row_comparison(left: list[str], sign: Sign, right: list[str]) -> str:
    first = f"{left[0]} {sign} {right[0]}"
    if len(left) == 1:
        return first
    rest = _row_comparison(left[1:], sign, right[1:])
    if sign == "=":
        return f"{first} AND {rest}"
    strict = sign.rstrip("=")
    return f"({left[0]} {strict} {right[0]} OR ({left[0]} = {right[0]} AND {rest}))"

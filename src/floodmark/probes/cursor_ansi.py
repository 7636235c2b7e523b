"""How a database behind JDBC spells things that we know nothing of: as the standard has it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from floodmark.errors import ConfigError
from floodmark.probes.cursor_sql import Sign, no_clock, quoted, single, text_literal, value_of
from floodmark.probes.tables import CursorColumn, Kind, Point


@dataclass(frozen=True)
class Ansi:
    """Any other database behind JDBC; `mark` is what it quotes names with. How it orders text is not known."""

    mark: str = '"'

    def quote(self, name: str) -> str:
        return quoted(name, self.mark)

    def literal(self, value: str | None, column: CursorColumn) -> str:
        if value is None:
            return "NULL"
        if column.kind in ("int", "decimal"):
            return value
        return f"{'DATE' if column.kind == 'date' else 'TIMESTAMP'} {text_literal(value.replace('T', ' '))}"

    def top(self, column: CursorColumn) -> str:
        tops: Mapping[Kind, str] = {"date": "9999-12-31", "timestamp": "9999-12-31 23:59:59.999999"}
        return self.literal(tops.get(column.kind, "9" * 38), column)

    def bottom(self, column: CursorColumn) -> str:
        bottoms: Mapping[Kind, str] = {"date": "0001-01-01", "timestamp": "0001-01-01 00:00:00"}
        return self.literal(bottoms.get(column.kind, "-" + "9" * 38), column)

    def ordered(self, column: CursorColumn) -> str:
        return value_of(self, column)

    def compared(self, left: Sequence[str], sign: Sign, right: Sequence[str]) -> str:
        """Written out, since not every database compares rows."""
        return _written_out(list(left), sign, list(right))

    def packed(self, expressions: Sequence[str]) -> str:
        """One alone; a database that is not known has no value of several."""
        return f"CAST({expressions[0]} AS CHAR(64))"

    def packed_literal(self, texts: Point) -> str:
        raise ConfigError(
            "rows with the same cursor cannot be told apart in this database.",
            hint="read by several columns, as in column: [updated_at, id], or say unique: true if no two are the same",
        )

    def unpacked(self, value: object, width: int) -> Point | None:
        found = single(value)
        return found and tuple(text.strip() for text in found)  # its text is of a fixed width

    def truth(self, value: bool) -> str:
        return "(1 = 1)" if value else "(1 = 0)"

    def ahead(self, column: CursorColumn, seconds: float) -> str:
        """As JDBC has every driver translate it; whole seconds, by the clock and zone of the database's session."""
        if column.kind not in ("timestamp", "timestamptz"):
            raise no_clock(f"the cursor {column.name!r} is {column.type}, which no clock tells")
        return f"{{fn TIMESTAMPADD(SQL_TSI_SECOND, {math.floor(seconds)}, CURRENT_TIMESTAMP)}}"


def _written_out(left: list[str], sign: Sign, right: list[str]) -> str:
    first = f"{left[0]} {sign} {right[0]}"
    if len(left) == 1:
        return first
    rest = _written_out(left[1:], sign, right[1:])
    if sign == "=":
        return f"{first} AND {rest}"
    strict = sign.rstrip("=")
    return f"({left[0]} {strict} {right[0]} OR ({left[0]} = {right[0]} AND {rest}))"

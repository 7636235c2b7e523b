"""What a probe of a table tells: the type of its cursor, and how far the table reaches above a mark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from floodmark.hwm import (
    ColumnDateHWM,
    ColumnDateTimeHWM,
    ColumnDecimalHWM,
    ColumnHWM,
    ColumnIntHWM,
    ColumnTextHWM,
)

Kind = Literal["int", "decimal", "date", "timestamp", "timestamptz", "text", "uuid"]
"""What a cursor can be. A uuid is compared as its database does, and its mark is text."""

MARKS: dict[Kind, type[ColumnHWM[object]]] = {
    "int": ColumnIntHWM,  # type: ignore[dict-item]  # each is a ColumnHWM of its own value
    "decimal": ColumnDecimalHWM,  # type: ignore[dict-item]
    "date": ColumnDateHWM,  # type: ignore[dict-item]
    "timestamp": ColumnDateTimeHWM,  # type: ignore[dict-item]
    "timestamptz": ColumnDateTimeHWM,  # type: ignore[dict-item]
    "text": ColumnTextHWM,  # type: ignore[dict-item]
    "uuid": ColumnTextHWM,  # type: ignore[dict-item]
}


@dataclass(frozen=True)
class Column:
    """A column as its database declares it; precision and scale where a decimal has them."""

    name: str
    type: str
    precision: int | None = None
    scale: int | None = None

    @property
    def declared(self) -> str:
        """The type with its precision, as people write it."""
        return self.type if self.precision is None else f"{self.type}({self.precision},{self.scale})"


@dataclass(frozen=True)
class Cursor:
    """The column that grows, with its kind and the type that literals beside it are cast to."""

    column: str
    kind: Kind
    type: str


@dataclass(frozen=True)
class Low:
    """Where a look begins: above a value, at it (inclusive), or at the beginning (no value)."""

    value: str | None = None
    inclusive: bool = False


@dataclass(frozen=True)
class Bounds:
    """What one probe saw, in the database's own text.

    `highest` is the highest value there is, or the highest above the low bound where a query applies that itself.
    `lowest` and `rows` are of what lies above the low bound; `rows` is None where counting would cost too much.
    `cut` is the value to stop at so that about `max_rows` rows are read; None if all of them fit.
    """

    highest: str | None
    lowest: str | None
    rows: int | None
    nulls: int
    cut: str | None = None


class TableProbe(Protocol):
    """Looks at one table or query with a native driver; every method raises SourceUnreadable if it could not."""

    def place(self) -> str:
        """Where the table is, for people; never with a login."""

    def columns(self) -> tuple[Column, ...]:
        """The columns and their types, as the database declares them."""

    def cursor(self) -> Cursor:
        """The cursor column. Raises ConfigError if it is not there, or of a type that does not grow."""

    def bounds(self, low: Low, max_rows: int | None) -> Bounds:
        """One read-only round trip, in one snapshot."""

"""What a probe of a table tells: the types of its cursor, and how far the table reaches above a mark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from floodmark.hwm import ColumnDateHWM, ColumnDateTimeHWM, ColumnDecimalHWM, ColumnHWM, ColumnIntHWM, ColumnTextHWM

Kind = Literal["int", "decimal", "date", "timestamp", "timestamptz", "text", "uuid", "xid8"]
"""What a cursor can be. A uuid is compared as its database does, and its mark is text."""

Point: TypeAlias = tuple[str, ...]
"""A value of a cursor, column by column, in the database's own text; a shorter one stands for its first columns."""

MARKS: dict[Kind, type[ColumnHWM[object]]] = {
    "int": ColumnIntHWM,  # type: ignore[dict-item]  # each is a ColumnHWM of its own value
    "decimal": ColumnDecimalHWM,  # type: ignore[dict-item]
    "date": ColumnDateHWM,  # type: ignore[dict-item]
    "timestamp": ColumnDateTimeHWM,  # type: ignore[dict-item]
    "timestamptz": ColumnDateTimeHWM,  # type: ignore[dict-item]
    "text": ColumnTextHWM,  # type: ignore[dict-item]
    "uuid": ColumnTextHWM,  # type: ignore[dict-item]
    "xid8": ColumnIntHWM,  # type: ignore[dict-item]
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
class CursorColumn:
    """A column that grows, with its kind and the type that literals beside it are cast to.

    `fallbacks` are columns that stand in for it, in this order, where it is null.
    """

    name: str
    kind: Kind
    type: str
    fallbacks: tuple[str, ...] = ()
    is_nullable: bool = True

    @property
    def shown(self) -> str:
        """The column for people, and in a mark."""
        return f"coalesce({', '.join((self.name, *self.fallbacks))})" if self.fallbacks else self.name


@dataclass(frozen=True)
class Cursor:
    """The columns that grow, compared from left to right.

    `is_unique`: no two rows share a value. Where they may, `key` are the columns that tell them apart.
    """

    columns: tuple[CursorColumn, ...]
    is_unique: bool = True
    key: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The columns for people, and in a mark."""
        return ", ".join(column.shown for column in self.columns)

    @property
    def types(self) -> str:
        """The types for people."""
        return ", ".join(column.type for column in self.columns)


@dataclass(frozen=True)
class Asked:
    """What a user reads a table by, before the database was asked what that is.

    Each of `columns` comes with its fallbacks. `is_unique` is the user's word for it.
    """

    columns: tuple[tuple[str, ...], ...]
    key: tuple[str, ...] = ()
    is_unique: bool = False


@dataclass(frozen=True)
class Low:
    """Where a look begins: above a value, at it (inclusive), or at the beginning (no value).

    `seen` are the keys of rows at an inclusive value that were read before, and are not read again.
    """

    value: Point | None = None
    inclusive: bool = False
    seen: tuple[Point, ...] = ()


@dataclass(frozen=True)
class Ceiling:
    """What nothing may pass at this look, whatever lies above it: a value, or nothing at all (`upto` None).

    `ahead_seconds` puts it so far ahead of the database's own clock instead. `reason` says why rows above it wait.
    `is_final` promises that no row will come at or below the value any more.
    """

    upto: Point | None = None
    ahead_seconds: float | None = None
    reason: str = ""
    is_final: bool = False


@dataclass(frozen=True)
class Bounds:
    """What one probe saw, in the database's own text.

    `highest` is the highest value there is, or the highest above the low bound where a query applies that itself.
    `lowest`, `top` and `rows` are of what lies above the low bound and under every ceiling; `rows` is None where
    counting would cost too much. `held` are the rows above each ceiling. Neither they nor `nulls` are counted beyond
    100,000. `cut` is the value to stop at so that `max_rows` rows are read, and all that share its last value; None if
    all of them fit.
    """

    highest: Point | None
    lowest: Point | None
    top: Point | None
    rows: int | None
    nulls: int
    cut: Point | None = None
    held: tuple[int, ...] = ()


class TableProbe(Protocol):
    """Looks at one table or query with a native driver; every method raises SourceUnreadable if it could not."""

    def place(self) -> str:
        """Where the table is, for people; never with a login."""

    def columns(self) -> tuple[Column, ...]:
        """The columns and their types, as the database declares them."""

    def cursor(self) -> Cursor:
        """The cursor. Raises ConfigError if a column is not there, or of a type that does not grow."""

    def bounds(self, low: Low, max_rows: int | None, ceilings: Sequence[Ceiling] = ()) -> Bounds:
        """One read-only round trip, in one snapshot."""

    def keys_at(self, value: Point | None, at_most: int) -> tuple[Point, ...]:
        """Keys of the rows at a value (None: of those without one), in no order; up to one more than `at_most`."""

    def beside(self, value: Point, low: Low, ceilings: Sequence[Ceiling] = ()) -> tuple[Point | None, Point | None]:
        """The values next to this one, below and above it, that lie above the low bound and under every ceiling."""

"""What is asked of a table, and what a probe answers: its columns, its cursor, how far it reaches above a mark.

How a database spells the questions is in `dialects` and `queries`; what is read from, in `relation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from floodmark.hwm import ColumnDateHWM, ColumnDateTimeHWM, ColumnDecimalHWM, ColumnHWM, ColumnIntHWM, ColumnTextHWM

Kind = Literal["int", "decimal", "date", "timestamp", "timestamptz", "text", "uuid", "xid8"]
"""What a cursor can be. A uuid is compared as its database does, and its mark is text."""

CursorValue: TypeAlias = tuple[str, ...]
"""A value of a cursor, column by column, in the database's own text; a shorter one stands for its first columns."""

MARKS: dict[Kind, type[ColumnHWM[Any]]] = {
    "int": ColumnIntHWM,
    "decimal": ColumnDecimalHWM,
    "date": ColumnDateHWM,
    "timestamp": ColumnDateTimeHWM,
    "timestamptz": ColumnDateTimeHWM,
    "text": ColumnTextHWM,
    "uuid": ColumnTextHWM,
    "xid8": ColumnIntHWM,
}


@dataclass(frozen=True)
class Column:
    """A column as its database declares it; precision and scale where a decimal has them."""

    name: str
    type: str
    precision: int | None = None
    scale: int | None = None

    @property
    def declaration(self) -> str:
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
    has_own_order: bool = False
    """Whether text is compared as the database orders the column, and not by its bytes."""

    @property
    def expression(self) -> str:
        """The column as people read it, and as a mark keeps it."""
        return f"coalesce({', '.join((self.name, *self.fallbacks))})" if self.fallbacks else self.name


@dataclass(frozen=True)
class ResolvedCursor:
    """The columns that grow, compared from left to right.

    `is_unique`: no two rows share a value. Where they may, `key` are the columns that tell them apart.
    """

    columns: tuple[CursorColumn, ...]
    is_unique: bool = True
    key: tuple[str, ...] = ()

    @property
    def expression(self) -> str:
        """The columns as people read them, and as a mark keeps them."""
        return ", ".join(column.expression for column in self.columns)

    @property
    def types(self) -> str:
        """The types for people."""
        return ", ".join(column.type for column in self.columns)


@dataclass(frozen=True)
class RequestedCursor:
    """What a user reads a table by, before the database was asked what that is.

    Each of `columns` comes with its fallbacks. `is_unique` is the user's word for it. `has_own_order`: text is to be
    compared as the database does.
    """

    columns: tuple[tuple[str, ...], ...]
    key: tuple[str, ...] = ()
    is_unique: bool = False
    has_own_order: bool = False


@dataclass(frozen=True)
class LowerBound:
    """Where a look begins: above a value, at it (inclusive), or at the beginning (no value).

    `known_keys` are those of rows at an inclusive value that were read before, and are not read again.
    """

    value: CursorValue | None = None
    inclusive: bool = False
    known_keys: tuple[CursorValue, ...] = ()


@dataclass(frozen=True)
class UpperBound:
    """What nothing may pass at this look, whatever lies above it: a value, or nothing at all (`upto` None).

    `ahead_seconds` puts it so far ahead of the database's own clock instead. `reason` says why rows above it wait.
    `is_final` promises that no row will come at or below the value any more.
    """

    upto: CursorValue | None = None
    ahead_seconds: float | None = None
    reason: str = ""
    is_final: bool = False


@dataclass(frozen=True)
class TableBounds:
    """How far a table reaches, as one probe saw it, in the database's own text.

    `highest` is the highest value there is, or the highest above the lower bound where a query applies that itself.
    `lowest`, `top` and `rows` are of what lies above the lower bound and under every upper one; `rows` is None where
    counting would cost too much. `held_rows` counts what lies above each upper bound. Neither these nor `nulls` are
    counted beyond 100,000. `cut` is the value to stop at so that `max_rows` rows are read, and all that share its last
    value; None if all of them fit.
    """

    highest: CursorValue | None
    lowest: CursorValue | None
    top: CursorValue | None
    rows: int | None
    nulls: int
    cut: CursorValue | None = None
    held_rows: tuple[int, ...] = ()


class TableProbe(Protocol):
    """Looks at one table or query with a native driver; every method raises SourceUnreadable if it could not."""

    def place(self) -> str:
        """Where the table is, for people; never with a login."""

    def columns(self) -> tuple[Column, ...]:
        """The columns and their types, as the database declares them."""

    def cursor(self) -> ResolvedCursor:
        """The cursor. Raises ConfigError if a column is not there, or of a type that does not grow."""

    def bounds(self, low: LowerBound, max_rows: int | None, upper: Sequence[UpperBound] = ()) -> TableBounds:
        """One read-only round trip, in one snapshot."""

    def keys_at(self, value: CursorValue | None, at_most: int) -> tuple[CursorValue, ...]:
        """Keys of the rows at a value (None: of those without one), in no order; up to one more than `at_most`."""

    def neighbours(
        self, value: CursorValue, low: LowerBound, upper: Sequence[UpperBound] = ()
    ) -> tuple[CursorValue | None, CursorValue | None]:
        """The values next to this one, below and above it, that lie above the lower bound and under every upper one."""

"""Rules that one row alone can answer; they are judged in the pass that writes the rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

from floodmark.errors import ConfigError
from floodmark.fields import ColumnNames, NameOrDefault, TupleOf
from floodmark.rules.contract import Action, FromColumns, check_action, require_columns

if TYPE_CHECKING:
    from pyspark.sql import Column


Bound: TypeAlias = "int | float | Decimal | str | date | datetime"
Value: TypeAlias = "Bound | bool"


@dataclass(frozen=True)
class NotNull(FromColumns):
    """Every one of these columns has a value.

    >>> NotNull(["id", "amount"]).describe()
    'id, amount not null'
    """

    columns: ColumnNames = ColumnNames()
    action: Action = "fail"
    name: NameOrDefault = NameOrDefault()

    def __post_init__(self) -> None:
        require_columns(self.columns, rule="not_null")
        check_action(self.name, self.action)

    def default_name(self) -> str:
        return f"not_null_{'_'.join(self.columns)}"

    def describe(self) -> str:
        return f"{', '.join(self.columns)} not null"

    def holds(self) -> Column:
        from pyspark.sql import functions as F

        return F.expr(" and ".join(f"{path(column)} is not null" for column in self.columns))


@dataclass(frozen=True)
class Range(FromColumns):
    """The column lies between `min` and `max`, both included; one of the two may be left out.

    >>> Range("amount", min=0, max=1_000_000).describe()
    '0 <= amount <= 1000000'
    """

    column: str
    min: Bound | None = None
    max: Bound | None = None
    action: Action = "fail"
    name: NameOrDefault = NameOrDefault()

    def __post_init__(self) -> None:
        check_action(self.name, self.action)
        if self.min is None and self.max is None:
            raise ConfigError(f"rule '{self.name}' has no bound.", hint="give it min, max or both")

    def default_name(self) -> str:
        return f"range_{self.column}"

    def describe(self) -> str:
        least, most = (f"{self.min!r} <= " if self.min is not None else ""), f" <= {self.max!r}"
        return f"{least}{self.column}{most if self.max is not None else ''}"

    def holds(self) -> Column:
        from pyspark.sql import functions as F

        bounds = [(">=", self.min), ("<=", self.max)]
        if all(bound is None or isinstance(bound, int | float | Decimal) for _, bound in bounds):
            sides = [f"{path(self.column)} {sign} {digits(bound)}" for sign, bound in bounds if bound is not None]
            # Spark holds NaN to be greater than every number, so `min` alone would let it through.
            return F.expr(" and ".join([*sides, f"not isnan(double({path(self.column)}))"]))
        column = F.col(self.column)
        least = column >= self.min if self.min is not None else F.lit(True)
        return least & (column <= self.max) if self.max is not None else least


@dataclass(frozen=True)
class Accepted(FromColumns):
    """The column has one of these values.

    >>> Accepted("status", ["new", "paid"]).describe()
    "status in 'new', 'paid'"
    """

    column: str
    values: TupleOf[Value] = TupleOf()
    action: Action = "fail"
    name: NameOrDefault = NameOrDefault()

    def __post_init__(self) -> None:
        check_action(self.name, self.action)
        if not self.values:
            raise ConfigError(f"rule '{self.name}' accepts no value at all.", hint="list the values: values: [a, b]")

    def default_name(self) -> str:
        return f"accepted_{self.column}"

    def describe(self) -> str:
        return f"{self.column} in {', '.join(map(repr, self.values))}"

    def holds(self) -> Column:
        from pyspark.sql import functions as F

        return F.col(self.column).isin(*self.values)


@dataclass(frozen=True)
class Matches(FromColumns):
    """The regular expression (Java's) is found in the column; `^…$` asks for the whole of it.

    >>> Matches("email", "^[^@]+@[^@]+$").describe()
    'email matches ^[^@]+@[^@]+$'
    """

    column: str
    pattern: str
    action: Action = "fail"
    name: NameOrDefault = NameOrDefault()

    def __post_init__(self) -> None:
        check_action(self.name, self.action)

    def default_name(self) -> str:
        return f"matches_{self.column}"

    def describe(self) -> str:
        return f"{self.column} matches {self.pattern}"

    def holds(self) -> Column:
        from pyspark.sql import functions as F

        return F.col(self.column).cast("string").rlike(self.pattern)


@dataclass(frozen=True)
class TimeOrder(FromColumns):
    """`earlier` is not after `later`.

    >>> TimeOrder("ordered_at", "shipped_at").describe()
    'ordered_at <= shipped_at'
    """

    earlier: str
    later: str
    action: Action = "fail"
    name: NameOrDefault = NameOrDefault()

    def __post_init__(self) -> None:
        check_action(self.name, self.action)

    def default_name(self) -> str:
        return f"time_order_{self.earlier}_{self.later}"

    def describe(self) -> str:
        return f"{self.earlier} <= {self.later}"

    def holds(self) -> Column:
        from pyspark.sql import functions as F

        return F.expr(f"{path(self.earlier)} <= {path(self.later)}")


@dataclass(frozen=True)
class Predicate:
    """A condition in SQL that is true for a good row.

    >>> Predicate("amount > 0", action="quarantine").describe()
    'amount > 0'
    """

    condition: str
    action: Action = "fail"
    name: NameOrDefault = NameOrDefault()

    def __post_init__(self) -> None:
        check_action(self.name, self.action)

    def default_name(self) -> str:
        return self.condition.strip()

    def describe(self) -> str:
        return self.condition

    def holds(self) -> Column:
        from pyspark.sql import functions as F

        return F.expr(self.condition)


def digits(bound: object) -> str:
    """A number as SQL takes it: a decimal without an exponent, which would make it a double."""
    return f"{bound:f}" if isinstance(bound, Decimal) else repr(bound)


def path(column: str) -> str:
    """A column as SQL takes it; a dot leads into a struct, unless the user has quoted the name."""
    return column if "`" in column else ".".join(f"`{part}`" for part in column.split("."))

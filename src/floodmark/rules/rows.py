"""Rules that one row alone can answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

from floodmark.errors import ConfigError
from floodmark.rules.contract import Action, as_columns, check_action

if TYPE_CHECKING:
    from pyspark.sql import Column


Bound: TypeAlias = "int | float | Decimal | str | date | datetime"
Value: TypeAlias = "Bound | bool"


@dataclass(frozen=True)
class NotNull:
    """Every one of these columns has a value."""

    columns: str | Sequence[str]
    action: Action = "fail"
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", as_columns(self.columns, rule="not_null"))
        named(self, f"not_null_{'_'.join(self.columns)}")

    def describe(self) -> str:
        return f"{', '.join(self.columns)} not null"

    def holds(self) -> Column:
        from pyspark.sql import functions as F

        return F.expr(" and ".join(f"{path(column)} is not null" for column in self.columns))


@dataclass(frozen=True)
class Range:
    """The column lies between `min` and `max`, both included; one of the two may be left out."""

    column: str
    min: Bound | None = None
    max: Bound | None = None
    action: Action = "fail"
    name: str = ""

    def __post_init__(self) -> None:
        named(self, f"range_{self.column}")
        if self.min is None and self.max is None:
            raise ConfigError(f"rule '{self.name}' has no bound.", hint="give it min, max or both")

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
class Accepted:
    """The column has one of these values."""

    column: str
    values: Sequence[Value]
    action: Action = "fail"
    name: str = ""

    def __post_init__(self) -> None:
        named(self, f"accepted_{self.column}")
        object.__setattr__(self, "values", tuple(self.values))
        if not self.values:
            raise ConfigError(f"rule '{self.name}' accepts no value at all.", hint="list the values: values: [a, b]")

    def describe(self) -> str:
        return f"{self.column} in {', '.join(map(repr, self.values))}"

    def holds(self) -> Column:
        from pyspark.sql import functions as F

        return F.col(self.column).isin(*self.values)


@dataclass(frozen=True)
class Matches:
    """The regular expression (Java's) is found in the column; `^…$` asks for the whole of it."""

    column: str
    pattern: str
    action: Action = "fail"
    name: str = ""

    def __post_init__(self) -> None:
        named(self, f"matches_{self.column}")

    def describe(self) -> str:
        return f"{self.column} matches {self.pattern}"

    def holds(self) -> Column:
        from pyspark.sql import functions as F

        return F.col(self.column).cast("string").rlike(self.pattern)


@dataclass(frozen=True)
class TimeOrder:
    """`earlier` is not after `later`."""

    earlier: str
    later: str
    action: Action = "fail"
    name: str = ""

    def __post_init__(self) -> None:
        named(self, f"time_order_{self.earlier}_{self.later}")

    def describe(self) -> str:
        return f"{self.earlier} <= {self.later}"

    def holds(self) -> Column:
        from pyspark.sql import functions as F

        return F.expr(f"{path(self.earlier)} <= {path(self.later)}")


@dataclass(frozen=True)
class Predicate:
    """A condition in SQL that is true for a good row."""

    condition: str
    action: Action = "fail"
    name: str = ""

    def __post_init__(self) -> None:
        named(self, self.condition.strip())

    def describe(self) -> str:
        return self.condition

    def holds(self) -> Column:
        from pyspark.sql import functions as F

        return F.expr(self.condition)


RowKind: TypeAlias = NotNull | Range | Accepted | Matches | TimeOrder | Predicate


def digits(bound: object) -> str:
    """A number as SQL takes it: a decimal without an exponent, which would make it a double."""
    return f"{bound:f}" if isinstance(bound, Decimal) else repr(bound)


def path(column: str) -> str:
    """A column as SQL takes it; a dot leads into a struct, unless the user has quoted the name."""
    return column if "`" in column else ".".join(f"`{part}`" for part in column.split("."))


def named(rule: RowKind, default: str) -> None:
    """Give the rule its name if the user gave none, and refuse an action nobody knows."""
    object.__setattr__(rule, "name", rule.name or default)
    check_action(rule.name, rule.action)

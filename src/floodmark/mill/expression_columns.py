"""Expressions as Spark columns that give what Python would: its rounding, its signs, and null where it would raise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from floodmark.mill.codec import Codec
from floodmark.mill.expression_types import is_positive, type_of
from floodmark.mill.expressions import Constant, Expression, Field, Item, Operation

if TYPE_CHECKING:
    from pyspark.sql import Column

WHOLE_FLOATS = float(2**52)
"""From here on every float is whole, and Spark's floor would not hold it."""


def to_column(expression: Expression, codec: Codec, element: Column) -> Column:
    """The expression over a struct column; only for what `is_compilable`."""
    from pyspark.sql import functions as F

    if isinstance(expression, Constant):
        return F.lit(expression.value)
    if isinstance(expression, Field):
        return element.getField(expression.name)
    if isinstance(expression, Item):
        return to_column(expression.whole, codec, element)[expression.name]
    if isinstance(expression, Operation):
        return _operation(expression, codec, element)
    raise LookupError(f"{expression.describe()} runs as Python")


def _operation(operation: Operation, codec: Codec, element: Column) -> Column:
    from pyspark.sql import functions as F

    sides = (operation.left, operation.right)
    kinds = [type_of(side, codec) for side in sides]
    left, right = (to_column(side, codec, element) for side in sides)
    if operation.sign in COMPARED:
        return COMPARED[operation.sign](left, right)
    if str in kinds:
        return F.concat(left, right)
    number = "double" if float in kinds else "bigint"
    left, right = left.cast(number), right.cast(number)
    if operation.sign in PLAIN:
        return F.call_function(PLAIN[operation.sign], left, right)
    if number == "bigint" and is_positive(operation.right):
        return (_floor_divided_by if operation.sign == "//" else F.pmod)(left, right)
    divided = {("//", "bigint"): _floor_divided, ("//", "double"): _float_floor_divided}
    return divided.get((operation.sign, number), _remainder)(left, right)


COMPARED: Mapping[str, Callable[[Column, Column], Column]] = {
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
PLAIN = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}
"""Beyond 64 bits they give null, which is refused as a key, whatever the session says about overflow."""


def _not_zero(divisor: Column) -> Column:
    from pyspark.sql import functions as F

    return F.when(divisor != 0, divisor)


def _turned(remainder: Column, divisor: Column) -> Column:
    """Spark's remainder has the sign of the dividend, Python's that of the divisor."""
    return (remainder != 0) & ((remainder < 0) != (divisor < 0))


def _remainder(left: Column, right: Column) -> Column:
    from pyspark.sql import functions as F

    divisor = _not_zero(right)
    remainder = left % divisor
    return F.when(_turned(remainder, divisor), remainder + divisor).otherwise(remainder)


def _floor_divided_by(left: Column, right: Column) -> Column:
    """By a positive number: below zero, the complement is divided, whose complement is the next lower whole number."""
    from pyspark.sql import functions as F

    above = F.call_function("div", left, right)
    return F.when(left >= 0, above).otherwise(F.bitwise_not(F.call_function("div", F.bitwise_not(left), right)))


def _floor_divided(left: Column, right: Column) -> Column:
    """Spark's `div` cuts off towards zero, Python's `//` goes down; only by -1 can it leave the 64 bits."""
    from pyspark.sql import functions as F

    divisor = _not_zero(right)
    quotient = F.call_function("div", left, divisor)
    turned = F.when(_turned(left % divisor, divisor), quotient - 1).otherwise(quotient)
    return F.when(divisor == -1, F.call_function("try_subtract", F.lit(0), left)).otherwise(turned)


def _float_floor_divided(left: Column, right: Column) -> Column:
    """As Python does it: from what is left after the remainder, so that 1.0 // 0.1 is 9 and not 10."""
    from pyspark.sql import functions as F

    divisor = _not_zero(right)
    remainder = left % divisor
    exact = (left - remainder) / divisor
    down = F.when(_turned(remainder, divisor), exact - 1.0).otherwise(exact)
    whole = F.floor(down).cast("double")
    rounded = F.when(down - whole > 0.5, whole + 1.0).otherwise(whole)
    return F.when(F.abs(down) < WHOLE_FLOATS, rounded).otherwise(down)

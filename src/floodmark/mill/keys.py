"""Keys: what an expression says about an element, in a form that Spark can order and compare as Python would."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from floodmark.errors import ConfigError, ElementInvalid, JoinTreeInvalid
from floodmark.mill.codec import Codec
from floodmark.mill.codec.types import hints_of
from floodmark.mill.expressions import (
    COMPARISONS,
    ENCODERS,
    EXACT_FLOATS,
    KINDS,
    LONGEST,
    SIGNS,
    SPARK_TYPES,
    TOGETHER,
    Call,
    Constant,
    Expression,
    Field,
    Item,
    KeyValue,
    Kind,
    NotThisKind,
    Operation,
)
from floodmark.mill.join_tree import Edge, JoinTree, Stream, name_of

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType


# What type an expression has, found before any element is read: wrong fields and mixed types are errors at once.
SAMPLES: Mapping[type, Any] = {
    int: 3,
    float: 2.5,
    bool: True,
    str: "a",
    Decimal: Decimal(3),
    date: date(2026, 1, 1),
    datetime: datetime(2026, 1, 1, tzinfo=timezone.utc),
    timedelta: timedelta(days=1),
    UUID: UUID(int=1),
}
"""One value of each type: what an operator gives for these is what it gives for all."""
IN_SPARK = (int, float, bool, str)
HEAVIEST = 250


def type_of(expression: Expression, codec: Codec) -> type | None:
    """The type of the expression's values; None where nobody can tell before it is called.

    Raises ConfigError for a field that the class does not have, and for an operator that its operands do not know.
    """
    if isinstance(expression, Constant):
        return type(expression.value)
    if isinstance(expression, Call):
        return _returned(expression)
    if isinstance(expression, Operation):
        return _operated(expression, codec)
    return _known(_hint(expression, codec))


def is_compilable(expression: Expression, codec: Codec) -> bool:
    """Whether Spark's own functions give exactly what Python would; if not, Python is what runs."""
    return codec.deserializer is None and _is_compilable(expression, codec) and weight(expression, codec) <= HEAVIEST


def _is_compilable(expression: Expression, codec: Codec) -> bool:
    if isinstance(expression, Operation):
        return _is_compilable_operation(expression, codec)
    if isinstance(expression, Constant):
        value = expression.value
        return type(value) in IN_SPARK and (type(value) is not int or -LONGEST <= value < LONGEST)
    return isinstance(expression, Field | Item) and type_of(expression, codec) in IN_SPARK


def _is_compilable_operation(operation: Operation, codec: Codec) -> bool:
    """Spark compares an int with a float, and NaN with itself, in another way than Python does."""
    sides = (operation.left, operation.right)
    if not all(_is_compilable(side, codec) for side in sides):
        return False
    found = {type_of(side, codec) for side in sides}
    if operation.sign in COMPARISONS:
        return len(found) == 1 and float not in found
    return operation.sign == "+" if str in found else True


def weight(expression: Expression, codec: Codec) -> int:
    """How large the expression is as a column, where `//` and `%` have to repeat their operands."""
    if not isinstance(expression, Operation):
        return 1
    left, right = weight(expression.left, codec), weight(expression.right, codec)
    if expression.sign not in ("//", "%"):
        return left + right + 1
    is_float = float in (type_of(expression.left, codec), type_of(expression.right, codec))
    if not is_float and is_positive(expression.right):
        return 3 * left + 3
    return 40 * left + 90 * right if is_float and expression.sign == "//" else 5 * left + 12 * right + 15


def is_positive(expression: Expression) -> bool:
    """A constant divisor of the usual kind, which has the shortest way."""
    return isinstance(expression, Constant) and type(expression.value) is int and 0 < expression.value < LONGEST


def _hint(expression: Expression, codec: Codec) -> object:
    if isinstance(expression, Field):
        return _field_hint(codec.cls, expression.name, codec)
    if isinstance(expression, Item):
        return _item_hint(_hint(expression.whole, codec), expression, codec)
    return Any


def _item_hint(whole: object, item: Item, codec: Codec) -> object:
    bare = without_none(whole)
    if isinstance(bare, type) and is_dataclass(bare):
        return _field_hint(bare, item.name, codec)
    if get_origin(bare) in (dict, Mapping):
        return get_args(bare)[1]
    if bare in (Any, object, dict) or codec.deserializer is not None:
        return Any
    raise ConfigError(
        f"{item.describe()} on {codec.cls.__name__}: {item.whole.describe()} has no parts.",
        hint="['…'] is for a field that is a dataclass or a dict",
    )


def _field_hint(cls: type, name: str, codec: Codec) -> object:
    """With a deserializer of the user's own the stream may have fields that the class does not have."""
    names = [field.name for field in fields(cls)] if is_dataclass(cls) else []
    if name in names:
        return hints_of(cls)[name]
    if codec.deserializer is not None:
        return Any
    near = get_close_matches(name, names, n=1)
    raise ConfigError(
        f"{cls.__name__} has no field '{name}'.",
        hint=f"did you mean '{near[0]}'?" if near else f"one of: {', '.join(names)}",
    )


def without_none(hint: object) -> object:
    """X for `X | None`: a null is found, and refused, when it is met."""
    if get_origin(hint) in (Union, types.UnionType):
        rest = [arg for arg in get_args(hint) if arg is not type(None)]
        return rest[0] if len(rest) == 1 else Any
    return hint


def _known(hint: object) -> type | None:
    bare = without_none(hint)
    return bare if isinstance(bare, type) and bare is not object else None


def _returned(call: Call) -> type | None:
    try:
        return _known(get_type_hints(call.function).get("return"))
    except (TypeError, NameError):
        return None


def _operated(operation: Operation, codec: Codec) -> type | None:
    left, right = type_of(operation.left, codec), type_of(operation.right, codec)
    if left is None or right is None:
        return bool if operation.sign in COMPARISONS else None
    try:
        return type(SIGNS[operation.sign](SAMPLES[left], SAMPLES[right]))
    except (TypeError, KeyError):
        raise ConfigError(
            f"{operation.describe()} on {codec.cls.__name__}: '{operation.sign}' does not go with {left.__name__} and "
            f"{right.__name__}.",
            hint="use fields of one kind, or function_call(…) for what has no operator",
        ) from None


# Expressions as Spark columns that give what Python would: its rounding, its signs, and null where it would raise.
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


@dataclass(frozen=True, eq=False)
class Key:
    """One side of an edge, or a window. `kind` is what both sides are compared as; "any" can only be equal or not."""

    codec: Codec
    expression: Expression
    kind: Kind

    @property
    def spark_type(self) -> str:
        return SPARK_TYPES[self.kind]

    @property
    def ordered(self) -> bool:
        return self.kind != "any"

    @cached_property
    def compiled(self) -> bool:
        """Whether `column` can be asked; otherwise `of` runs as Python."""
        return self.kind in ("int", "float", "text") and is_compilable(self.expression, self.codec)

    def column(self, element: Column) -> Column:
        """The key over a struct column; null where `of` would raise."""
        from pyspark.sql import functions as F

        found = to_column(self.expression, self.codec, element)
        if self.kind != "float":
            return found.cast(self.spark_type)
        if type_of(self.expression, self.codec) is float:
            return F.when(~F.isnan(found), found)
        whole = found.cast("bigint")
        return F.when(whole.between(-EXACT_FLOATS, EXACT_FLOATS), whole.cast("double"))

    def of(self, values: Mapping[str, Any] | None) -> KeyValue:
        """The key of an element, given as `Codec.values` does; None on an idle poll. Raises ElementInvalid."""
        try:
            value = self.expression.evaluate(values)
            if value is None:
                raise self._invalid("the key is null")
            return ENCODERS[self.kind](value)
        except ElementInvalid:
            raise
        except Exception as error:
            raise self._invalid(_told(error)) from error

    def __reduce__(self) -> tuple[object, ...]:
        return Key, (self.codec, self.expression, self.kind)

    def _invalid(self, reason: str) -> ElementInvalid:
        return ElementInvalid(
            name_of(self.codec.stream), field="", reason=f"key {self.expression.describe()}: {reason}"
        )


def edge_keys(edge: Edge, codecs: Mapping[Stream, Codec]) -> tuple[Key, Key]:
    """The keys of both sides, of one kind. Raises JoinTreeInvalid for sides that cannot be compared."""
    left, right = codecs[edge.left], codecs[edge.right]
    kinds = (kind_of(edge.left_expression, left), kind_of(edge.right_expression, right))
    kind = _common(edge, kinds)
    return Key(left, edge.left_expression, kind), Key(right, edge.right_expression, kind)


def window_key(tree: JoinTree, codecs: Mapping[Stream, Codec]) -> Key | None:
    """The key of the windows, if the tree has any; where nobody knows its type it is only compared for equality."""
    if tree.window is None:
        return None
    codec = codecs[tree.root]
    return Key(codec, tree.window, kind_of(tree.window, codec) or "any")


def kind_of(expression: Expression, codec: Codec) -> Kind | None:
    """What the expression's values are compared as; None if it cannot be told, "any" if they have no order."""
    found = type_of(expression, codec)
    return KINDS.get(found, "any") if found is not None else None


def key_schema(codec: Codec, keys: Sequence[Key]) -> StructType:
    """Only those fields of an element that compiled keys read, for from_json."""
    from floodmark.mill.codec.types import spark_schema

    return spark_schema(codec.cls, only={path for key in keys if key.compiled for path in _paths(key.expression)})


def _paths(expression: Expression) -> Iterator[tuple[str, ...]]:
    """The fields that an expression reads, each as the names that lead to it."""
    if isinstance(expression, Operation):
        yield from (*_paths(expression.left), *_paths(expression.right))
    elif isinstance(expression, Item):
        yield from ((*path, expression.name) for path in _paths(expression.whole))
    elif isinstance(expression, Field):
        yield (expression.name,)


def _common(edge: Edge, kinds: tuple[Kind | None, Kind | None]) -> Kind:
    known: set[Kind] = {kind for kind in kinds if kind is not None}
    if not known:
        reason, hint = "nobody knows the type of either key", "annotate what the functions of function_call return"
    elif "any" in known:
        reason, hint = "a key has no order", "join on numbers, text, dates or times; function_call(…) can make one"
    elif len(known) == 1:
        return known.pop()
    elif frozenset(known) in TOGETHER:
        return TOGETHER[frozenset(known)]
    else:
        reason = f"{kinds[0]} keys on the left, {kinds[1]} keys on the right"
        hint = "bring both sides to one type; function_call(…) can convert"
    raise JoinTreeInvalid(edge.describe(), reason=reason, hint=hint)


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, NotThisKind) else f"{type(error).__name__}: {error}"

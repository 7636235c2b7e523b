"""What type an expression has, found before any element is read: wrong fields and mixed types are errors at once."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from floodmark.errors import ConfigError
from floodmark.mill.codec import Codec
from floodmark.mill.expressions import COMPARISONS, SIGNS, Call, Constant, Expression, Field, Item, Operation
from floodmark.mill.field_types import hints_of
from floodmark.mill.key_values import LONGEST

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

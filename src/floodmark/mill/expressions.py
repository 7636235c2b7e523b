"""Expressions on the fields of an element: what keys and windows are made of, as plain values that can be looked at.

What they give is compared in one of a few kinds. Each has a form that Spark holds exactly and orders as Python does; a
value without such a form is refused.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Literal, NoReturn, TypeAlias
from uuid import UUID

from floodmark.step.transform import code_texts, short_hash

Value: TypeAlias = Any
"""What a user's field or function holds."""
Sign = Literal["+", "-", "*", "//", "%", "==", "!=", "<", "<=", ">", ">="]
SIGNS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})


def get_field(field_name: str) -> Expression:
    """The value of a field; nested ones by `['name']`.

    >>> get_field("address")["city"]
    Item(whole=Field(name='address'), name='city')
    """
    return Field(field_name)


get_fields = get_field
"""The seed's other spelling."""


def const_expression(constant: object) -> Expression:
    """The same value for every element.

    >>> anywhere = JoinWith(Payment, const_expression("all"), const_expression("all"))
    """
    return Constant(constant)


def function_call(func: Callable[[Any], Any]) -> Expression:
    """What `func` says about the element, given as a dict; it runs as Python, beside the data.

    >>> pair = JoinWith(Payment, function_call(lambda order: order["id"] % 10), get_field("last_digit"))
    """
    return Call(func)


class Expression(ABC):
    """Something that has a value for every element; operators make greater ones, with Python's own precedence.

    Comparing two expressions gives an expression too, so they have no equality of their own: `fingerprint` tells them
    apart.
    """

    @abstractmethod
    def evaluate(self, element: Mapping[str, Any] | None) -> Value:
        """The value for an element, given as a dict; None stands for an idle poll."""

    @abstractmethod
    def describe(self) -> str:
        """As it would be written."""

    def __call__(self, element: object) -> Value:
        """The value for an element, given as a dict or as the dataclass that it is; None stands for an idle poll."""
        is_element = is_dataclass(element) and not isinstance(element, type)
        values: Any = asdict(element) if is_element else element  # type: ignore[call-overload]  # it is asked above
        return self.evaluate(values)

    def fingerprint(self) -> str:
        """Changes when the expression does, the code of its functions included."""
        codes = [node.code() for node in self.walk() if isinstance(node, Call)]
        return " ".join([self.describe(), *codes])

    def walk(self) -> Iterator[Expression]:
        """This expression and all that it is made of."""
        yield self

    def __getitem__(self, name: str) -> Expression:
        return Item(self, name)

    def __add__(self, other: object) -> Expression:
        return Operation("+", self, expression_of(other))

    def __radd__(self, other: object) -> Expression:
        return Operation("+", expression_of(other), self)

    def __sub__(self, other: object) -> Expression:
        return Operation("-", self, expression_of(other))

    def __rsub__(self, other: object) -> Expression:
        return Operation("-", expression_of(other), self)

    def __mul__(self, other: object) -> Expression:
        return Operation("*", self, expression_of(other))

    def __rmul__(self, other: object) -> Expression:
        return Operation("*", expression_of(other), self)

    def __floordiv__(self, other: object) -> Expression:
        return Operation("//", self, expression_of(other))

    def __rfloordiv__(self, other: object) -> Expression:
        return Operation("//", expression_of(other), self)

    def __mod__(self, other: object) -> Expression:
        return Operation("%", self, expression_of(other))

    def __rmod__(self, other: object) -> Expression:
        return Operation("%", expression_of(other), self)

    def __neg__(self) -> Expression:
        return Operation("-", Constant(0), self)

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]  # an expression, as with Spark's columns
        return Operation("==", self, expression_of(other))

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]  # the same
        return Operation("!=", self, expression_of(other))

    def __lt__(self, other: object) -> Expression:
        return Operation("<", self, expression_of(other))

    def __le__(self, other: object) -> Expression:
        return Operation("<=", self, expression_of(other))

    def __gt__(self, other: object) -> Expression:
        return Operation(">", self, expression_of(other))

    def __ge__(self, other: object) -> Expression:
        return Operation(">=", self, expression_of(other))

    __hash__ = object.__hash__

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self.describe()} has a value for each element, not one that `if`, `and` or `or` could use")


@dataclass(frozen=True, eq=False)
class Field(Expression):
    """A field of the element."""

    name: str

    def evaluate(self, element: Mapping[str, Any] | None) -> Value:
        if element is None:
            raise TypeError(f"{self.describe()} has no value on an idle poll")
        return element[self.name]

    def describe(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Item(Expression):
    """A part of a nested field."""

    whole: Expression
    name: str

    def evaluate(self, element: Mapping[str, Any] | None) -> Value:
        whole = self.whole.evaluate(element)
        return None if whole is None else whole[self.name]

    def describe(self) -> str:
        return f"{self.whole.describe()}[{self.name!r}]"

    def walk(self) -> Iterator[Expression]:
        yield self
        yield from self.whole.walk()


@dataclass(frozen=True, eq=False)
class Constant(Expression):
    """The same value for every element."""

    value: Any

    def evaluate(self, element: Mapping[str, Any] | None) -> Value:
        return self.value

    def describe(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, eq=False)
class Call(Expression):
    """What a function says about the element; it gets a dict, and None on an idle poll."""

    function: Callable[[Any], Any]

    def evaluate(self, element: Mapping[str, Any] | None) -> Value:
        return self.function(element)

    def describe(self) -> str:
        return f"function_call({getattr(self.function, '__qualname__', type(self.function).__name__)})"

    def code(self) -> str:
        """A short word for the function's code."""
        code = getattr(self.function, "__code__", None)
        return short_hash(*code_texts(code)) if code else type(self.function).__qualname__


@dataclass(frozen=True, eq=False)
class Operation(Expression):
    """Two expressions and a sign between them. Without a value on one side there is none: a null key is an error."""

    sign: Sign
    left: Expression
    right: Expression

    def evaluate(self, element: Mapping[str, Any] | None) -> Value:
        left, right = self.left.evaluate(element), self.right.evaluate(element)
        return None if left is None or right is None else SIGNS[self.sign](left, right)

    def describe(self) -> str:
        return f"({self.left.describe()} {self.sign} {self.right.describe()})"

    def walk(self) -> Iterator[Expression]:
        yield self
        yield from self.left.walk()
        yield from self.right.walk()


def expression_of(value: object) -> Expression:
    """An expression as it is, anything else as a constant."""
    return value if isinstance(value, Expression) else Constant(value)


Kind = Literal["int", "float", "text", "decimal", "date", "datetime", "duration", "uuid", "any"]
KeyValue: TypeAlias = "int | float | str | Decimal"
KINDS: Mapping[type, Kind] = {
    int: "int",
    bool: "int",
    float: "float",
    str: "text",
    Decimal: "decimal",
    date: "date",
    datetime: "datetime",
    timedelta: "duration",
    UUID: "uuid",
}
SPARK_TYPES: Mapping[Kind, str] = {
    "int": "bigint",
    "float": "double",
    "decimal": "decimal(38,18)",
    "date": "bigint",
    "datetime": "bigint",
    "duration": "bigint",
    "text": "string",
    "uuid": "string",
    "any": "string",
}
TOGETHER: Mapping[frozenset[Kind], Kind] = {
    frozenset({"int", "float"}): "float",
    frozenset({"int", "decimal"}): "decimal",
}
"""Kinds that Python compares, and the one that holds both exactly."""
LONGEST = 2**63
EXACT_FLOATS = 2**53
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
PLACES = Decimal(1).scaleb(-18)
DIGITS = Context(prec=38, traps=[Inexact, InvalidOperation])


class NotThisKind(Exception):
    """A key of another type than the one that it is compared as."""


def _int(value: Value) -> int:
    if type(value) not in (int, bool) or not -LONGEST <= value < LONGEST:
        raise NotThisKind(f"{value!r} is no int of 64 bits")
    return int(value)


def _float(value: Value) -> float:
    if type(value) in (int, bool) and abs(value) > EXACT_FLOATS:
        raise NotThisKind(f"{value!r} is too large to be compared with floats")
    if type(value) not in (int, bool, float) or value != value:
        raise NotThisKind(f"{value!r} is no number that could be compared")
    return float(value)


def _exactly(kind: type, encode: Callable[[Any], KeyValue]) -> Callable[[Any], KeyValue]:
    def encoded(value: Value) -> KeyValue:
        if type(value) is not kind:
            raise NotThisKind(f"{value!r} is no {kind.__name__}")
        return encode(value)

    return encoded


def _decimal(value: Value) -> Decimal:
    if type(value) not in (Decimal, int):
        raise NotThisKind(f"{value!r} is no Decimal")
    found = Decimal(value)
    if not fits_columns(found):
        raise NotThisKind(f"{value!r} has more than 20 digits before the point, or 18 after it")
    return found.quantize(PLACES, context=DIGITS)


def fits_columns(value: Decimal) -> bool:
    """Whether decimal(38,18) holds the value as it is."""
    try:
        return value.is_finite() and value.quantize(PLACES, context=DIGITS) == value
    except (Inexact, InvalidOperation):
        return False


def _moment(value: datetime) -> int:
    """Microseconds; a time without a zone is taken as UTC."""
    aware = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
    return _duration(aware - EPOCH)


def _duration(value: timedelta) -> int:
    return (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds


def _any(value: Value) -> str:
    """Equal values, equal texts: 1, 1.0 and True are one."""
    if isinstance(value, int | float | Decimal) and value == value // 1:
        return str(int(value))
    return f"{type(value).__name__} {value!r}"


ENCODERS: Mapping[Kind, Callable[[Any], KeyValue]] = {
    "int": _int,
    "float": _float,
    "text": _exactly(str, str),
    "decimal": _decimal,
    "date": _exactly(date, date.toordinal),
    "datetime": _exactly(datetime, _moment),
    "duration": _exactly(timedelta, _duration),
    "uuid": _exactly(UUID, str),
    "any": _any,
}

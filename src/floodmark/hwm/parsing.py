"""Numbers from what users and drivers give, exactly or not at all."""

from __future__ import annotations

import re
from decimal import Context, Decimal, Inexact
from operator import index

from floodmark.errors import MarkInvalid

LARGEST_EXACT_FLOAT = 2**53
MOST_DIGITS = 4000
"""Python neither reads nor writes a whole number of more than 4300 digits as text."""
_TOO_LARGE = 10**MOST_DIGITS
EXACT = Context(prec=200_000, traps=[Inexact])
"""Decimal arithmetic that never rounds; the default context would, at 28 digits."""

_WHOLE = re.compile(r"[+-]?[0-9]+")
_WHOLE_OR_ZEROS = re.compile(r"([+-]?[0-9]+)(?:\.0*)?")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?")


def strict_int(kind: str, value: object) -> int:
    """A whole number given as one, or as its digits; never a float."""
    if type(value) is int and -_TOO_LARGE < value < _TOO_LARGE:
        return value  # the usual case first: a list of files asks this two million times
    if isinstance(value, str):
        return _from_digits(kind, value, _WHOLE.fullmatch(value.strip()) and value.strip())
    if isinstance(value, bool):
        raise MarkInvalid(kind, value, reason="not a whole number")
    try:
        return _sized(kind, index(value))  # type: ignore[arg-type]  # ints of other libraries have an index too
    except TypeError as error:
        raise MarkInvalid(kind, value, reason="not a whole number") from error


def whole_number(kind: str, value: object) -> int:
    """A whole number in any spelling that names it exactly: 1, "1.0", 1.0, Decimal("1.0")."""
    if isinstance(value, str):
        found = _WHOLE_OR_ZEROS.fullmatch(value.strip())
        return _from_digits(kind, value, found and found[1])
    if isinstance(value, float):
        return _from_float(kind, value)
    if isinstance(value, Decimal):
        return _sized(kind, int(_whole_decimal(kind, value)))
    return strict_int(kind, value)


def exact_decimal(kind: str, value: object) -> Decimal:
    """A decimal that is exactly what was given, within what a database's numeric can hold."""
    if isinstance(value, Decimal):
        found = value
    elif isinstance(value, str) and _DECIMAL.fullmatch(value.strip()):
        found = Decimal(value.strip())
    elif isinstance(value, float):
        found = Decimal(repr(value))
        if not found.is_finite() or found != Decimal(value):
            raise MarkInvalid(kind, value, reason="this float is not exactly a decimal; give it as text")
    elif isinstance(value, str):
        raise MarkInvalid(kind, value, reason="not a decimal number")
    else:
        found = Decimal(strict_int(kind, value))
    return _storable(kind, found)


def shown_int(value: int) -> int | str:
    """A whole number that stays exact where JSON is read with floats."""
    return value if abs(value) <= LARGEST_EXACT_FLOAT else str(value)


def _storable(kind: str, value: Decimal) -> Decimal:
    if not value.is_finite():
        raise MarkInvalid(kind, value, reason="not a finite number")
    exponent = value.as_tuple().exponent
    if value.adjusted() >= 131_072 or (isinstance(exponent, int) and exponent < -16_383):
        raise MarkInvalid(kind, value, reason="more digits than a database's numeric can hold")
    return value


def _whole_decimal(kind: str, value: Decimal) -> Decimal:
    if _storable(kind, value) != value.to_integral_value():
        raise MarkInvalid(kind, value, reason="not a whole number")
    return value


def _from_float(kind: str, value: float) -> int:
    if not value.is_integer():
        raise MarkInvalid(kind, value, reason="not a whole number")
    if abs(value) > LARGEST_EXACT_FLOAT:
        raise MarkInvalid(kind, value, reason="a float this large was rounded already; give an int or text")
    return int(value)


def _from_digits(kind: str, value: str, digits: str | None) -> int:
    if not digits:
        raise MarkInvalid(kind, value, reason="not a whole number")
    if len(digits) > MOST_DIGITS:
        raise MarkInvalid(kind, f"{digits[:20]}…", reason=f"more than {MOST_DIGITS} digits")
    return int(digits)


def _sized(kind: str, value: int) -> int:
    if abs(value) >= _TOO_LARGE:
        raise MarkInvalid(kind, "a number", reason=f"more than {MOST_DIGITS} digits")
    return value

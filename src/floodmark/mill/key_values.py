"""The values of keys: each kind in a form that Spark holds exactly and orders as Python does, or refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Literal, TypeAlias
from uuid import UUID

from floodmark.mill.expressions import Value

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

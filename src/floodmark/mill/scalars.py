"""Readers of single values, from what JSON can say to what a type promises: refused rather than bent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias, get_origin
from uuid import UUID

from floodmark.errors import ConfigError

Read: TypeAlias = "Callable[[Any], Any]"


class Unfit(Exception):
    """A value that does not fit; `path` grows on its way out of nested values."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason, self.path = reason, path

    def below(self, part: str) -> Unfit:
        """The same fault, seen from one level above."""
        return Unfit(self.reason, f"{part}{self.path}")


@dataclass(frozen=True)
class Reader:
    """How one type is read; a value of exactly the type `plain` needs no reading."""

    read: Read
    plain: type | None = None


def unknown_type(hint: object) -> ConfigError:
    """The error for a type without a rule."""
    return ConfigError(
        f"{shown_type(hint)} cannot be read from JSON or written to it.",
        hint="give WaterMill a deserializer (a serializer for output) for the class that has it",
    )


def shown_type(hint: object) -> str:
    """A type as its user wrote it."""
    return hint.__name__ if isinstance(hint, type) and not get_origin(hint) else str(hint).replace("typing.", "")


def wrong(value: object, wanted: str) -> Unfit:
    """The fault of a value of another type; long values are cut."""
    text = repr(value)
    return Unfit(f"{text if len(text) <= 60 else text[:57] + '…'} is no {wanted}")


def _int(value: object) -> int:
    if type(value) is int:
        return value
    raise wrong(value, "int")


def _float(value: object) -> float:
    if type(value) in (float, int, Decimal):
        return float(value)  # type: ignore[arg-type]  # one of the three
    raise wrong(value, "float")


def _str(value: object) -> str:
    if type(value) is str:
        return value
    raise wrong(value, "str")


def _bool(value: object) -> bool:
    if type(value) is bool:
        return value
    raise wrong(value, "bool")


def _none(value: object) -> None:
    if value is not None:
        raise wrong(value, "None")


def _decimal(value: object) -> Decimal:
    """From text, or from a number by the digits it was written with."""
    if type(value) is float:
        return Decimal(repr(value))
    try:
        if type(value) in (str, int, Decimal):
            return Decimal(value)  # type: ignore[arg-type]  # one of the three
    except InvalidOperation:
        pass
    raise wrong(value, "Decimal")


def _date(value: object) -> date:
    try:
        if type(value) is str:
            return date.fromisoformat(value)
    except ValueError:
        pass
    raise wrong(value, "date like '2026-01-31'")


def _datetime(value: object) -> datetime:
    try:
        if type(value) is str:
            return datetime.fromisoformat(f"{value[:-1]}+00:00" if value.endswith("Z") else value)
    except ValueError:
        pass
    raise wrong(value, "datetime like '2026-01-31T12:00:00+00:00'")


def _uuid(value: object) -> UUID:
    try:
        if type(value) is str:
            return UUID(value)
    except ValueError:
        pass
    raise wrong(value, "UUID")


SCALARS: Mapping[type, Reader] = {
    int: Reader(_int, int),
    float: Reader(_float, float),
    str: Reader(_str, str),
    bool: Reader(_bool, bool),
    type(None): Reader(_none, type(None)),
    Decimal: Reader(_decimal),
    date: Reader(_date),
    datetime: Reader(_datetime),
    UUID: Reader(_uuid),
}

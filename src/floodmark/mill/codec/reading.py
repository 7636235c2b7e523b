"""Readers of what a type hint describes, containers and alternatives included; made once per class, run per element."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin
from uuid import UUID

from floodmark.errors import ConfigError

# Readers of single values, from what JSON can say to what a type promises: refused rather than bent.
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


Nested: TypeAlias = "Callable[[type], Read]"
"""How the reader of a nested dataclass is made."""


def reader_for(hint: object, nested: Nested) -> Reader:
    """The reader of a type hint. Raises ConfigError for a type that JSON has no word for."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in (Any, object):
        return Reader(_as_it_is)
    if origin in (Union, types.UnionType):
        return _union(args, nested)
    if origin is Literal:
        return Reader(_literal(args))
    if origin is not None:
        return _container(origin, args, hint, nested)
    if isinstance(hint, type):
        return _class(hint, nested)
    raise unknown_type(hint)


def _class(hint: type, nested: Nested) -> Reader:
    if hint in SCALARS:
        return SCALARS[hint]
    if issubclass(hint, Enum):
        return Reader(_enum(hint))
    if is_dataclass(hint):
        return Reader(nested(hint))
    if hint in (list, tuple, dict, set, frozenset):
        return _container(hint, (), hint, nested)
    raise unknown_type(hint)


def _container(origin: type, args: tuple[Any, ...], hint: object, nested: Nested) -> Reader:
    if origin in (list, Sequence):
        return Reader(_many(reader_for(args[0] if args else Any, nested).read, list))
    if origin in (set, frozenset):
        return Reader(_many(reader_for(args[0] if args else Any, nested).read, origin))
    if origin is tuple:
        return Reader(_tuple(args, nested))
    if origin in (dict, Mapping):
        keys, values = args or (str, Any)
        return Reader(_dict(key_reader(keys), reader_for(values, nested).read))
    raise unknown_type(hint)


def _as_it_is(value: object) -> object:
    return value


def key_reader(hint: object) -> Read:
    """Keys of a JSON object are text: an int key is read from its digits."""
    if hint is int:
        return _int_key
    if hint in (str, Any) or hint in SCALARS or (isinstance(hint, type) and issubclass(hint, Enum)):
        return reader_for(hint, _no_nesting).read
    raise unknown_type(hint)


def _int_key(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise wrong(value, "int") from None


def _no_nesting(cls: type) -> Read:
    raise unknown_type(cls)


def _union(args: tuple[Any, ...], nested: Nested) -> Reader:
    """The first alternative that takes the value; for `X | None` that is one test and X's own reader."""
    readers = [reader_for(arg, nested) for arg in args if arg is not type(None)]
    optional = type(None) in args
    if len(readers) == 1 and optional:
        only = readers[0]
        return Reader(lambda value: None if value is None else only.read(value), only.plain)

    def read(value: object) -> object:
        if value is None and optional:
            return None
        for reader in readers:
            try:
                return reader.read(value)
            except Unfit:
                continue
        raise wrong(value, " or ".join(map(shown_type, args)))

    return Reader(read)


def _literal(choices: tuple[Any, ...]) -> Read:
    known = {(type(choice), choice): choice for choice in choices}

    def read(value: object) -> object:
        found = known.get((type(value), value)) if type(value) in (str, int, bool) else None
        if found is None:
            raise wrong(value, f"one of {', '.join(map(repr, choices))}")
        return found

    return read


def _enum(cls: type[Enum]) -> Read:
    members = {member.value: member for member in cls}

    def read(value: object) -> Enum:
        try:
            return members[value]
        except (KeyError, TypeError):
            raise wrong(value, f"{cls.__name__} (one of {', '.join(map(repr, members))})") from None

    return read


def _many(read_one: Read, collect: Callable[[list[Any]], Any]) -> Read:
    def read(value: object) -> object:
        if type(value) is not list:
            raise wrong(value, "list")
        found: list[Any] = []
        try:
            for one in value:
                found.append(read_one(one))  # noqa: PERF401  # how many were read is where the fault stands
        except Unfit as unfit:
            raise unfit.below(f"[{len(found)}]") from None
        return collect(found)

    return read


def _tuple(args: tuple[Any, ...], nested: Nested) -> Read:
    if not args or args[-1] is Ellipsis:
        return _many(reader_for(args[0] if args else Any, nested).read, tuple)
    readers = [reader_for(arg, nested).read for arg in args]

    def read(value: object) -> tuple[Any, ...]:
        if type(value) is not list or len(value) != len(readers):
            raise wrong(value, f"list of {len(readers)}")
        return tuple(reader(one) for reader, one in zip(readers, value, strict=True))

    return read


def _dict(read_key: Read, read_value: Read) -> Read:
    def read(value: object) -> dict[Any, Any]:
        if type(value) is not dict:
            raise wrong(value, "object")
        found = {}
        for key, one in value.items():
            try:
                found[read_key(key)] = read_value(one)
            except Unfit as unfit:
                raise unfit.below(f"[{key!r}]") from None
        return found

    return read

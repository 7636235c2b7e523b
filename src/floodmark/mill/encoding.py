"""Writers of values: the way back, from a field's value to what JSON can say."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin
from uuid import UUID

from floodmark.mill.scalars import unknown_type

Write: TypeAlias = "Callable[[Any], Any]"
Nested: TypeAlias = "Callable[[type], Write]"
PLAIN = (int, float, str, bool, type(None))


def writer_for(hint: object, nested: Nested) -> Write | None:
    """The writer of a type hint; None where the value goes out as it is. Raises ConfigError for an unknown type."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in PLAIN or origin is Literal:
        return None
    if hint in (Any, object):
        return lambda value: write_any(value, nested)
    if origin in (Union, types.UnionType):
        return _union(args, nested)
    if origin is not None:
        return _container(origin, args, hint, nested)
    if isinstance(hint, type):
        return _class(hint, nested)
    raise unknown_type(hint)


def write_any(value: object, nested: Nested) -> object:
    """A value whose type nobody promised, by the type that it has."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, Mapping):
        return {write_key(key): write_any(one, nested) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [write_any(one, nested) for one in value]
    written = _class(type(value), nested)
    return written(value) if written else value


def write_key(key: object) -> str:
    """Keys of a JSON object are text."""
    return key if type(key) is str else str(key.value if isinstance(key, Enum) else key)


def _class(hint: type, nested: Nested) -> Write | None:
    if is_dataclass(hint):
        return _or_none(nested(hint))
    if issubclass(hint, Enum):
        return _or_none(lambda value: value.value)
    if issubclass(hint, date | datetime):
        return _or_none(lambda value: value.isoformat())
    if issubclass(hint, Decimal | UUID):
        return _or_none(str)
    if hint in (list, tuple, set, frozenset, dict):
        return lambda value: write_any(value, nested)
    raise unknown_type(hint)


def _or_none(write: Write) -> Write:
    """A field may hold None although its type does not say so; JSON has a word for it."""
    return lambda value: None if value is None else write(value)


def _union(args: tuple[Any, ...], nested: Nested) -> Write | None:
    writers = [writer_for(arg, nested) for arg in args if arg is not type(None)]
    if len(writers) == 1:
        return writers[0]
    return (lambda value: write_any(value, nested)) if any(writers) else None


def _container(origin: type, args: tuple[Any, ...], hint: object, nested: Nested) -> Write | None:
    if origin in (dict, Mapping):
        write = writer_for(args[1], nested)
        return _or_none(lambda value: {write_key(k): write(v) if write else v for k, v in value.items()})
    if origin is tuple and args[-1] is not Ellipsis:
        return lambda value: write_any(value, nested)
    if origin in (list, tuple, set, frozenset, Sequence):
        write_one = writer_for(args[0], nested)
        return _or_none(lambda value: [write_one(one) for one in value] if write_one else list(value))
    raise unknown_type(hint)

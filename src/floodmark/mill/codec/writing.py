"""Elements into JSON text, byte for byte as Python's own json writes it: a function per class, made once.

An element is written in two steps, since the process function may change it once it was given away: a snapshot at
once, the text later. A class whose values JSON has as they are is written in columns, many elements by one template, in
0.4 of the time that one by one takes; the row "elements written" of bench_elements pays for that.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from json.encoder import encode_basestring_ascii
from math import isfinite
from operator import attrgetter
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin
from uuid import UUID

from floodmark.mill.codec.reading import about_field, not_made_yet
from floodmark.mill.codec.types import hints_of, unknown_type

Write: TypeAlias = "Callable[[Any], Any]"
Nested: TypeAlias = "Callable[[type], Write]"
Snapshot: TypeAlias = Any
"""What is kept of an element until its text is written: the values of its fields, or the text itself."""
PLAIN = (int, float, str, bool, type(None))
to_json = json.JSONEncoder(allow_nan=False).encode


@dataclass(frozen=True)
class TextWriter:
    """How elements become text: `snapshot` takes what matters of one at once, `texts` writes many of those later."""

    snapshot: Callable[[Any], Snapshot]
    texts: Callable[[Sequence[Snapshot]], list[str]]


def text_writer(cls: type) -> TextWriter:
    """How elements of a class are written. Raises ConfigError for a type that JSON has no word for."""
    names = [field.name for field in fields(cls)]
    if any(field_writers(cls, names, class_writer)):
        write = class_writer(cls)
        return one_by_one(lambda element: to_json(write(element)))
    template = "{" + ", ".join(to_json(name).replace("%", "%%") + ": %s" for name in names) + "}"

    def texts(rows: Sequence[tuple[Any, ...]]) -> list[str]:
        if not names:
            return [template] * len(rows)
        columns = [column_texts(column) for column in zip(*rows, strict=True)]
        return list(map(template.__mod__, zip(*columns, strict=True)))

    return TextWriter(values_getter(names), texts)


def one_by_one(write: Callable[[Any], str]) -> TextWriter:
    """Elements that are written as they come."""
    return TextWriter(write, list)


def column_texts(values: Sequence[Any]) -> Iterable[object]:
    """The values of one field in a form that % shows as JSON does. Raises ValueError, TypeError for what it cannot."""
    kinds = set(map(type, values))
    if kinds == {int} or (kinds == {float} and all(map(isfinite, values))):
        return values
    return [TEXTS.get(type(value), to_json)(value) for value in values]


def float_text(value: float) -> str:
    """As JSON has it. Raises ValueError for what it has no word for."""
    if not isfinite(value):
        raise ValueError(f"{value} is no number that JSON knows")
    return repr(value)


TEXTS: Mapping[type, Callable[[Any], str]] = {
    int: repr,
    float: float_text,
    str: encode_basestring_ascii,
    bool: lambda value: "true" if value else "false",
    type(None): lambda _: "null",
}


def class_writer(cls: type) -> Write:
    """A function from an element of the class to a dict that JSON can say, its fields in their order."""
    writers: dict[type, Write] = {}

    def nested(inner: type) -> Write:
        """Looked up when it is called, so that a class may hold itself."""
        if inner not in writers:
            writers[inner] = not_made_yet
            writers[inner] = _object_writer(inner, nested)

        def write(element: object) -> object:
            return writers[inner](element)

        return write

    nested(cls)
    return writers[cls]


def _object_writer(cls: type, nested: Nested) -> Write:
    names = [field.name for field in fields(cls)]
    writers, values_of = dict(field_writers(cls, names, nested)), values_getter(names)

    def write(element: object) -> dict[str, Any]:
        written = dict(zip(names, values_of(element), strict=True))
        for name, writer in writers.items():
            written[name] = writer(written[name])
        return written

    return write


def field_writers(cls: type, names: Sequence[str], nested: Nested) -> Iterator[tuple[str, Write]]:
    """A writer for each field whose values do not go out as they are."""
    hints = hints_of(cls)
    for name in names:
        with about_field(cls, name):
            writer = writer_for(hints[name], nested)
        if writer is not None:
            yield name, writer


def values_getter(names: Sequence[str]) -> Callable[[object], tuple[Any, ...]]:
    """The values of these fields; attrgetter gives a tuple only for two names or more."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda element: tuple(getattr(element, name) for name in names)


def writer_for(hint: object, nested: Nested) -> Write | None:
    """The writer of a type hint; None where the value goes out as it is. Raises ConfigError for an unknown type."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in PLAIN or origin is Literal:
        return None
    if hint in (Any, object):
        return lambda value: write_any(value, nested)
    if origin in (Union, types.UnionType):
        return _union_writer(args, nested)
    if origin is not None:
        return _container_writer(origin, args, hint, nested)
    if isinstance(hint, type):
        return _single_class_writer(hint, nested)
    raise unknown_type(hint)


def write_any(value: object, nested: Nested) -> object:
    """A value whose type nobody promised, by the type that it has."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, Mapping):
        return {_key_text(key): write_any(one, nested) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [write_any(one, nested) for one in value]
    write = _single_class_writer(type(value), nested)
    return write(value) if write else value


def _key_text(key: object) -> str:
    """Keys of a JSON object are text."""
    return key if type(key) is str else str(key.value if isinstance(key, Enum) else key)


def _union_writer(args: tuple[Any, ...], nested: Nested) -> Write | None:
    writers = [writer_for(arg, nested) for arg in args if arg is not type(None)]
    if len(writers) == 1:
        return writers[0]
    return (lambda value: write_any(value, nested)) if any(writers) else None


def _container_writer(origin: type, args: tuple[Any, ...], hint: object, nested: Nested) -> Write:
    if origin in (dict, Mapping):
        write = writer_for(args[1], nested)
        return _or_none(lambda value: {_key_text(k): write(v) if write else v for k, v in value.items()})
    if origin is tuple and args[-1] is not Ellipsis:
        return lambda value: write_any(value, nested)
    if origin in (list, tuple, set, frozenset, Sequence):
        write_one = writer_for(args[0], nested)
        return _or_none(lambda value: [write_one(one) for one in value] if write_one else list(value))
    raise unknown_type(hint)


def _single_class_writer(hint: type, nested: Nested) -> Write | None:
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

"""Elements as JSON text: those of a class of plain values are kept as rows of values, and written many at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from json.encoder import encode_basestring_ascii
from math import isfinite
from typing import Any, TypeAlias

from floodmark.mill.class_closures import class_writer, getter, is_plain

to_json = json.JSONEncoder(allow_nan=False).encode
Kept: TypeAlias = Any
"""What is kept of an element, so that it may change once it was given away: its text, or the values of its fields."""


@dataclass(frozen=True)
class Writing:
    """How elements become text: `keep` takes what matters of one at once, `texts` writes many of those later."""

    keep: Callable[[Any], Kept]
    texts: Callable[[Sequence[Kept]], list[str]]


def one_by_one(write: Callable[[Any], str]) -> Writing:
    """Elements that are written as they come."""
    return Writing(write, list)


def writing_of(cls: type) -> Writing:
    """How elements of a class are written, as Python's own json would."""
    if not is_plain(cls):
        write = class_writer(cls)
        return one_by_one(lambda element: to_json(write(element)))
    names = [field.name for field in fields(cls)]
    template = "{" + ", ".join(to_json(name).replace("%", "%%") + ": %s" for name in names) + "}"

    def texts(rows: Sequence[tuple[Any, ...]]) -> list[str]:
        if not names:
            return [template] * len(rows)
        columns = [column_texts(column) for column in zip(*rows, strict=True)]
        return list(map(template.__mod__, zip(*columns, strict=True)))

    return Writing(getter(names), texts)


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

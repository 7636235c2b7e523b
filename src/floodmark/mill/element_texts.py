"""Elements as JSON text: a class of plain values needs no dict on the way, and one form serves all that are alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from json.encoder import encode_basestring_ascii
from math import isfinite
from typing import Any, TypeAlias

from floodmark.mill.class_closures import class_writer, getter
from floodmark.mill.encoding import Write

to_json = json.JSONEncoder(allow_nan=False).encode
Form: TypeAlias = "Callable[[tuple[Any, ...]], str]"
"""From the values of an element's fields to its text."""


def text_writer(cls: type) -> Write:
    """A function from an element of the class to its JSON text."""
    write_one = class_writer(cls)
    names = [field.name for field in fields(cls)]
    values_of = getter(names)
    forms: dict[tuple[type, ...], Form | None] = {}

    def write(element: object) -> str:
        values = values_of(element)
        types = tuple(map(type, values))
        if types not in forms:
            forms[types] = form_of(names, types)
        form = forms[types]
        return form(values) if form is not None else to_json(write_one(element))

    return write


def form_of(names: Sequence[str], types: Sequence[type]) -> Form | None:
    """How values of exactly these types are written, as Python's own json would; None if one of them is not plain."""
    if not all(each in PLAIN for each in types):
        return None
    template = "{" + ", ".join(to_json(name).replace("%", "%%") + ": %s" for name in names) + "}"
    floats = [place for place, each in enumerate(types) if each is float]
    others = [(place, OTHERS[each]) for place, each in enumerate(types) if each in OTHERS]

    def write(values: tuple[Any, ...]) -> str:
        for place in floats:
            if not isfinite(values[place]):
                raise ValueError(f"{values[place]} is no number that JSON knows")
        if not others:
            return template % values
        told = list(values)
        for place, text_of in others:
            told[place] = text_of(told[place])
        return template % tuple(told)

    return write


OTHERS: Mapping[type, Callable[[Any], str]] = {
    str: encode_basestring_ascii,
    bool: lambda value: "true" if value else "false",
    type(None): lambda _: "null",
}
"""Plain values that Python shows in another way than JSON does."""
PLAIN = frozenset({int, float, *OTHERS})

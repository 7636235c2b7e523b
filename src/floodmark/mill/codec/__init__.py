"""Elements between a stream and a process function: read and written by closures that are made once per class."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from functools import cached_property
from json.encoder import encode_basestring_ascii
from math import isfinite
from typing import Any, TypeAlias

from floodmark.errors import ConfigError, ElementInvalid
from floodmark.mill.codec.classes import (
    ReadAll,
    Write,
    class_reader,
    class_writer,
    columns_reader,
    getter,
    is_plain,
    plans_of,
)
from floodmark.mill.codec.reading import Read, Unfit
from floodmark.mill.codec.types import Hints, all_hints, column_check, mentions, remember, spark_schema
from floodmark.mill.join_tree import Stream, class_of, name_of

# Elements as JSON text: those of a class of plain values are kept as rows of values, and written many at a time.
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


Element: TypeAlias = Any
"""An instance of a user's dataclass."""
Deserializer: TypeAlias = "Callable[[dict[str, Any]], Element]"
Serializer: TypeAlias = "Callable[[Element], dict[str, Any]]"


@dataclass(frozen=True)
class Codec:
    """How elements of one stream are read and written; with a function of the user's own, only by that.

    Every method raises ElementInvalid without a position: the caller knows it.
    """

    stream: Stream
    deserializer: Deserializer | None = None
    serializer: Serializer | None = None
    is_for_columns: bool = False

    @property
    def cls(self) -> type:
        return class_of(self.stream)

    def parse(self, text: str) -> dict[str, Any]:
        """The JSON object of an element; numbers keep all their digits if the class has a Decimal."""
        try:
            raw = json.loads(text, parse_float=Decimal) if self._has_decimals else json.loads(text)
        except ValueError as error:
            raise self._invalid(f"it is no JSON: {error}") from error
        if type(raw) is not dict:
            raise self._invalid(f"it is {type(raw).__name__}, not an object")
        return raw

    def parse_all(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Many elements in one go, twice as fast; raises at the first bad one, of which `parse` then tells more."""
        raws = json.loads(f"[{','.join(texts)}]", parse_float=Decimal if self._has_decimals else None)
        if len(raws) != len(texts) or not set(map(type, raws)) <= {dict}:
            raise ValueError("not one object per text")
        return list(raws)

    def decode(self, raw: dict[str, Any]) -> Element:
        """The element that the process function gets."""
        try:
            return self._read(raw)
        except Unfit as unfit:
            raise self._invalid(unfit.reason, unfit.path.removeprefix(".")) from unfit
        except Exception as error:
            raise self._invalid(f"{type(error).__name__}: {error}") from error

    def from_texts(self, texts: Sequence[str]) -> list[Element]:
        """Many elements in one go, several times as fast; where that does not do, one by one.

        Raises whatever the first bad one raises: `from_text` then tells of it.
        """
        raws, read_all = self.parse_all(texts), self._read_all
        if read_all is not None:
            with suppress(Exception):  # one by one, the elements take their defaults, or tell what it was
                return read_all(raws)
        return [self.decode(raw) for raw in raws]

    def values(self, raw: dict[str, Any]) -> dict[str, Any]:
        """What expressions see: a dict with the types of the class, or as it came if the user reads it alone."""
        if self.deserializer:
            return raw
        try:
            found: dict[str, Any] = self._read_values(raw)
            return found
        except Unfit as unfit:
            raise self._invalid(unfit.reason, unfit.path.removeprefix(".")) from unfit

    def encode(self, element: Element) -> dict[str, Any]:
        """The element as JSON's own values, its fields in the order of the class."""
        try:
            written: dict[str, Any] = self._write(element)
            return written
        except Exception as error:
            raise self._unwritable(error) from error

    def from_text(self, text: str) -> Element:
        """The element of one JSON text."""
        return self.decode(self.parse(text))

    def values_from_text(self, text: str) -> dict[str, Any]:
        """What expressions see of one JSON text."""
        return self.values(self.parse(text))

    def values_from_texts(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """The same for many; raises at the first bad one, of which `values_from_text` then tells more."""
        return [self.values(raw) for raw in self.parse_all(texts)]

    def to_text(self, element: Element) -> str:
        """The element as it stands in a stream."""
        return self.texts([self.keep(element)])[0]

    def texts(self, kept: Sequence[Kept]) -> list[str]:
        """Elements of which `keep` has taken what is needed, as they stand in a stream."""
        try:
            return self._writing.texts(kept)
        except Exception as error:
            raise self._unwritable(error) from error

    @cached_property
    def keep(self) -> Callable[[Element], Kept]:
        """Takes of an element what `texts` needs: what happens to it later is not seen."""
        keep = self._writing.keep

        def kept(element: Element) -> Kept:
            try:
                return keep(element)
            except Exception as error:
                raise self._unwritable(error) from error

        return kept

    def for_columns(self) -> Codec:
        """The same for a sink with typed columns, where what they cannot hold exactly is refused.

        Raises ConfigError for a class that has no such columns.
        """
        if self.serializer is not None:
            raise ConfigError(
                f"{name_of(self.stream)} has a serializer, but its sink takes columns: the fields of the class.",
                hint="leave the serializer out, or send the class to a topic or a JSON file",
            )
        spark_schema(self.cls)
        return replace(self, is_for_columns=True)

    def check(self) -> None:
        """Raises ConfigError now, rather than at the first element, for a class that cannot be read."""
        _ = self._read if self.deserializer else (self._read, self._read_values)

    def check_output(self) -> None:
        """The same for a class that is written."""
        _ = self._writing

    def __reduce__(self) -> tuple[object, ...]:
        """The closures are made anew where the elements are; only the types of the fields have to come along."""
        made_of = (self.stream, self.deserializer, self.serializer, self.is_for_columns)
        return _arrived, (made_of, all_hints(self.cls))

    @cached_property
    def _read(self) -> Read:
        return self.deserializer or class_reader(self.cls)

    @cached_property
    def _read_all(self) -> ReadAll | None:
        if self.deserializer:
            return None
        return columns_reader(self.cls, plans_of(self.cls, class_reader))

    @cached_property
    def _read_values(self) -> Read:
        return class_reader(self.cls, as_dict=True)

    @cached_property
    def _write(self) -> Write:
        return self.serializer or class_writer(self.cls)

    @cached_property
    def _writing(self) -> Writing:
        serializer, check = self.serializer, column_check(self.cls) if self.is_for_columns else None
        if serializer is not None:
            return one_by_one(lambda element: to_json(serializer(element)))
        writing = writing_of(self.cls)
        return writing if check is None else replace(writing, keep=checked(check, writing.keep))

    @cached_property
    def _has_decimals(self) -> bool:
        return self.deserializer is None and mentions(self.cls, Decimal)

    def _unwritable(self, error: Exception) -> ElementInvalid:
        if isinstance(error, Unfit):
            return self._invalid(f"it cannot be written: {error.reason}", error.path.removeprefix("."))
        return self._invalid(f"it cannot be written: {type(error).__name__}: {error}")

    def _invalid(self, reason: str, field: str = "") -> ElementInvalid:
        return ElementInvalid(name_of(self.stream), field=field, reason=reason)


def _arrived(made_of: tuple[Any, ...], hints: dict[type, Hints]) -> Codec:
    remember(hints)
    return Codec(*made_of)


def checked(check: Callable[[Element], None], keep: Callable[[Element], Kept]) -> Callable[[Element], Kept]:
    """Looks at an element before it is kept."""

    def look_and_keep(element: Element) -> Kept:
        check(element)
        return keep(element)

    return look_and_keep

"""Elements between a stream and a process function: read and written by closures that are made once per class."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, TypeAlias

from floodmark.errors import ElementInvalid
from floodmark.mill.aliases import Stream, class_of, name_of
from floodmark.mill.class_closures import class_reader, class_writer, mentions, text_writer, to_json
from floodmark.mill.encoding import Write
from floodmark.mill.scalars import Read, Unfit

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
        if len(raws) != len(texts) or any(type(raw) is not dict for raw in raws):
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
            raise self._invalid(f"it cannot be written: {type(error).__name__}: {error}") from error

    def from_text(self, text: str) -> Element:
        """The element of one JSON text."""
        return self.decode(self.parse(text))

    def values_from_text(self, text: str) -> dict[str, Any]:
        """What expressions see of one JSON text."""
        return self.values(self.parse(text))

    def to_text(self, element: Element) -> str:
        """The element as it stands in a stream."""
        try:
            text: str = self._write_text(element)
            return text
        except Exception as error:
            raise self._invalid(f"it cannot be written: {type(error).__name__}: {error}") from error

    def check(self) -> None:
        """Raises ConfigError now, rather than at the first element, for a class that cannot be read."""
        _ = self._read if self.deserializer else (self._read, self._read_values)

    def check_output(self) -> None:
        """The same for a class that is written."""
        _ = self._write_text

    def __reduce__(self) -> tuple[object, ...]:
        """The closures are made anew where the elements are."""
        return Codec, (self.stream, self.deserializer, self.serializer)

    @cached_property
    def _read(self) -> Read:
        return self.deserializer or class_reader(self.cls)

    @cached_property
    def _read_values(self) -> Read:
        return class_reader(self.cls, as_dict=True)

    @cached_property
    def _write(self) -> Write:
        return self.serializer or class_writer(self.cls)

    @cached_property
    def _write_text(self) -> Write:
        """A class of plain values needs no dict on the way."""
        write = self.serializer
        return text_writer(self.cls) if write is None else lambda element: to_json(write(element))

    @cached_property
    def _has_decimals(self) -> bool:
        return self.deserializer is None and mentions(self.cls, Decimal)

    def _invalid(self, reason: str, field: str = "") -> ElementInvalid:
        return ElementInvalid(name_of(self.stream), field=field, reason=reason)

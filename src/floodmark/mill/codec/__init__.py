"""Elements between a stream and a process function: how a class is read from JSON text and written to it.

Written by hand: msgspec 0.22 reads three times as fast, but rounds the seventh digit of a second instead of cutting it,
reads no union of two classes, makes an element without its own `__init__`, and names a fault without its key and value;
pydantic 2.14 rounds a Decimal that is given as a number. Both write other bytes than Python's json, and neither gives
expressions a dict of typed values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, TypeAlias

from floodmark.errors import ConfigError, ElementInvalid
from floodmark.mill.codec.reading import (
    Read,
    ReadMany,
    class_reader,
    columns_reader,
    field_readers,
    object_reader,
)
from floodmark.mill.codec.types import KNOWN, Hints, UnfitValue, all_hints, column_check, mentions, spark_schema
from floodmark.mill.codec.writing import Snapshot, TextWriter, one_by_one, text_writer, to_json
from floodmark.mill.join_tree import Stream, class_of, name_of

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

    def from_text(self, text: str) -> Element:
        """The element of one JSON text, as the process function gets it."""
        return self.decode(self.parse(text))

    def from_texts(self, texts: Sequence[str]) -> list[Element]:
        """Many elements in one go, several times as fast; where that does not do, one by one.

        Raises whatever the first bad one raises: `from_text` then says more of it.
        """
        raws, read_many = self.parse_all(texts), self._read_many
        if read_many is not None:
            with suppress(Exception):  # one by one, the elements take their defaults, or say what it was
                return read_many(raws)
        return [self.decode(raw) for raw in raws]

    def values_from_text(self, text: str) -> dict[str, Any]:
        """What expressions see of one JSON text."""
        return self.values(self.parse(text))

    def texts(self, snapshots: Sequence[Snapshot]) -> list[str]:
        """Elements of which `snapshot` has taken what is needed, as they stand in a stream."""
        try:
            return self._writer.texts(snapshots)
        except Exception as error:
            raise self._unwritable(error) from error

    @cached_property
    def snapshot(self) -> Callable[[Element], Snapshot]:
        """Takes of an element what `texts` needs: what happens to it later is not seen."""
        take = self._writer.snapshot

        def snapshot(element: Element) -> Snapshot:
            try:
                return take(element)
            except Exception as error:
                raise self._unwritable(error) from error

        return snapshot

    def parse(self, text: str) -> dict[str, Any]:
        """The JSON object of an element; numbers keep all their digits if the class has a Decimal."""
        try:
            raw = json.loads(text, parse_float=self._parse_float)
        except (ValueError, RecursionError) as error:  # the second: lists in lists in lists
            raise self._invalid(f"it is no JSON: {error}") from error
        if type(raw) is not dict:
            raise self._invalid(f"it is {type(raw).__name__}, not an object")
        return raw

    def parse_all(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Many elements in one go, twice as fast; raises at the first bad one, of which `parse` then says more."""
        try:
            raws = json.loads(f"[{','.join(texts)}]", parse_float=self._parse_float)
        except RecursionError as error:
            raise ValueError(str(error)) from error
        if len(raws) != len(texts) or not set(map(type, raws)) <= {dict}:
            raise ValueError("not one object per text")
        return list(raws)

    def decode(self, raw: dict[str, Any]) -> Element:
        """The element of a JSON object."""
        try:
            return self._read(raw)
        except UnfitValue as fault:
            raise self._invalid(fault.reason, fault.path.removeprefix(".")) from fault
        except Exception as error:
            raise self._invalid(f"{type(error).__name__}: {error}") from error

    def values(self, raw: dict[str, Any]) -> dict[str, Any]:
        """What expressions see: a dict with the types of the class, or as it came if the user reads it alone."""
        if self.deserializer:
            return raw
        try:
            found: dict[str, Any] = self._read_values(raw)
            return found
        except UnfitValue as fault:
            raise self._invalid(fault.reason, fault.path.removeprefix(".")) from fault

    def values_reader(self, names: Collection[str]) -> Read:
        """The same of these fields only, whatever the others hold. Raises UnfitValue as it is."""
        if self.deserializer:
            return self.values
        readers = field_readers(self.cls, lambda inner: class_reader(inner, as_dict=True))
        return object_reader([reader for reader in readers if reader.name in names], dict)

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
        _ = self._writer

    def __reduce__(self) -> tuple[object, ...]:
        """The readers are made anew where the elements are; only the types of the fields have to come along."""
        made_of = (self.stream, self.deserializer, self.serializer, self.is_for_columns)
        return _rebuild, (made_of, all_hints(self.cls))

    @cached_property
    def _read(self) -> Read:
        return self.deserializer or class_reader(self.cls)

    @cached_property
    def _read_many(self) -> ReadMany | None:
        return None if self.deserializer else columns_reader(self.cls)

    @cached_property
    def _read_values(self) -> Read:
        return class_reader(self.cls, as_dict=True)

    @cached_property
    def _writer(self) -> TextWriter:
        serializer, check = self.serializer, column_check(self.cls) if self.is_for_columns else None
        if serializer is not None:
            return one_by_one(lambda element: to_json(serializer(element)))
        writer = text_writer(self.cls)
        return writer if check is None else replace(writer, snapshot=_checking(check, writer.snapshot))

    @cached_property
    def _parse_float(self) -> type[Decimal] | None:
        return Decimal if self.deserializer is None and mentions(self.cls, Decimal) else None

    def _unwritable(self, error: Exception) -> ElementInvalid:
        if isinstance(error, UnfitValue):
            return self._invalid(f"it cannot be written: {error.reason}", error.path.removeprefix("."))
        return self._invalid(f"it cannot be written: {type(error).__name__}: {error}")

    def _invalid(self, reason: str, field: str = "") -> ElementInvalid:
        return ElementInvalid(name_of(self.stream), field=field, reason=reason)


def _rebuild(made_of: tuple[Any, ...], hints: dict[type, Hints]) -> Codec:
    KNOWN.update(hints)
    return Codec(*made_of)


def _checking(
    check: Callable[[Element], None], snapshot: Callable[[Element], Snapshot]
) -> Callable[[Element], Snapshot]:
    def check_first(element: Element) -> Snapshot:
        check(element)
        return snapshot(element)

    return check_first

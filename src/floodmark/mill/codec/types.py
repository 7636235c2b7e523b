"""The types of a class's fields: what they are, which Spark column holds each, and what no column holds exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias, get_args, get_type_hints

from floodmark.errors import ConfigError
from floodmark.mill.expressions import fits_columns
from floodmark.spark.schemas import ClassColumns, type_name

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

Hints: TypeAlias = "dict[str, Any]"
KNOWN: dict[type, Hints] = {}
"""Hints that came along with a class: one of a script travels to the tasks as a value, and there the names in its
annotations mean nothing."""


class UnfitValue(Exception):
    """A value that does not fit; `path` grows on its way out of nested values."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason, self.path = reason, path

    def below(self, part: str) -> UnfitValue:
        """The same fault, seen from one level above."""
        return UnfitValue(self.reason, f"{part}{self.path}")


def unknown_type(hint: object) -> ConfigError:
    """The error for a type without a rule."""
    return ConfigError(
        f"{type_name(hint)} cannot be read from JSON or written to it.",
        hint="give WaterMill a deserializer (a serializer for output) for the class that has it",
    )


def hints_of(cls: type) -> Hints:
    """The types of a class's fields. Raises ConfigError if one is named that cannot be found."""
    if cls in KNOWN:
        return KNOWN[cls]
    try:
        return get_type_hints(cls)
    except NameError as error:
        raise ConfigError(
            f"the fields of {cls.__name__} cannot be understood: {error}.",
            hint="define the class, and what it names, at the top of a module",
        ) from error


def all_hints(cls: type) -> dict[type, Hints]:
    """The types of the fields of a class and of every dataclass inside it."""
    found: dict[type, Hints] = {}
    _collect(cls, found)
    return found


def _collect(hint: object, found: dict[type, Hints]) -> None:
    if isinstance(hint, type) and is_dataclass(hint) and hint not in found:
        found[hint] = hints_of(hint)
        for inner in found[hint].values():
            _collect(inner, found)
    for argument in get_args(hint):
        _collect(argument, found)


def mentions(cls: type, wanted: type) -> bool:
    """Whether a field of a class, or of one inside it, has the wanted type."""
    return any(_has(hint, wanted) for hints in all_hints(cls).values() for hint in hints.values())


def _has(hint: object, wanted: type) -> bool:
    return hint is wanted or any(_has(argument, wanted) for argument in get_args(hint))


def spark_schema(cls: type) -> StructType:
    """The fields of the class, in its order; every one may be null."""
    hint = "send this class to a topic or a JSON file, or give its field one plain type"
    return ClassColumns(hint, hints_of).schema(cls)


def struct_column(text: Column, cls: type) -> Column:
    """Elements given as JSON text, as structs with the types of the class; one that does not fit fails the task."""
    from pyspark.sql import functions as F

    return F.from_json(text, spark_schema(cls), {"mode": "FAILFAST"})


def column_check(cls: type) -> Callable[[object], None] | None:
    """A function that raises UnfitValue for an element that columns cannot hold; None where none is needed.

    Spark would round a Decimal, and shift a time without a zone, without a word.
    """
    return require_exact if mentions(cls, Decimal) or mentions(cls, datetime) else None


def require_exact(value: object) -> None:
    """Raises UnfitValue, with the path to the value."""
    if isinstance(value, Decimal) and not fits_columns(value):
        raise UnfitValue(f"{value} has more than 20 digits before the point, or 18 after it")
    if isinstance(value, datetime) and value.tzinfo is None:
        raise UnfitValue(f"{value.isoformat()} has no time zone, which a column of times needs")
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            _require_exact_below(getattr(value, field.name), f".{field.name}")
    elif isinstance(value, Mapping):
        for key, one in value.items():
            _require_exact_below(one, f"[{key!r}]")
    elif isinstance(value, list | tuple | set | frozenset):
        for place, one in enumerate(value):
            _require_exact_below(one, f"[{place}]")


def _require_exact_below(value: object, part: str) -> None:
    try:
        require_exact(value)
    except UnfitValue as unfit:
        raise unfit.below(part) from None

"""What typed columns can hold exactly: a value that a column would round, shift or drop is refused."""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from floodmark.errors import ConfigError
from floodmark.mill.codec.reading import Unfit, shown_type
from floodmark.mill.expressions import fits_columns

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType


# The types of a class's fields, found where the class was defined and taken along to where its elements are.
Hints: TypeAlias = "dict[str, Any]"
KNOWN: dict[type, Hints] = {}
"""A class of a script travels to the tasks as a value, and there the names in its annotations mean nothing."""


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


def remember(hints: Mapping[type, Hints]) -> None:
    """Take over what was found elsewhere."""
    KNOWN.update(hints)


def mentions(cls: type, wanted: type) -> bool:
    """Whether a field of a class, or of one inside it, has the wanted type."""
    fields = [hint for hints in all_hints(cls).values() for hint in hints.values()]
    return any(_has(hint, wanted) for hint in fields)


def _collect(hint: object, found: dict[type, Hints]) -> None:
    if isinstance(hint, type) and is_dataclass(hint) and hint not in found:
        found[hint] = hints_of(hint)
        for inner in found[hint].values():
            _collect(inner, found)
    for argument in get_args(hint):
        _collect(argument, found)


def _has(hint: object, wanted: type) -> bool:
    return hint is wanted or any(_has(argument, wanted) for argument in get_args(hint))


# The Spark types of a dataclass's fields: for keys that are read from JSON, and for output into typed columns.
Paths: TypeAlias = "Collection[tuple[str, ...]]"
"""Fields by the names that lead to them."""


def spark_schema(cls: type, *, only: Paths | None = None) -> StructType:
    """The fields of the class, or only those that lie on a path, in its order; every one may be null."""
    from pyspark.sql.types import StructField, StructType

    hints = hints_of(cls)
    names = [field.name for field in fields(cls) if only is None or any(path[0] == field.name for path in only)]
    inner = {name: _below(name, only) for name in names}
    types_of = {name: spark_type(hints[name], f"{cls.__name__}.{name}", only=inner[name]) for name in names}
    return StructType([StructField(name, found) for name, found in types_of.items()])


def typed(value: Column, cls: type) -> Column:
    """Elements given as JSON text, as structs with the types of the class; one that does not fit fails the task."""
    from pyspark.sql import functions as F

    return F.from_json(value, spark_schema(cls), {"mode": "FAILFAST"})


def _below(name: str, only: Paths | None) -> Paths | None:
    """What is asked of a field's own fields; None for all of them."""
    found = [path[1:] for path in only or () if path[0] == name]
    return found if found and all(found) else None


def spark_type(hint: object, where: str, only: Paths | None = None) -> DataType:
    """The type of a field. Raises ConfigError, naming the field, for one that a column cannot have."""
    from pyspark.sql import types as T

    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        rest = [arg for arg in args if arg is not type(None)]
        if len(rest) == 1:
            return spark_type(rest[0], where, only)
    if origin in (list, set, frozenset, Sequence) or (origin is tuple and args[-1] is Ellipsis):
        return T.ArrayType(spark_type(args[0], where))
    if origin in (dict, Mapping):
        return T.MapType(T.StringType(), spark_type(args[1], where))
    if origin is Literal:
        return spark_type(type(args[0]), where)
    if isinstance(hint, type) and origin is None:
        return _class_type(hint, where, only)
    raise _no_column(hint, where)


def _class_type(hint: type, where: str, only: Paths | None) -> DataType:
    from pyspark.sql import types as T

    scalars: Mapping[type, Callable[[], Any]] = {
        int: T.LongType,
        float: T.DoubleType,
        str: T.StringType,
        bool: T.BooleanType,
        Decimal: lambda: T.DecimalType(38, 18),
        date: T.DateType,
        datetime: T.TimestampType,
        UUID: T.StringType,
    }
    if hint in scalars:
        made: DataType = scalars[hint]()
        return made
    if issubclass(hint, Enum):
        return spark_type(type(next(iter(hint)).value), where)
    if is_dataclass(hint):
        return spark_schema(hint, only=only)
    raise _no_column(hint, where)


def _no_column(hint: object, where: str) -> ConfigError:
    return ConfigError(
        f"{where} is {shown_type(hint)}, which no column can hold.",
        hint="send this class to a topic or a JSON file, or give its field one plain type",
    )


def column_check(cls: type) -> Callable[[object], None] | None:
    """A function that raises Unfit for an element that columns cannot hold; None for a class that needs no check."""
    return require_exact if mentions(cls, Decimal) or mentions(cls, datetime) else None


def require_exact(value: object) -> None:
    """Raises Unfit, with the path to the value."""
    if isinstance(value, Decimal):
        _require_digits(value)
    elif isinstance(value, datetime):
        _require_zone(value)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            _require_below(getattr(value, field.name), f".{field.name}")
    elif isinstance(value, Mapping):
        for key, one in value.items():
            _require_below(one, f"[{key!r}]")
    elif isinstance(value, list | tuple | set | frozenset):
        for place, one in enumerate(value):
            _require_below(one, f"[{place}]")


def _require_below(value: object, part: str) -> None:
    try:
        require_exact(value)
    except Unfit as unfit:
        raise unfit.below(part) from None


def _require_digits(value: Decimal) -> None:
    if not fits_columns(value):
        raise Unfit(f"{value} has more than 20 digits before the point, or 18 after it")


def _require_zone(value: datetime) -> None:
    if value.tzinfo is None:
        raise Unfit(f"{value.isoformat()} has no time zone, which a column of times needs")

"""The Spark types of a dataclass's fields: for keys that are read from JSON, and for output into typed columns."""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Union, get_args, get_origin
from uuid import UUID

from floodmark.errors import ConfigError
from floodmark.mill.field_types import hints_of
from floodmark.mill.scalars import shown_type

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType


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

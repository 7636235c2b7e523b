"""The columns of a dataclass: which Spark type holds each of its fields."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from floodmark.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


@dataclass(frozen=True)
class ClassColumns:
    """Turns dataclasses into schemas. `hints_of` gives the types of a class's fields, `hint` says what to do instead.

    Bytes are columns only where values do not pass through JSON's text.
    """

    hint: str
    hints_of: Callable[[type], Mapping[str, Any]] = get_type_hints
    has_bytes: bool = False

    def schema(self, cls: type) -> StructType:
        """The fields of the class, in its order; every one may be null. Raises ConfigError for one without a type."""
        from pyspark.sql.types import StructField, StructType

        hints, names = self.hints_of(cls), [field.name for field in fields(cls)]
        return StructType([StructField(name, self._type(hints[name], f"{cls.__name__}.{name}")) for name in names])

    def _type(self, hint: object, where: str) -> DataType:
        from pyspark.sql import types as T

        origin, args = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            rest = [arg for arg in args if arg is not type(None)]
            if len(rest) == 1:
                return self._type(rest[0], where)
        if origin in (list, set, frozenset, Sequence) or (origin is tuple and args[-1] is Ellipsis):
            return T.ArrayType(self._type(args[0], where))
        if origin in (dict, Mapping):
            return T.MapType(T.StringType(), self._type(args[1], where))
        if origin is Literal:
            return self._type(type(args[0]), where)
        if isinstance(hint, type) and origin is None:
            return self._class_type(hint, where)
        raise self._no_column(hint, where)

    def _class_type(self, hint: type, where: str) -> DataType:
        from pyspark.sql import types as T

        scalars: dict[type, DataType] = {
            int: T.LongType(),
            float: T.DoubleType(),
            str: T.StringType(),
            bool: T.BooleanType(),
            Decimal: T.DecimalType(38, 18),
            date: T.DateType(),
            datetime: T.TimestampType(),
            UUID: T.StringType(),
            **({bytes: T.BinaryType()} if self.has_bytes else {}),
        }
        if hint in scalars:
            return scalars[hint]
        if issubclass(hint, Enum):
            return self._type(type(next(iter(hint)).value), where)
        if is_dataclass(hint):
            return self.schema(hint)
        raise self._no_column(hint, where)

    def _no_column(self, hint: object, where: str) -> ConfigError:
        return ConfigError(f"{where} is {type_name(hint)}, which no column can hold.", hint=self.hint)


def type_name(hint: object) -> str:
    """A type as its user wrote it."""
    return hint.__name__ if isinstance(hint, type) and not get_origin(hint) else str(hint).replace("typing.", "")

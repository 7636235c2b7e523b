"""Types of columns: those of a dataclass, those that hold what two versions of a table have, and how values compare."""

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
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType


EXACT_TIMES = {
    "timeZone": "UTC",  # a zone of the session may have offsets with seconds, which no pattern of an offset shows
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
EXACT_JSON = {**EXACT_TIMES, "ignoreNullFields": "false"}
"""Options with which `to_json` cuts nothing, and writes the same in every zone."""


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


def merged_type(found: DataType, held: DataType, fits: Callable[[DataType, DataType], bool]) -> DataType | None:
    """The held type with the fields that are new in it; None where it cannot hold what was found.

    Fields are known by their names, without case, in whatever order they stand.
    """
    from pyspark.sql import types as T

    if isinstance(found, T.StructType) and isinstance(held, T.StructType):
        theirs = {each.name.lower(): each for each in found.fields}
        merged = [
            merged_type(theirs[each.name.lower()].dataType, each.dataType, fits)
            if each.name.lower() in theirs
            else each.dataType
            for each in held.fields
        ]
        known = {each.name.lower() for each in held.fields}
        kept = [T.StructField(e.name, kind) for e, kind in zip(held.fields, merged, strict=True) if kind is not None]
        new = [each for each in found.fields if each.name.lower() not in known]
        return T.StructType([*kept, *new]) if None not in merged else None
    if isinstance(found, T.ArrayType) and isinstance(held, T.ArrayType):
        element = merged_type(found.elementType, held.elementType, fits)
        return T.ArrayType(element) if element is not None else None
    if isinstance(found, T.MapType) and isinstance(held, T.MapType):
        value = merged_type(found.valueType, held.valueType, fits)
        is_same_key = found.keyType.simpleString() == held.keyType.simpleString()
        return T.MapType(held.keyType, value) if value is not None and is_same_key else None
    return held if found.simpleString() == held.simpleString() or fits(found, held) else None


def align(column: Column, kind: DataType, wanted: DataType) -> Column:
    """A value in another version of its type: fields by name, one that it lacks is null."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if kind.simpleString() == wanted.simpleString():
        return column
    if isinstance(kind, StructType) and isinstance(wanted, StructType):
        known = {each.name.lower(): each for each in kind.fields}

        def field(name: str, to: DataType) -> Column:
            own = known.get(name.lower())
            return align(column[own.name], own.dataType, to) if own else F.lit(None).cast(to)

        fields = [field(each.name, each.dataType).alias(each.name) for each in wanted.fields]
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType) and isinstance(wanted, ArrayType):
        return F.transform(column, lambda each: align(each, kind.elementType, wanted.elementType))
    if isinstance(kind, MapType) and isinstance(wanted, MapType):
        return F.transform_values(column, lambda _, each: align(each, kind.valueType, wanted.valueType))
    return column.cast(wanted)


def new_fields(found: DataType, held: DataType, name: str) -> list[tuple[str, str]]:
    """The fields that are nested in a column and not in the held type, each by its whole name, with its type."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(found, StructType) and isinstance(held, StructType):
        known = {each.name.lower(): each.dataType for each in held.fields}
        listed = [
            new_fields(each.dataType, known[each.name.lower()], f"{name}.{each.name}")
            if each.name.lower() in known
            else [(f"{name}.{each.name}", each.dataType.simpleString())]
            for each in found.fields
        ]
        return [each for some in listed for each in some]
    if isinstance(found, ArrayType) and isinstance(held, ArrayType):
        return new_fields(found.elementType, held.elementType, f"{name}.element")
    if isinstance(found, MapType) and isinstance(held, MapType):
        return new_fields(found.valueType, held.valueType, f"{name}.value")
    return []


def comparable(column: Column, kind: DataType) -> Column:
    """The value, or one that Spark can compare, order and hash, and that differs whenever the value does.

    Entries of a map have no order, so they are sorted, wherever the map is; of a variant it is the text.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

    if isinstance(kind, MapType):
        entry = StructType().add("key", kind.keyType).add("value", kind.valueType)
        return F.array_sort(F.transform(F.map_entries(column), lambda each: comparable(each, entry)))
    if isinstance(kind, VariantType):
        return F.to_json(column)
    if is_comparable(kind):
        return column
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda each: comparable(each, kind.elementType))
    fields = [comparable(column[each.name], each.dataType).alias(each.name) for each in kind.fields]  # type: ignore[attr-defined]
    return F.when(column.isNotNull(), F.struct(*fields))


def is_comparable(kind: DataType) -> bool:
    """Whether Spark compares values of the type by itself."""
    from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

    if isinstance(kind, ArrayType):
        return is_comparable(kind.elementType)
    if isinstance(kind, StructType):
        return all(is_comparable(each.dataType) for each in kind.fields)
    return not isinstance(kind, MapType | VariantType)


def digest_of(values: Sequence[tuple[Column, DataType]]) -> Column:
    """64 bits over values and over where they are NULL, also inside of nested ones: Spark's own hash passes over NULL,
    and takes two values that change places with one for the same."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    parts = [
        F.to_json(F.struct(comparable(value, kind).alias("v")), EXACT_JSON)
        if isinstance(kind, ArrayType | MapType | StructType)
        else comparable(value, kind)
        for value, kind in values
    ]
    return F.xxhash64(F.lit(0), *parts, *(part.isNull() for part in parts))

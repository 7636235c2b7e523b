"""Comparing rows column by column, NULL being equal to NULL, also where Spark itself has no comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from floodmark.spark.delta_tables import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType


def state_of(schema: StructType, names: Sequence[str]) -> Column:
    """The named columns as one value; two such values are equal if every column is."""
    from pyspark.sql import functions as F

    parts = [comparable(F.col(quoted(name)), schema[name].dataType).alias(f"c{n}") for n, name in enumerate(names)]
    return F.struct(*parts) if parts else F.struct(F.lit(0).alias("c0"))


def comparable(column: Column, kind: DataType) -> Column:
    """The value itself, or for a type without an order one that has it and differs whenever the value does."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import MapType

    if isinstance(kind, MapType) and not _is_unordered(kind.valueType):
        return F.array_sort(F.map_entries(column))
    return F.to_json(F.struct(column.alias("v"))) if _is_unordered(kind) else column


def _is_unordered(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

    if isinstance(kind, MapType | VariantType):
        return True
    if isinstance(kind, ArrayType):
        return _is_unordered(kind.elementType)
    return isinstance(kind, StructType) and any(_is_unordered(field.dataType) for field in kind.fields)

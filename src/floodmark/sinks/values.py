"""How a value looks where a sink writes text: one exact form per type in JSON, CSV and a table for eyes.

A type that has no such form is refused by column and type before a row is read; a single value that has none stops the
write, by its column. What each sink writes for each type is in docs/values.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from floodmark.errors import ColumnUnfit, SinkFailed
from floodmark.locations import quote
from floodmark.spark.faults import fault_in, raise_in_plan
from floodmark.spark.schemas import EXACT_JSON, EXACT_TIMES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField

NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
TEXTS = ("string", "varchar", "char")
PLAIN = (*NUMBERS, *TEXTS, "boolean", "void", "date", "timestamp", "timestamp_ntz", "time")
INTERVALS = ("interval",)
JSON_ATOMS = (*PLAIN, *INTERVALS, "binary", "variant")
CSV_ATOMS = (*PLAIN, *INTERVALS, "binary")
KEYS = (*NUMBERS, *TEXTS, "boolean", "date", "timestamp_ntz", "time")
"""Keys of a map are text in JSON; of these Spark's own text is exact, whatever zone its session has."""
NESTED = ("struct", "array", "map", "variant")
AS_SPARK_TEXT = ("time", "interval")
"""Types that Spark's writers of files do not take: their text is the same as in `to_json`."""

UNKNOWN_TO_PARQUET = re.compile(r"time\(\d\)|interval")


def json_record(rows: DataFrame, names: Sequence[str], target: str = "JSON") -> Column:
    """A row as a JSON object with a field for each of the columns. Raises ColumnUnfit."""
    from pyspark.sql import functions as F

    fields = [rows.schema[name] for name in names]
    return F.to_json(F.struct(*(json_field(field, target) for field in fields)), EXACT_JSON)


def json_field(field: StructField, target: str = "JSON") -> Column:
    """A column as `to_json` and Spark's JSON files write it exactly, under its own name. Raises ColumnUnfit."""
    column, kind = checked_column(field), json_type(field.dataType)
    if kind is None:
        raise ColumnUnfit(target, column=field.name, type_name=field.dataType.simpleString())
    return (column if kind == field.dataType else column.cast(kind)).alias(field.name)


def json_text(column: Column, field: StructField, target: str = "JSON") -> Column:
    """A nested value, which the column gives, as JSON; the field says what it is called and its type."""
    from pyspark.sql import functions as F

    kind = json_type(field.dataType)
    if kind is None:
        raise ColumnUnfit(target, column=field.name, type_name=field.dataType.simpleString())
    whole = _checked(column, field)
    return F.to_json(whole if kind == field.dataType else whole.cast(kind), EXACT_JSON)


def exact_text(column: Column, kind: DataType) -> Column:
    """A value that is not nested as text: what CSV has, with moments in UTC whatever zone the session has."""
    from pyspark.sql import functions as F

    if base_name(kind) not in ("timestamp", "timestamp_ntz"):
        return column.cast("string")
    return F.when(column.isNotNull(), F.to_csv(F.struct(column.alias("value")), EXACT_TIMES))


def csv_field(field: StructField) -> Column:
    """A column as Spark's CSV files write it exactly; bytes are Base64, as in JSON. Raises ColumnUnfit."""
    from pyspark.sql import functions as F

    column, base = checked_column(field), base_name(field.dataType)
    if base not in CSV_ATOMS:
        hint = f"write it as JSON in the transform: to_json({field.name})"
        raise ColumnUnfit("CSV", column=field.name, type_name=field.dataType.simpleString(), hint=hint)
    if base == "binary":
        return F.base64(column).alias(field.name)
    # A decimal of many places is 1E-38 in Spark's CSV: right, and read by few; cast, it has all its digits.
    as_text = base in (*AS_SPARK_TEXT, "decimal", "void")
    return (column.cast("string") if as_text else column).alias(field.name)


def parquet_field(field: StructField) -> Column:
    """A column as it is, if Parquet holds its values. Raises ColumnUnfit."""
    from pyspark.sql import functions as F

    if any(UNKNOWN_TO_PARQUET.fullmatch(kind.simpleString()) for kind in leaves(field.dataType)):
        raise ColumnUnfit("Parquet", column=field.name, type_name=field.dataType.simpleString())
    return F.col(quote(field.name))


def line_field(field: StructField) -> Column:
    """A text that is a line of a file; one that is none stops the job. Raises ColumnUnfit."""
    from pyspark.sql import functions as F

    if base_name(field.dataType) not in TEXTS:
        raise ColumnUnfit("a file of lines", column=field.name, type_name=field.dataType.simpleString())
    column = F.col(quote(field.name))
    is_no_line = column.isNull() | column.contains("\n") | column.contains("\r")
    refusal = f"column '{field.name}' holds NULL or a line break, and a file of lines has neither; write jsonl"
    return F.when(is_no_line, raise_in_plan("sink", refusal)).otherwise(column).alias(field.name)


def leaves(kind: DataType) -> Iterator[DataType]:
    """The types within a nested one, and any other type itself."""
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        for field in kind.fields:
            yield from leaves(field.dataType)
    elif isinstance(kind, T.ArrayType):
        yield from leaves(kind.elementType)
    elif isinstance(kind, T.MapType):
        yield from (*leaves(kind.keyType), *leaves(kind.valueType))
    else:
        yield kind


def table_cell(field: StructField) -> Column:
    """A column for eyes: what JSON has, without its quotes; text that is no UTF-8 is shown as far as it goes."""
    from pyspark.sql import functions as F

    column, base = F.col(quote(field.name)), base_name(field.dataType)
    if base == "binary":
        text = F.base64(column)
    elif base in NESTED:
        text = json_text(column, field)
    else:
        text = exact_text(column, field.dataType)
    return F.coalesce(text, F.lit("NULL")).alias(field.name)


def json_type(kind: DataType) -> DataType | None:
    """The type whose values `to_json` writes exactly, with the same meaning; None if there is none."""
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        inner = [(field, json_type(field.dataType)) for field in kind.fields]
        known = [T.StructField(field.name, each, field.nullable) for field, each in inner if each is not None]
        return T.StructType(known) if len(known) == len(inner) else None
    if isinstance(kind, T.ArrayType):
        element = json_type(kind.elementType)
        return T.ArrayType(element, kind.containsNull) if element else None
    if isinstance(kind, T.MapType):
        value, key = json_type(kind.valueType), base_name(kind.keyType)
        return T.MapType(_key_type(kind.keyType), value, kind.valueContainsNull) if value and key in KEYS else None
    base = base_name(kind)
    if base not in JSON_ATOMS:
        return None
    return T.StringType() if base in AS_SPARK_TEXT and not _is_ansi_interval(kind) else kind


def checked_column(field: StructField) -> Column:
    """The column; a value that text cannot show stops the job, by the name of the column."""
    from pyspark.sql import functions as F

    return _checked(F.col(quote(field.name)), field)


@contextmanager
def refusals_of_values(job: str, sink: str) -> Iterator[None]:
    """A value that stopped the job (see `checked_column`) as an error of ours."""
    try:
        yield
    except Exception as error:
        refusal = fault_in(error, "sink")
        if refusal is None:
            raise
        raise SinkFailed(job, sink=sink, reason=refusal) from error


def base_name(kind: DataType) -> str:
    """The type without its precision: `decimal(10,2)` is a decimal, `interval day to second` an interval."""
    return kind.simpleString().split("(")[0].split("<")[0].split(" ")[0]


def _checked(column: Column, field: StructField) -> Column:
    from pyspark.sql import functions as F

    is_broken = has_broken_text(column, field.dataType)
    if is_broken is None:
        return column
    refusal = f"column '{field.name}' holds text that is not UTF-8; cast it to binary, or decode it in the transform"
    return F.when(is_broken, raise_in_plan("sink", refusal)).otherwise(column)


def has_broken_text(column: Column, kind: DataType) -> Column | None:
    """Whether a value is text that is no UTF-8, or has such text within; None where its type has no text.

    Spark keeps whatever bytes a text came with, and writers of text put a question mark in their place.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if base_name(kind) in TEXTS:
        return ~F.is_valid_utf8(column)
    if isinstance(kind, T.StructType):
        return _any_of([has_broken_text(column[field.name], field.dataType) for field in kind.fields])
    if isinstance(kind, T.ArrayType):
        return _has_broken_element(column, kind.elementType)
    if isinstance(kind, T.MapType):
        keys, values = F.map_keys(column), F.map_values(column)
        return _any_of([_has_broken_element(keys, kind.keyType), _has_broken_element(values, kind.valueType)])
    return None


def _has_broken_element(column: Column, kind: DataType) -> Column | None:
    from pyspark.sql import functions as F

    if not any(base_name(leaf) in TEXTS for leaf in leaves(kind)):
        return None
    return F.exists(column, lambda each: F.coalesce(has_broken_text(each, kind), F.lit(False)))  # type: ignore[arg-type]


def _any_of(conditions: Sequence[Column | None]) -> Column | None:
    """Whether one of them holds; one that is NULL does not."""
    from pyspark.sql import functions as F

    known = [F.coalesce(each, F.lit(False)) for each in conditions if each is not None]
    return reduce(or_, known) if known else None


def _key_type(kind: DataType) -> DataType:
    from pyspark.sql.types import StringType

    return kind if base_name(kind) in TEXTS else StringType()


def _is_ansi_interval(kind: DataType) -> bool:
    """Of those Spark's writers know all but the one without bounds."""
    return kind.simpleString().startswith("interval ")

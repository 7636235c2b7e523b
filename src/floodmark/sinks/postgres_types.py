"""Which PostgreSQL type holds a Spark type, how its values travel through COPY, and the way back."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from floodmark.spark.delta_tables import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructField

PLAIN = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "void": "text",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
    "binary": "bytea",
    "variant": "jsonb",
}
NESTED = ("struct", "array", "map")
NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
NOTE = "floodmark: "
"""Begins the comment of a column that we made and whose PostgreSQL type does not tell the Spark type."""


def postgres_type(kind: DataType) -> str | None:
    """The type of a column that we make; None if PostgreSQL has no place for such values."""
    name = kind.simpleString()
    if name.startswith("decimal"):
        return f"numeric{name.removeprefix('decimal')}"
    if name.startswith("time("):
        return "time without time zone"
    if name.startswith(("varchar", "char")):
        return "text"
    return "jsonb" if kind.typeName() in NESTED else PLAIN.get(name)


def note_of(kind: DataType) -> str | None:
    """What the column's comment has to say so that the drift check knows its Spark type again."""
    held = postgres_type(kind)
    is_told = (
        held is None or kind.simpleString() == "void" or spark_type(held, None).simpleString() == kind.simpleString()
    )
    return None if is_told else NOTE + kind.json()


def spark_type(postgres: str, comment: str | None) -> DataType:
    """The Spark type whose rows a column takes; anything that PostgreSQL parses from text takes strings."""
    from pyspark.sql import types as T

    if comment and comment.startswith(NOTE):
        one = {"name": "c", "type": json.loads(comment.removeprefix(NOTE)), "nullable": True, "metadata": {}}
        return T.StructType.fromJson({"type": "struct", "fields": [one]}).fields[0].dataType
    if postgres.startswith("numeric"):
        return _decimal(postgres)
    if postgres.startswith("timestamp"):
        return T.TimestampType() if postgres.endswith("with time zone") else T.TimestampNTZType()
    known = {"boolean": T.BooleanType, "smallint": T.ShortType, "integer": T.IntegerType, "bigint": T.LongType}
    more = {"real": T.FloatType, "double precision": T.DoubleType, "date": T.DateType, "bytea": T.BinaryType}
    return {**known, **more}.get(postgres, T.StringType)()


def _decimal(postgres: str) -> DataType:
    from pyspark.sql.types import DecimalType

    digits = NUMERIC.fullmatch(postgres)
    precision, scale = (int(digits[1]), int(digits[2])) if digits else (38, 18)
    return DecimalType(precision, scale) if precision <= 38 and scale <= precision else DecimalType(38, 18)


def held_as(field: StructField) -> str:
    """The Spark type that a value has on its way: what PostgreSQL keeps as text or JSON is text."""
    kind = field.dataType
    name = kind.simpleString()
    is_text = (
        kind.typeName() in (*NESTED, "variant") or name == "void" or name.startswith(("string", "varchar", "char"))
    )
    return "string" if is_text else name


def binary_column(field: StructField) -> Column:
    """The column as the binary format takes it; whatever Arrow holds as PostgreSQL does goes as it is."""
    from pyspark.sql import functions as F

    column = F.col(quoted(field.name))
    if field.dataType.typeName() in (*NESTED, "variant"):
        return F.to_json(column, {"ignoreNullFields": "false"}).alias(field.name)
    return column.cast("string").alias(field.name) if field.dataType.simpleString() == "void" else column


def text_column(field: StructField) -> Column:
    """The column as CSV takes it: what Arrow does not write as PostgreSQL reads it becomes text in Spark."""
    from pyspark.sql import functions as F

    column, name = F.col(quoted(field.name)), field.dataType.simpleString()
    if name == "binary":
        return F.concat(F.lit("\\x"), F.hex(column)).alias(field.name)
    return column.cast("string").alias(field.name) if name.startswith("time(") else binary_column(field)

"""Rows as JSON text with their schema beside it, as the quarantine and the dead letters keep them, and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from floodmark.rules.marks import JSON_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def as_text(record: Column) -> Column:
    """A struct as JSON, with every digit of its times; bytes become base64."""
    from pyspark.sql import functions as F

    return F.to_json(record, JSON_OPTIONS)


def parsed(rows: DataFrame, column: str, schema: str, *, beside: str) -> DataFrame:
    """The JSON of a column as columns, after the one that is named; a text that somebody edited wrongly stops it."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    shape = StructType.fromJson(json.loads(schema))
    row = F.from_json(F.col(column), shape, {**JSON_OPTIONS, "mode": "FAILFAST"})
    return rows.select(beside, row.alias("row")).select(beside, "row.*")

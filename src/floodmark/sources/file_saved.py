"""Lines of JSON that were saved as dead letters, parsed again by the schema of today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from floodmark.sources.contract import LETTER, Reading
from floodmark.sources.kafka_reading import PARSED, REASON, TEXT, is_not_the_object
from floodmark.sources.kafka_value import CORRUPT, Json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def saved_lines(saved: DataFrame, schema: str | StructType, options: Mapping[str, str]) -> Reading:
    """The objects of the lines; one that is none of this schema has a reason."""
    from pyspark.sql import functions as F

    lines = saved.select(LETTER, F.col("text").alias(TEXT))
    parsed = lines.withColumn(PARSED, Json(schema).parsed(F.col(TEXT), options))
    names = [name for name in parsed.select(f"{PARSED}.*").columns if name != CORRUPT]
    told = F.when(is_not_the_object(), "not a jsonl record of this schema").alias(REASON)
    rows = parsed.select(*(F.col(PARSED)[name].alias(name) for name in names), told, LETTER)
    return Reading(rows, F.col(REASON), hidden=(REASON,))

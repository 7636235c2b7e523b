"""Surrogate keys of dimensions: computed from what they stand for, so that a replay gives the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from floodmark.errors import KeysCollide
from floodmark.sinks.scd_versions import VALID_FROM
from floodmark.spark.delta_tables import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

UNKNOWN = -1
"""The member that stands for "not known": facts without a partner point to it. No computed key is negative."""


def surrogate_key(rows: DataFrame, columns: Sequence[str]) -> Column:
    """A whole number from 0 to 2^63 - 1 that depends on the values of these columns alone.

    Each value goes in with its place, so that NULL and an empty text, or two values that change places, differ.
    """
    from pyspark.sql import functions as F

    parts = [
        (F.lit(place), _told(F.col(quoted(name)), rows.schema[name].dataType)) for place, name in enumerate(columns)
    ]
    told = [part for place, value in parts for part in (place, value.isNull(), value)]
    return F.shiftrightunsigned(F.xxhash64(*told), 1)


def _told(value: Column, kind: DataType) -> Column:
    """As text, so that a wider type of the same value keeps its key; a moment as a number, so that no zone matters."""
    from pyspark.sql import functions as F

    return F.unix_micros(value).cast("string") if kind.simpleString() == "timestamp" else value.cast("string")


def with_key(rows: DataFrame, name: str, natural: Sequence[str], *, versions: bool = True) -> DataFrame:
    """The rows of a dimension with their surrogate key in front: of the natural key, and of `valid_from` if it has
    versions."""
    columns = (*natural, VALID_FROM) if versions else tuple(natural)
    return rows.select(surrogate_key(rows, columns).alias(name), *map(quoted, rows.columns))


def with_unknown(rows: DataFrame, name: str) -> DataFrame:
    """The dimension with the member for "not known": its key is -1, everything else is NULL."""
    return rows.unionByName(unknown_member(rows, name))


def unknown_member(rows: DataFrame, name: str) -> DataFrame:
    """That member alone, with the columns of these rows."""
    from pyspark.sql import functions as F

    columns = [F.lit(UNKNOWN).cast("long") if f.name == name else F.lit(None).cast(f.dataType) for f in rows.schema]
    named = [column.alias(f.name) for column, f in zip(columns, rows.schema, strict=True)]
    return rows.sparkSession.range(1).select(*named)


def require_distinct(rows: DataFrame, name: str) -> DataFrame:
    """The rows again, after a look that no key is there twice. Raises KeysCollide, which names one."""
    from pyspark.sql import functions as F

    twice = rows.groupBy(quoted(name)).agg(F.count(F.lit(1)).alias("n")).where("n > 1").limit(1).collect()
    if twice:
        raise KeysCollide(name, key=twice[0][0], rows=twice[0]["n"])
    return rows


def with_superseded(rows: DataFrame, held: DataFrame, name: str, natural: Sequence[str]) -> DataFrame:
    """The dimension under `freeze`: a version that is no longer so keeps its row, and points to its successor.

    `held` is the dimension as it was, with its `successor` column from the second time on. A late event moves the
    start of a version and so its key; facts that were built before still have the old one.
    """
    from pyspark.sql import functions as F

    now = rows.withColumn("successor", F.lit(None).cast("long"))
    old = held.join(rows.select(quoted(name)), [name], "left_anti").where(F.col(quoted(name)) != UNKNOWN)
    heirs = rows.select(
        F.col(quoted(name)).alias("_fm_heir"),
        *(F.col(quoted(column)).alias(f"_fm_{place}") for place, column in enumerate(natural)),
        F.col(VALID_FROM).alias("_fm_from"),
        F.col("valid_to").alias("_fm_to"),
    )
    same = F.lit(True)
    for place, column in enumerate(natural):
        same = same & (F.col(quoted(column)) == F.col(f"_fm_{place}"))
    covers = (F.col("_fm_from") <= F.col(VALID_FROM)) & (
        F.col("_fm_to").isNull() | (F.col(VALID_FROM) < F.col("_fm_to"))
    )
    pointed = old.drop("successor").join(heirs, same & covers, "left")
    kept = pointed.withColumns({"successor": F.col("_fm_heir"), "is_current": F.lit(False)})
    return now.unionByName(kept.select(*map(quoted, now.columns)))

"""Two tables held against each other by key: which rows one lacks, which it has too many, and which differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from floodmark.sinks.own_columns import written_columns
from floodmark.spark.delta_tables import quoted
from floodmark.step.outside import GONE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ORDER, DIGEST, WHAT, COLUMNS = "_fm_order", "_fm_digest", "_fm_what", "_fm_columns"
MISSING, EXTRA, DIFFERENT = "missing", "extra", "different"
MOST_LITERALS = 500
"""So many keys go into a query as they are, where an index can find them; more are joined."""


@dataclass(frozen=True)
class Side:
    """Rows of one side. `order` says which of two rows of a key is newer; rows for which `gone` holds delete theirs."""

    rows: DataFrame
    key: tuple[str, ...]
    order: Column
    columns: tuple[str, ...]
    gone: Column

    def narrow(self) -> DataFrame:
        """One row per key: the key, and a digest of all columns that are compared."""
        from pyspark.sql import functions as F

        slim = self.rows.select(
            *map(quoted, self.key), self.order.alias(ORDER), digest(self).alias(DIGEST), self.gone.alias(GONE)
        )
        newest = F.max_by(F.struct(DIGEST, GONE), ORDER).alias("newest")
        return slim.groupBy(*map(quoted, self.key)).agg(newest).where(f"NOT newest.{GONE}")

    def whole(self) -> DataFrame:
        """One row per key, with its columns in a struct."""
        from pyspark.sql import functions as F

        row = F.struct(*map(quoted, written_columns(self.rows)))
        slim = self.rows.select(
            *map(quoted, self.key), self.order.alias(ORDER), row.alias("row"), self.gone.alias(GONE)
        )
        newest = F.max_by(F.struct("row", GONE), ORDER).alias("newest")
        kept = slim.groupBy(*map(quoted, self.key)).agg(newest).where(f"NOT newest.{GONE}")
        return kept.select(*map(quoted, self.key), "newest.row")

    def only(self, keys: DataFrame, count: int) -> Side:
        """The rows of these keys."""
        return replace(self, rows=matching(self.rows, self.key, keys, count))


def digest(side: Side) -> Column:
    """64 bits over the columns and over which of them are NULL: NULL alone leaves such a hash as it was."""
    from pyspark.sql import functions as F

    kinds = {name.lower(): kind for name, kind in side.rows.dtypes}
    values = [
        F.to_json(quoted(name)) if "map<" in kinds[name.lower()] else F.col(quoted(name)) for name in side.columns
    ]
    return F.xxhash64(F.lit(0), *values, *(value.isNull() for value in values))


def differing_keys(source: Side, sink: Side) -> tuple[dict[str, int], DataFrame]:
    """How many keys agree and how many do not, and those that do not."""
    from pyspark.sql import functions as F

    left = source.narrow().select(*map(quoted, source.key), F.col(f"newest.{DIGEST}").alias("ours"))
    right = sink.narrow().select(*map(quoted, source.key), F.col(f"newest.{DIGEST}").alias("theirs"))
    joined = left.join(right, list(source.key), "full_outer").withColumn(
        WHAT,
        F.when(F.col("theirs").isNull(), MISSING)
        .when(F.col("ours").isNull(), EXTRA)
        .when(F.col("ours") != F.col("theirs"), DIFFERENT)
        .otherwise("same"),
    )
    counts = {row[WHAT]: row["count"] for row in joined.groupBy(WHAT).count().collect()}
    return counts, joined.where(f"{WHAT} <> 'same'").select(*map(quoted, source.key))


def differences(source: Side, sink: Side) -> DataFrame:
    """The differing rows as they should be: all columns of the source, or the key alone where the row has to go.

    Beside them what was wrong, and in which columns.
    """
    from pyspark.sql import functions as F

    key = source.key
    left = source.whole().withColumnRenamed("row", "ours")
    right = sink.whole().withColumnRenamed("row", "theirs")
    ours, theirs = F.col("ours"), F.col("theirs")
    unlike = F.array_compact(
        F.array(*(F.when(~same(ours[n], theirs[n], source, n), F.lit(n)) for n in source.columns if n not in key))
    )
    what = F.when(theirs.isNull(), MISSING).when(ours.isNull(), EXTRA).when(F.size(unlike) > 0, DIFFERENT)
    joined = left.join(right, list(key), "full_outer").withColumn(WHAT, what).where(f"{WHAT} IS NOT NULL")
    others = [ours[name].alias(name) for name in written_columns(source.rows) if name not in key]
    columns = F.when(F.col(WHAT) == DIFFERENT, unlike).otherwise(F.array().cast("array<string>"))
    return joined.select(*map(quoted, key), *others, WHAT, ours.isNull().alias(GONE), columns.alias(COLUMNS))


def same(one: Column, other: Column, side: Side, name: str) -> Column:
    """Whether two values agree; maps cannot be compared as they are."""
    from pyspark.sql import functions as F

    if "map<" in dict(side.rows.dtypes)[name]:
        return F.to_json(one).eqNullSafe(F.to_json(other))
    return one.eqNullSafe(other)


def matching(rows: DataFrame, key: Sequence[str], keys: DataFrame, count: int) -> DataFrame:
    """The rows of these keys; a few are named in the query itself, so that a database finds them by its index."""
    if count > MOST_LITERALS:
        return rows.join(keys, list(key), "left_semi")
    return rows.where(one_of(key, [tuple(row) for row in keys.collect()]))


def one_of(key: Sequence[str], values: Sequence[tuple[Any, ...]]) -> Column:
    """The condition for rows with one of these keys."""
    from pyspark.sql import functions as F

    if len(key) == 1:
        return F.col(quoted(key[0])).isin([value for (value,) in values])
    each = [
        reduce(lambda a, b: a & b, [F.col(quoted(n)) == v for n, v in zip(key, value, strict=True)]) for value in values
    ]
    return halved(each) if each else F.lit(False)


def halved(conditions: Sequence[Column]) -> Column:
    """Any of them, as a tree that is as flat as can be: a long chain would be too deep for Spark."""
    if len(conditions) == 1:
        return conditions[0]
    middle = len(conditions) // 2
    return halved(conditions[:middle]) | halved(conditions[middle:])

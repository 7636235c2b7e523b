"""Joining rows to the version that was valid at their moment: of a dimension, or of a price."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from floodmark.medallion.keys import UNKNOWN
from floodmark.sinks.scd_versions import VALID_FROM, VALID_TO
from floodmark.spark.delta_tables import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def asof(
    facts: DataFrame, versions: DataFrame, *, on: Mapping[str, str], at: str, take: Mapping[str, str]
) -> DataFrame:
    """Each fact once, with columns of the version that was valid at `at`: from its start on, up to before its end.

    `on` pairs the facts' columns with the versions'; `take` names the versions' columns and what they are called
    here. A fact without a partner is kept, with NULL.
    """
    return facts.join(_partners(versions, on, take), _valid(on, at), "left").select(
        *map(quoted, facts.columns), *map(quoted, take.values())
    )


def asof_key(facts: DataFrame, dimension: DataFrame, *, on: Mapping[str, str], at: str, key: str) -> DataFrame:
    """Each fact once, with the surrogate key of the version that was valid at `at`, or that of the unknown member."""
    from pyspark.sql import functions as F

    joined = asof(facts, dimension, on=on, at=at, take={key: key})
    return joined.withColumn(key, F.coalesce(F.col(quoted(key)), F.lit(UNKNOWN)))


def _partners(versions: DataFrame, on: Mapping[str, str], take: Mapping[str, str]) -> DataFrame:
    """The versions under names that no fact has."""
    from pyspark.sql import functions as F

    joined = [F.col(quoted(theirs)).alias(f"_fm_on_{place}") for place, theirs in enumerate(on.values())]
    taken = [F.col(quoted(theirs)).alias(ours) for theirs, ours in take.items()]
    return versions.select(*joined, F.col(VALID_FROM).alias("_fm_from"), F.col(VALID_TO).alias("_fm_to"), *taken)


def _valid(on: Mapping[str, str], at: str) -> Column:
    from pyspark.sql import functions as F

    moment = F.col(quoted(at))
    same = [F.col(quoted(ours)) == F.col(f"_fm_on_{place}") for place, ours in enumerate(on)]
    open_end = F.col("_fm_to").isNull() | (moment < F.col("_fm_to"))
    return reduce(and_, same) & (moment >= F.col("_fm_from")) & open_end

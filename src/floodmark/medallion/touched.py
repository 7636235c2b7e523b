"""Which dates of a fact a batch touches: of the rows that changed, and of the rows whose partner changed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from floodmark.medallion.dates import DATE_SK
from floodmark.medallion.fact_inputs import FactRows, Lookup
from floodmark.sinks.scd_compare import state_of
from floodmark.sinks.scd_versions import INTERVAL, VALID_FROM, VALID_TO
from floodmark.sources.delta import CHANGE, TIME, VERSION
from floodmark.spark.delta_tables import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SIGN, PAYLOAD = "_fm_sign", "_fm_payload"


def signed(feed: DataFrame, *own: Column) -> DataFrame:
    """Each change of a feed as its state, -1 or 1 for taken away or put there, and columns of one's own."""
    from pyspark.sql import functions as F

    sign = F.when(F.col(CHANGE).isin("delete", "update_preimage"), -1).otherwise(1)
    return feed.select(*own, state_of(feed.schema, _columns(feed)).alias("s"), sign.alias("n"))


def net_changes(feed: DataFrame) -> DataFrame:
    """Rows that the span took away (SIGN below 0) or put there; what was taken and put back as it was is neither."""
    from pyspark.sql import functions as F

    told = signed(feed, F.struct(*map(quoted, _columns(feed))).alias("_fm_row"))
    # Some row of those that are equal stands for all of them.
    netted = told.groupBy("s").agg(F.sum("n").alias(SIGN), F.max_by("_fm_row", "n").alias("_fm_row"))
    return netted.where(f"{SIGN} <> 0").select("_fm_row.*", SIGN)


def dates_in(rows: DataFrame, named: FactRows) -> DataFrame:
    """The date of every row."""
    return rows.select(_date(named))


def dates_of_rows(feed: DataFrame, rows: FactRows) -> DataFrame:
    """Dates of the old and of the new image of every row that changed: a row that moved touches two."""
    from pyspark.sql import functions as F

    # Of the rows only the date is asked for, so nothing has to be sorted: a sum by hash is enough.
    netted = signed(feed, _date(rows)).groupBy(DATE_SK, "s").agg(F.sum("n").alias(SIGN))
    return netted.where(f"{SIGN} <> 0").select(DATE_SK)


def dates_of_partners(feed: DataFrame, lookup: Lookup, rows: FactRows, whole: DataFrame) -> DataFrame:
    """Dates of rows whose partner says something else now; a version that only ended earlier than before says the same
    to rows inside of it."""
    from pyspark.sql import functions as F

    moved = net_changes(feed)
    payload = _payload(moved.columns, lookup)
    own = [*lookup.on, *((lookup.at,) if lookup.at else ())]
    seen = whole.select(_date(rows), *map(quoted, own)).distinct()
    old = _partner(moved.where(f"{SIGN} < 0"), lookup, payload, "old")
    new = _partner(moved.where(f"{SIGN} > 0"), lookup, payload, "new")
    both = seen.join(old, _matches(lookup, "old"), "left").join(new, _matches(lookup, "new"), "left")
    differs = ~F.col(f"{PAYLOAD}_old").eqNullSafe(F.col(f"{PAYLOAD}_new"))
    return both.where(differs).select(DATE_SK)


def _columns(feed: DataFrame) -> list[str]:
    return [name for name in feed.columns if name not in (CHANGE, VERSION, TIME)]


def _date(rows: FactRows) -> Column:
    from pyspark.sql import functions as F

    return F.col(quoted(rows.date)).cast("int").alias(DATE_SK)


def _payload(columns: Sequence[str], lookup: Lookup) -> list[str]:
    return list(lookup.columns) or [name for name in columns if name not in (*INTERVAL, SIGN)]


def _partner(moved: DataFrame, lookup: Lookup, payload: Sequence[str], image: str) -> DataFrame:
    from pyspark.sql import functions as F

    keys = [F.col(quoted(theirs)).alias(f"_fm_{image}_{place}") for place, theirs in enumerate(lookup.on.values())]
    ends = [F.col(end).alias(f"_fm_{image}_{end}") for end in (VALID_FROM, VALID_TO)] if lookup.at else []
    return moved.select(*keys, *ends, state_of(moved.schema, payload).alias(f"{PAYLOAD}_{image}"))


def _matches(lookup: Lookup, image: str) -> Column:
    from pyspark.sql import functions as F

    same = [F.col(quoted(ours)) == F.col(f"_fm_{image}_{place}") for place, ours in enumerate(lookup.on)]
    if lookup.at is None:
        return reduce(and_, same)
    moment, begin, end = F.col(quoted(lookup.at)), F.col(f"_fm_{image}_{VALID_FROM}"), F.col(f"_fm_{image}_{VALID_TO}")
    return reduce(and_, same) & (moment >= begin) & (end.isNull() | (moment < end))

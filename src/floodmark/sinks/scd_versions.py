"""From the events that count to the rows of the table: versions with their intervals, or the latest row alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from floodmark.sinks.scd_compare import state_of
from floodmark.sinks.scd_events import DELETE, DELETED, SINCE, Ordering
from floodmark.spark.delta_tables import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
INTERVAL = (VALID_FROM, VALID_TO, IS_CURRENT)
RUN, ROW = "_fm_run", "_fm_row"


def versions(events: DataFrame, order: Ordering) -> DataFrame:
    """Each version of each key, with the moment it begins and the one it ends; a delete ends one and begins none."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    in_order = Window.partitionBy(*map(quoted, order.key)).orderBy(VALID_FROM)
    ended = runs(events, order).withColumn(VALID_TO, F.lead(VALID_FROM).over(in_order)).where(f"NOT {ROW}.{DELETED}")
    own = [F.col(f"{ROW}.{quoted(name)}").alias(name) for name in order.payload(events.columns)]
    return ended.select(*own, VALID_FROM, VALID_TO, F.col(VALID_TO).isNull().alias(IS_CURRENT))


def runs(events: DataFrame, order: Ordering) -> DataFrame:
    """Events of a key that follow each other and say the same, as one: VALID_FROM, and the last of them as ROW.

    So columns that are not tracked have the value of the last event.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    moment, in_order = quoted(order.moment), Window.partitionBy(*map(quoted, order.key)).orderBy(quoted(order.moment))
    # A deleted key has no values, so two deletes in a row are one state.
    state = F.struct(DELETED, F.when(~F.col(DELETED), order.state(events.schema)).alias("values"))
    begins = (~F.lag(state).over(in_order).eqNullSafe(state)).cast("int").alias("_fm_begins")
    numbered = events.select("*", begins).select("*", F.sum("_fm_begins").over(in_order).alias(RUN))
    told = numbered.groupBy(*map(quoted, order.key), RUN).agg(
        F.min(F.coalesce(F.col(SINCE), F.col(moment))).alias(VALID_FROM),
        F.min_by(F.coalesce(F.col(SINCE), F.col(quoted(order.first_from or order.moment))), moment).alias("_fm_first"),
        F.max_by(F.struct(*map(quoted, events.columns)), moment).alias(ROW),
    )
    # A creation time behind the first change is not believed, and a deleted key has not begun.
    begins_early = (F.col(RUN) == 1) & ~F.col(f"{ROW}.{DELETED}")
    early = F.least(F.col("_fm_first").cast(events.schema[order.moment].dataType), F.col(VALID_FROM))
    return told.withColumn(VALID_FROM, F.when(begins_early, early).otherwise(F.col(VALID_FROM)))


def latest(events: DataFrame, order: Ordering) -> DataFrame:
    """The last row of each key, if its last event did not delete it."""
    from pyspark.sql import functions as F

    payload = order.payload(events.columns)
    row = F.max_by(F.struct(DELETED, *map(quoted, payload)), quoted(order.moment)).alias("_fm_row")
    last = events.groupBy(*map(quoted, order.key)).agg(row).where(f"NOT _fm_row.{DELETED}")
    return last.select(*(F.col(f"_fm_row.{quoted(name)}").alias(name) for name in payload))


def changes(new: DataFrame, old: DataFrame, identity: Sequence[str]) -> DataFrame:
    """What has to be done to `old` to make it `new`: rows to put, and with DELETE, rows to take out."""
    from pyspark.sql import functions as F

    columns = new.columns
    filled = old.select(*(_column(old, name, new.schema[name].dataType.simpleString()) for name in columns))
    put = new.select(
        *(F.col(quoted(name)).alias(f"_fm_id{n}") for n, name in enumerate(identity)),
        F.struct(*map(quoted, columns)).alias("_fm_new"),
        state_of(new.schema, columns).alias("_fm_new_state"),
    )
    held = filled.select(
        *(F.col(quoted(name)).alias(f"_fm_id{n}") for n, name in enumerate(identity)),
        F.struct(*map(quoted, columns)).alias("_fm_old"),
        state_of(filled.schema, columns).alias("_fm_old_state"),
    )
    both = put.join(held, [f"_fm_id{n}" for n, _ in enumerate(identity)], "full_outer")
    differing = both.where(~F.col("_fm_new_state").eqNullSafe(F.col("_fm_old_state")))
    row = F.coalesce("_fm_new", "_fm_old").alias("_fm_row")
    return differing.select(row, F.col("_fm_new").isNull().alias(DELETE)).select("_fm_row.*", DELETE)


def _column(rows: DataFrame, name: str, kind: str) -> Column:
    """A column that the table does not have yet reads as NULL."""
    from pyspark.sql import functions as F

    return F.col(quoted(name)) if name in rows.columns else F.lit(None).cast(kind).alias(name)

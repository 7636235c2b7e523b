"""Deciding between events that contradict each other, which `on_conflict: quarantine` only put aside."""

from __future__ import annotations

import uuid
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.sinks.contract import Recorded
from floodmark.sinks.scd_compare import state_of
from floodmark.sinks.scd_events import DELETED, REFUSED, Ordering, contradicting
from floodmark.spark.delta_tables import DeltaPlace, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.sinks.scd_keeping import Keeping

SETTLED = "floodmark.settle"
"""The ledger under which a table counts how often it was settled."""
SET_ASIDE = "set aside: another event of the same key and sequence was chosen"


def settle_log(keeping: Keeping, spark: SparkSession, keep: str) -> int:
    """Of events that contradict each other leave those for which the SQL holds; returns how many were set aside.

    Where it holds for none, nothing is decided. Two commits, to the log and to the table; after a crash between them
    the same call finishes, since every key that was ever settled is compared again.
    """
    events = keeping.log.accepted(spark)
    if events is None or keeping.order.ties != "quarantine":
        raise ConfigError(
            f"{keeping.log.sink.describe()} has nothing to decide between.",
            hint="only with `on_conflict: quarantine` are contradicting events kept",
        )
    decided = _decided(events, keeping.order, keep)
    with keeping.log.sink.alone(spark, SETTLED):
        settled = _set_aside(keeping, decided, keep)
    _rebuild(keeping, spark)
    return settled


def refused_again(arriving: DataFrame, log: DataFrame, order: Ordering) -> DataFrame:
    """The arriving events; one that was set aside before and comes once more stays so."""
    from pyspark.sql import functions as F

    same = (*order.key, *order.sequence)
    tracked = [name for name in order.tracked(log.columns) if name in arriving.columns]
    aside = log.where(f"{REFUSED} = '{SET_ASIDE}'").select(
        *(F.col(quoted(name)).alias(f"_fm_{place}") for place, name in enumerate(same)),
        state_of(log.schema, tracked).alias("_fm_state"),
    )
    alike = [F.col(quoted(name)) == F.col(f"_fm_{place}") for place, name in enumerate(same)]
    is_it = reduce(and_, alike) & state_of(arriving.schema, tracked).eqNullSafe(F.col("_fm_state")) & ~F.col(DELETED)
    met = arriving.join(F.broadcast(aside.distinct()), is_it, "left")
    reason = F.coalesce(REFUSED, F.when(F.col("_fm_state").isNotNull(), F.lit(SET_ASIDE)))
    return met.withColumn(REFUSED, reason).select(*map(quoted, arriving.columns))


def _decided(events: DataFrame, order: Ordering, keep: str) -> DataFrame:
    """Key and sequence, under names of our own, of contradictions in which some event is kept and some is not."""
    from pyspark.sql import functions as F

    named = {f"_fm_{place}": name for place, name in enumerate((*order.key, *order.sequence))}
    told = contradicting(events, order).withColumn("_fm_keep", F.coalesce(F.expr(keep), F.lit(False)))
    own = [F.col(quoted(name)).alias(ours) for ours, name in named.items()]
    found = told.select(*own, "_fm_keep").groupBy(*named).agg(F.max("_fm_keep").alias("_fm_kept"))
    return found.where("_fm_kept").drop("_fm_kept")


def _set_aside(keeping: Keeping, decided: DataFrame, keep: str) -> int:
    order, spark = keeping.order, decided.sparkSession
    place = DeltaPlace(keeping.log.sink.path, keeping.log.sink.table)
    same = (f"t.{quoted(name)} = s._fm_{n}" for n, name in enumerate((*order.key, *order.sequence)))
    decided.createOrReplaceTempView(view := f"fm_settle_{uuid.uuid4().hex}")
    try:
        done = spark.sql(
            f"MERGE INTO {place.sql} AS t USING {view} AS s ON {' AND '.join(same)}"
            f" WHEN MATCHED AND t.{REFUSED} IS NULL AND NOT coalesce(({keep}), false)"
            f" THEN UPDATE SET {REFUSED} = '{SET_ASIDE}'"
        ).collect()
    finally:
        spark.catalog.dropTempView(view)
    return int(done[0]["num_updated_rows"])


def _rebuild(keeping: Keeping, spark: SparkSession) -> None:
    every, held = keeping.log.read(spark), keeping.table.read(spark)
    if every is None or held is None:
        return
    from floodmark.sinks.scd_keeping import Pending

    keys = every.where(f"{REFUSED} = '{SET_ASIDE}'").select(*map(quoted, keeping.order.key)).distinct()
    number = keeping.table.number(SETTLED, lambda: spark) + 1
    batch = Pending.of(SETTLED, Recorded(number, None))
    keeping.rebuild_keys(keys, every.where(f"{REFUSED} IS NULL"), held, batch)

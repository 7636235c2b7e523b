"""Pruning the log of a table with history: what was open at the floor becomes the first event of its key."""

from __future__ import annotations

from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, TypeAlias

from floodmark.errors import ConfigError
from floodmark.probes.delta_commit import note
from floodmark.sinks.scd_events import FLOOR, REFUSED, SINCE
from floodmark.sinks.scd_keeping import Keeping
from floodmark.sinks.scd_tables import PRUNED
from floodmark.sinks.scd_versions import ROW, RUN, VALID_FROM, runs
from floodmark.spark.delta_tables import DeltaPlace, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Moment: TypeAlias = datetime | date | int | str


def prune_log(keeping: Keeping, spark: SparkSession, before: Moment) -> int:
    """Exchange all events below the moment for one per key, in one commit; returns how many events were dropped.

    Done twice it changes nothing the second time: the event that is left is again the last below the floor.
    """
    log = keeping.log
    every = log.read(spark)
    if every is None:
        raise ConfigError(f"{log.sink.describe()} does not exist.", hint="run the job first")
    floor = literal(before, every.schema[keeping.order.moment].dataType.simpleString())
    is_below = f"{quoted(keeping.order.moment)} < {floor}"
    below = every.where(is_below)
    with log.sink.alone(spark, PRUNED):
        held, left = below.count(), first_events(keeping, below, floor)
        before_now = log.sink.recorded(PRUNED, lambda: spark)
        number = before_now.number + 1 if before_now else 1
        writer = left.write.format("delta").mode("overwrite").option("replaceWhere", is_below)
        writer = writer.option("txnAppId", PRUNED).option("txnVersion", str(number))
        writer = writer.option("userMetadata", note(PRUNED, number, None, before=str(before)))
        writer.save(DeltaPlace(log.sink.path, log.sink.table).location(lambda: spark))
    now = log.read(spark)
    return held - now.where(is_below).count() if now is not None else held


def first_events(keeping: Keeping, below: DataFrame, floor: str) -> DataFrame:
    """The last event of each key below the floor, with the start of its version; what was refused stays."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = keeping.order
    told = runs(keeping.counting(below.where(f"{REFUSED} IS NULL")), order)
    newest = Window.partitionBy(*map(quoted, order.key)).orderBy(F.col(RUN).desc())
    last = told.withColumn("_fm_rank", F.row_number().over(newest)).where("_fm_rank = 1")
    own = [name for name in below.columns if name not in (FLOOR, SINCE)]
    first = last.select(
        *(F.col(f"{ROW}.{quoted(name)}").alias(name) for name in own),
        F.expr(floor).alias(FLOOR),
        F.col(VALID_FROM).alias(SINCE),
    )
    return first.unionByName(keeping.refused_among(below)).select(*map(quoted, below.columns))


def literal(moment: Moment, kind: str) -> str:
    """The moment as SQL says it, in the type of the sequence."""
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ConfigError(f"the floor {moment} has no time zone.", hint="give one that has, such as UTC")
        utc = moment.astimezone(timezone.utc)
        return f"CAST('{utc.isoformat(sep=' ')}' AS {kind})"
    quotable = str(moment).replace("\\", "\\\\").replace("'", "\\'")
    return f"CAST('{quotable}' AS {kind})"

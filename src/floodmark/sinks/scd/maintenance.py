"""What is done to a table with history by hand: pruning its log, and deciding between events that contradict."""

from __future__ import annotations

import uuid
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, TypeAlias

from floodmark.errors import ConfigError
from floodmark.locations import quote
from floodmark.probes.delta import note
from floodmark.sinks.scd.events import (
    FLOOR,
    REFUSED,
    ROW,
    RUN,
    SET_ASIDE,
    SINCE,
    VALID_FROM,
    Ordering,
    contradictions,
    runs,
)
from floodmark.sinks.scd.tables import PRUNED, SETTLED, FenceBatch, HistoryTables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Moment: TypeAlias = datetime | date | int | str


def prune_log(tables: HistoryTables, spark: SparkSession, before: Moment) -> int:
    """Exchange all events below the moment for one per key, in one commit; returns how many events were dropped.

    Done twice it changes nothing the second time: the event that is left is again the last below the floor.
    """
    log = tables.log
    every = log.read(spark)
    if every is None:
        raise ConfigError(f"{log.sink.describe()} does not exist.", hint="run the job first")
    floor = sql_literal(before, every.schema[tables.order.moment].dataType.simpleString())
    is_below = f"{quote(tables.order.moment)} < {floor}"
    below = every.where(is_below)
    with log.sink.target.lock(spark, PRUNED):
        held, left = below.count(), first_events(tables, below, floor)
        before_now = log.sink.recorded(PRUNED, lambda: spark)
        number = before_now.number + 1 if before_now else 1
        writer = left.write.format("delta").mode("overwrite").option("replaceWhere", is_below)
        writer = writer.option("txnAppId", PRUNED).option("txnVersion", str(number))
        writer = writer.option("userMetadata", note(PRUNED, number, None, before=str(before)))
        writer.save(log.sink.target.location(spark))
    now = log.read(spark)
    return held - now.where(is_below).count() if now is not None else held


def first_events(tables: HistoryTables, below: DataFrame, floor: str) -> DataFrame:
    """The last event of each key below the floor, with the start of its version; what was refused stays."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = tables.order
    states = runs(tables.counting_events(below.where(f"{REFUSED} IS NULL")), order)
    newest = Window.partitionBy(*map(quote, order.key)).orderBy(F.col(RUN).desc())
    last = states.withColumn("_fm_rank", F.row_number().over(newest)).where("_fm_rank = 1")
    own = [name for name in below.columns if name not in (FLOOR, SINCE)]
    first = last.select(
        *(F.col(f"{ROW}.{quote(name)}").alias(name) for name in own),
        F.expr(floor).alias(FLOOR),
        F.col(VALID_FROM).alias(SINCE),
    )
    return first.unionByName(tables.refused_among(below)).select(*map(quote, below.columns))


def sql_literal(moment: Moment, kind: str) -> str:
    """The moment as SQL says it, in the type of the sequence."""
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ConfigError(f"the floor {moment} has no time zone.", hint="give one that has, such as UTC")
        if kind not in ("timestamp", "timestamp_ntz", "date"):
            raise ConfigError(f"the floor {moment} is a time, and the sequence is {kind}.", hint=f"give a {kind}")
        utc = moment.astimezone(timezone.utc)
        return f"CAST('{utc.isoformat(sep=' ')}' AS {kind})"
    quotable = str(moment).replace("\\", "\\\\").replace("'", "\\'")
    return f"CAST('{quotable}' AS {kind})"


def settle_log(tables: HistoryTables, spark: SparkSession, keep: str) -> int:
    """Of events that contradict each other leave those for which the SQL holds; returns how many were set aside.

    Where it holds for none, nothing is decided. Two commits, to the log and to the table; after a crash between them
    the same call finishes, since every key that was ever settled is compared again.
    """
    events = tables.log.accepted_events(spark)
    if events is None or tables.order.ties != "quarantine":
        raise ConfigError(
            f"{tables.log.sink.describe()} has nothing to decide between.",
            hint="only with `on_conflict: quarantine` are contradicting events kept",
        )
    decisions = _decisions(events, tables.order, keep)
    with tables.log.sink.target.lock(spark, SETTLED):
        settled = _set_aside(tables, decisions, keep)
    _rebuild(tables, spark)
    return settled


def _decisions(events: DataFrame, order: Ordering, keep: str) -> DataFrame:
    """Key and sequence, under names of our own, of contradictions in which some event is kept and some is not."""
    from pyspark.sql import functions as F

    named = {f"_fm_{place}": name for place, name in enumerate((*order.key, *order.sequence))}
    judged = contradictions(events, order).withColumn("_fm_keep", F.coalesce(F.expr(keep), F.lit(False)))
    own = [F.col(quote(name)).alias(ours) for ours, name in named.items()]
    contested = judged.select(*own, "_fm_keep").groupBy(*named).agg(F.max("_fm_keep").alias("_fm_kept"))
    return contested.where("_fm_kept").drop("_fm_kept")


def _set_aside(tables: HistoryTables, decisions: DataFrame, keep: str) -> int:
    order, spark = tables.order, decisions.sparkSession
    place = tables.log.sink.target.place
    same = (f"t.{quote(name)} = s._fm_{n}" for n, name in enumerate((*order.key, *order.sequence)))
    decisions.createOrReplaceTempView(view := f"fm_settle_{uuid.uuid4().hex}")
    try:
        done = spark.sql(
            f"MERGE INTO {place.sql} AS t USING {view} AS s ON {' AND '.join(same)}"
            f" WHEN MATCHED AND t.{REFUSED} IS NULL AND NOT coalesce(({keep}), false)"
            f" THEN UPDATE SET {REFUSED} = '{SET_ASIDE}'"
        ).collect()
    finally:
        spark.catalog.dropTempView(view)
    return int(done[0]["num_updated_rows"])


def _rebuild(tables: HistoryTables, spark: SparkSession) -> None:
    every, held = tables.log.read(spark), tables.table.read(spark)
    if every is None or held is None:
        return
    keys = every.where(f"{REFUSED} = '{SET_ASIDE}'").select(*map(quote, tables.order.key)).distinct()
    number = tables.table.number(SETTLED, lambda: spark) + 1
    batch = FenceBatch.of(SETTLED, number, None, "batch")
    tables.rebuild_keys(keys, every.where(f"{REFUSED} IS NULL"), held, batch)

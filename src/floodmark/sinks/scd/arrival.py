"""Whole snapshots as events: a row that is new or another one is an upsert, a key that is absent was deleted."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Protocol

from floodmark.errors import SnapshotRefused
from floodmark.sinks.contract import Batch
from floodmark.sinks.own_columns import without_own
from floodmark.sinks.scd_compare import state_of
from floodmark.sinks.scd_events import DELETE
from floodmark.spark.delta_tables import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AT = "_fm_at"


class Snapshots(Protocol):
    """What has to be known of a table that is fed by snapshots."""

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> tuple[str, ...]: ...
    @property
    def sequence(self) -> tuple[str, ...]: ...
    @property
    def allow_empty(self) -> bool: ...


def events_of_snapshots(how: Snapshots, rows: DataFrame, current: DataFrame | None, batch: Batch) -> DataFrame:
    """Events that lead from what the table shows to the last snapshot of the batch, through all of them in order.

    The moment of a snapshot is the sequence column of its rows; where they have none, it is the batch's time.
    """
    from pyspark.sql import functions as F

    moment = how.sequence[0]
    dated = without_own(rows if moment in rows.columns else rows.withColumn(moment, F.lit(batch.batch_time)))
    has_place = reduce(and_, (F.col(quoted(name)).isNotNull() for name in (*how.key, moment)))
    sound = dated.where(has_place)
    seen = _seen(sound, current, _moments(how, sound, current, batch), how)
    of_key = [seen[name] == sound[name] for name in how.key]
    put = sound.join(seen.where("NOT _fm_unchanged"), [*of_key, seen[AT] == sound[moment]], "left_semi")
    gone = seen.where("_fm_missing").select(*map(quoted, how.key), F.col("_fm_next").alias(moment))
    every = put.unionByName(dated.where(~has_place)).withColumn(DELETE, F.lit(False))
    return every.unionByName(gone.withColumn(DELETE, F.lit(True)), allowMissingColumns=True)


def _moments(how: Snapshots, rows: DataFrame, current: DataFrame | None, batch: Batch) -> DataFrame:
    """The moments of the snapshots and the one after each; the first follows on what the table shows (NULL)."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    moment, spark = quoted(how.sequence[0]), rows.sparkSession
    kind = rows.schema[how.sequence[0]].dataType
    first = _earliest(how, rows, batch)
    if current is not None and first is not None:
        _require_newer(how, first, current.agg(F.max(moment)).collect()[0][0], batch)
    empty = spark.range(1).select(F.lit(batch.batch_time).cast(kind).alias(AT))
    found = rows.select(F.col(moment).alias(AT)).distinct() if first is not None else empty
    before = spark.range(1).select(F.lit(None).cast(kind).alias(AT))
    return found.unionByName(before).select(AT, F.lead(AT).over(Window.orderBy(AT)).alias("_fm_next"))


def _earliest(how: Snapshots, rows: DataFrame, batch: Batch) -> object | None:
    """The moment of the first snapshot; None if there is no row, and that is allowed."""
    from pyspark.sql import functions as F

    first: object | None = rows.agg(F.min(quoted(how.sequence[0]))).collect()[0][0]
    if first is None and not how.allow_empty:
        raise SnapshotRefused(batch.job, sink=how.name, reason="it is empty, which would delete every row")
    return first


def _require_newer(how: Snapshots, first: object, last: object | None, batch: Batch) -> None:
    """What was absent from an older snapshot can no longer be told."""
    if last is not None and first < last:  # type: ignore[operator]
        raise SnapshotRefused(batch.job, sink=how.name, reason=f"it is of {first}, and the table has one of {last}")


def _seen(rows: DataFrame, current: DataFrame | None, moments: DataFrame, how: Snapshots) -> DataFrame:
    """Each key at each moment that has it: is it as it was in the snapshot before, is it missing from the next?"""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    moment, keys = how.sequence[0], [quoted(name) for name in how.key]
    state = state_of(rows.schema, [name for name in rows.columns if name != moment]).alias("_fm_state")
    shown = _filled(rows, current).select(*keys, F.lit(None).cast(rows.schema[moment].dataType).alias(AT), state)
    every = rows.select(*keys, F.col(quoted(moment)).alias(AT), state).unionByName(shown)
    # A key that is twice in one snapshot stays two rows of the log, which finds out whether they contradict.
    span = F.struct(F.min("_fm_state").alias("lo"), F.max("_fm_state").alias("hi")).alias("_fm_state")
    by_moment = every.groupBy(*keys, AT).agg(span).alias("k")
    told = by_moment.join(F.broadcast(moments).alias("m"), F.col(f"k.{AT}").eqNullSafe(F.col(f"m.{AT}")))
    at_once = told.select("k.*", "_fm_next")
    in_order = Window.partitionBy(*keys).orderBy(AT)
    follows = F.lag("_fm_next").over(in_order).eqNullSafe(F.col(AT)) & F.col(AT).isNotNull()
    same = F.col("_fm_state").eqNullSafe(F.lag("_fm_state").over(in_order))
    again = F.lead(AT).over(in_order).eqNullSafe(F.col("_fm_next"))
    unchanged = (follows & same).alias("_fm_unchanged")
    return at_once.select(*keys, AT, "_fm_next", unchanged, (~again).alias("_fm_missing"))


def _filled(rows: DataFrame, current: DataFrame | None) -> DataFrame:
    """What the table shows, with the columns of the rows."""
    from pyspark.sql import functions as F

    if current is None:
        return rows.limit(0)
    known = current.columns
    return current.select(
        *(F.col(quoted(f.name)) if f.name in known else F.lit(None).cast(f.dataType).alias(f.name) for f in rows.schema)
    )

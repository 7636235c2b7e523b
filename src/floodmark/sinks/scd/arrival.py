"""How the rows of a batch become events: a change log as it is, the change feed of a Delta table, whole snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Literal

from floodmark.errors import ConfigError, SnapshotRefused
from floodmark.locations import quote
from floodmark.sinks.contract import DELETE, Batch, without_own
from floodmark.sinks.modes import with_deletes
from floodmark.sinks.scd.events import LOG_COLUMNS, state_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Changes = Literal["log", "feed", "snapshot"]
CHANGE = "_change_type"
RENAMED = {"_commit_timestamp": "committed_at", "_commit_version": "committed_version"}
"""A table that has a change feed of its own may not have columns with the feed's names."""
SNAPSHOT_AT = "snapshot_at"
AT = "_fm_at"


@dataclass(frozen=True)
class EventReader:
    """Reads what the rows of a batch say, and since when it holds."""

    name: str
    changes: Changes
    key: tuple[str, ...]
    declared_sequence: tuple[str, ...]
    delete_when: str | None = None
    allow_empty: bool = False

    @property
    def sequence(self) -> tuple[str, ...]:
        default = {"feed": tuple(RENAMED.values()), "snapshot": (SNAPSHOT_AT,)}
        return self.declared_sequence or default.get(self.changes, ())

    def events(self, rows: DataFrame, current: DataFrame | None, batch: Batch) -> DataFrame:
        """The rows as events, with DELETE on those that delete; `current` is what the table shows now."""

        if self.changes == "feed":
            return events_of_feed(rows, self.key)
        if self.changes == "snapshot":
            return events_of_snapshots(self, rows, current, batch)
        return with_deletes(rows, self.delete_when)

    def expected_schema(self, stored: StructType, own_columns: Sequence[str] = ()) -> StructType:
        """What the rows of a batch have to fit: the user's columns of the log or table, and those of a feed."""
        from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

        own = [column for column in stored.fields if column.name not in (*LOG_COLUMNS, *own_columns)]
        if self.changes != "feed":
            return StructType(own)
        kinds = {CHANGE: StringType(), "_commit_timestamp": TimestampType(), "_commit_version": LongType()}
        return StructType([*own, *(StructField(name, kind) for name, kind in kinds.items())])

    def require_columns(self, rows: DataFrame, wanted: Sequence[str], reserved: Sequence[str]) -> None:
        """Raise ConfigError for a column that is missing from the rows, or that the table has for itself."""
        there = {RENAMED.get(name, name) if self.changes == "feed" else name for name in rows.columns}
        given = there | ({SNAPSHOT_AT} if self.changes == "snapshot" else set())
        missing = [name for name in (*wanted, *((CHANGE,) if self.changes == "feed" else ())) if name not in given]
        if missing:
            raise ConfigError(
                f"sink '{self.name}' needs column '{missing[0]}', and the rows have: {', '.join(rows.columns)}.",
                hint="keep it in the transform, or name another one",
            )
        own = [name for name in (*reserved, *LOG_COLUMNS) if name in rows.columns]
        if own:
            raise ConfigError(
                f"sink '{self.name}' makes column '{own[0]}' itself, and the rows have one of that name.",
                hint="rename it in the transform; `valid_from:` names a column that says when a key began",
            )


def events_of_feed(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """What a commit took away is a delete, unless the same commit put a row of that key there.

    So an update of the key itself deletes the old key, and a row that was exchanged counts as changed, not as gone.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    removes = F.col(CHANGE).isin("delete", "update_preimage")
    commit = Window.partitionBy(*map(quote, key), "_commit_version")
    marked = rows.select("*", removes.alias(DELETE), F.max(~removes).over(commit).alias("_fm_put"))
    kept = marked.where(f"NOT {DELETE} OR NOT _fm_put")
    return kept.drop(CHANGE, "_fm_put").withColumnsRenamed(RENAMED)


def events_of_snapshots(reader: EventReader, rows: DataFrame, current: DataFrame | None, batch: Batch) -> DataFrame:
    """Events that lead from what the table shows to the last snapshot of the batch, through all of them in order.

    A row that is new or another one is an upsert, a key that is absent was deleted.
    The moment of a snapshot is the sequence column of its rows; where they have none, it is the batch's time.
    """
    from pyspark.sql import functions as F

    moment = reader.sequence[0]
    dated = without_own(rows if moment in rows.columns else rows.withColumn(moment, F.lit(batch.batch_time)))
    has_place = reduce(and_, (F.col(quote(name)).isNotNull() for name in (*reader.key, moment)))
    sound = dated.where(has_place)
    states = _states(sound, current, _moments(reader, sound, current, batch), reader)
    of_key = [states[name] == sound[name] for name in reader.key]
    put = sound.join(states.where("NOT _fm_unchanged"), [*of_key, states[AT] == sound[moment]], "left_semi")
    gone = states.where("_fm_missing").select(*map(quote, reader.key), F.col("_fm_next").alias(moment))
    every = put.unionByName(dated.where(~has_place)).withColumn(DELETE, F.lit(False))
    return every.unionByName(gone.withColumn(DELETE, F.lit(True)), allowMissingColumns=True)


def _moments(reader: EventReader, rows: DataFrame, current: DataFrame | None, batch: Batch) -> DataFrame:
    """The moments of the snapshots and the one after each; the first follows on what the table shows (NULL)."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    moment, spark = quote(reader.sequence[0]), rows.sparkSession
    kind = rows.schema[reader.sequence[0]].dataType
    first = _earliest(reader, rows, batch)
    if current is not None and first is not None:
        _require_newer(reader, first, current.agg(F.max(moment)).collect()[0][0], batch)
    empty = spark.range(1).select(F.lit(batch.batch_time).cast(kind).alias(AT))
    moments = rows.select(F.col(moment).alias(AT)).distinct() if first is not None else empty
    before = spark.range(1).select(F.lit(None).cast(kind).alias(AT))
    return moments.unionByName(before).select(AT, F.lead(AT).over(Window.orderBy(AT)).alias("_fm_next"))


def _earliest(reader: EventReader, rows: DataFrame, batch: Batch) -> object | None:
    """The moment of the first snapshot; None if there is no row, and that is allowed."""
    from pyspark.sql import functions as F

    first: object | None = rows.agg(F.min(quote(reader.sequence[0]))).collect()[0][0]
    if first is None and not reader.allow_empty:
        raise SnapshotRefused(batch.job, sink=reader.name, reason="it is empty, which would delete every row")
    return first


def _require_newer(reader: EventReader, first: object, last: object | None, batch: Batch) -> None:
    """What was absent from an older snapshot can no longer be told."""
    if last is not None and first < last:  # type: ignore[operator]
        raise SnapshotRefused(batch.job, sink=reader.name, reason=f"it is of {first}, and the table has one of {last}")


def _states(rows: DataFrame, current: DataFrame | None, moments: DataFrame, reader: EventReader) -> DataFrame:
    """Each key at each moment that has it: is it as it was in the snapshot before, is it missing from the next?"""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    moment, keys = reader.sequence[0], [quote(name) for name in reader.key]
    state = state_of(rows.schema, [name for name in rows.columns if name != moment]).alias("_fm_state")
    current_states = _with_columns_of(rows, current).select(
        *keys, F.lit(None).cast(rows.schema[moment].dataType).alias(AT), state
    )
    every = rows.select(*keys, F.col(quote(moment)).alias(AT), state).unionByName(current_states)
    # A key that is twice in one snapshot stays two rows of the log, which finds out whether they contradict.
    span = F.struct(F.min("_fm_state").alias("lo"), F.max("_fm_state").alias("hi")).alias("_fm_state")
    by_moment = every.groupBy(*keys, AT).agg(span).alias("k")
    with_next = by_moment.join(F.broadcast(moments).alias("m"), F.col(f"k.{AT}").eqNullSafe(F.col(f"m.{AT}")))
    at_once = with_next.select("k.*", "_fm_next")
    in_order = Window.partitionBy(*keys).orderBy(AT)
    follows = F.lag("_fm_next").over(in_order).eqNullSafe(F.col(AT)) & F.col(AT).isNotNull()
    same = F.col("_fm_state").eqNullSafe(F.lag("_fm_state").over(in_order))
    again = F.lead(AT).over(in_order).eqNullSafe(F.col("_fm_next"))
    unchanged = (follows & same).alias("_fm_unchanged")
    return at_once.select(*keys, AT, "_fm_next", unchanged, (~again).alias("_fm_missing"))


def _with_columns_of(rows: DataFrame, current: DataFrame | None) -> DataFrame:
    """What the table shows, with the columns of the rows."""
    from pyspark.sql import functions as F

    if current is None:
        return rows.limit(0)
    known = current.columns
    return current.select(
        *(F.col(quote(f.name)) if f.name in known else F.lit(None).cast(f.dataType).alias(f.name) for f in rows.schema)
    )

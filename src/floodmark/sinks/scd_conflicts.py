"""Finding events that contradict each other before any of them is written, without reading the whole log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.sinks.scd_events import CONTESTED, REFUSED, Ordering, winners
from floodmark.spark.delta_tables import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row
    from pyspark.sql.types import DataType

BROADCAST_AT_MOST = 200_000
"""Keys that are sent to every task, so that the log is filtered where it is read and not moved."""
CONFLICT = "_fm_conflict"


@dataclass(frozen=True)
class Survey:
    """What one pass over arriving events tells: how many there are, if known, and key and sequence, as JSON, of those
    that nothing decides between."""

    events: int | None = None
    conflict: tuple[str, str] | None = None


def surveyed(arriving: DataFrame, stored: DataFrame | None, order: Ordering) -> Survey:
    """Hold the events against each other, then against those of the log that could contradict them."""
    from pyspark.sql import functions as F

    fresh = arriving.where(f"{REFUSED} IS NULL")
    kind, moment = fresh.schema[order.moment].dataType, F.col(quoted(order.moment))
    ends = [_plain(end(moment), kind).alias(name) for name, end in (("lo", F.min), ("hi", F.max))]
    row = winners(fresh, order).agg(_conflict(order), F.count(F.lit(1)).alias("n"), *ends).collect()[0]
    survey = Survey(row["n"], _told(row))
    if stored is None or survey.conflict or not survey.events:
        return survey
    # The moments go in as literals, so that files of other times are not opened: mostly all of them.
    near = stored.where(moment.between(_literal(row, "lo", kind), _literal(row, "hi", kind)))
    return Survey(survey.events, _conflict_with(near, fresh, survey.events, order)) if near.inputFiles() else survey


def _conflict_with(near: DataFrame, fresh: DataFrame, events: int, order: Ordering) -> tuple[str, str] | None:
    """A contradiction between events that arrive and those of the same keys that are stored."""
    from pyspark.sql import functions as F

    keys = fresh.select(*map(quoted, order.key))
    held = near.join(F.broadcast(keys) if events <= BROADCAST_AT_MOST else keys, list(order.key), "left_semi")
    every = fresh.unionByName(held, allowMissingColumns=True)
    return _told(winners(every, order).agg(_conflict(order)).collect()[0])


def _conflict(order: Ordering) -> Column:
    from pyspark.sql import functions as F

    shown = [F.to_json(F.struct(*map(quoted, names))) for names in (order.key, order.sequence)]
    return F.min(F.when(F.col(CONTESTED), F.struct(*shown))).alias(CONFLICT)


def _told(row: Row) -> tuple[str, str] | None:
    return (row[CONFLICT][0], row[CONFLICT][1]) if row[CONFLICT] else None


def _plain(moment: Column, kind: DataType) -> Column:
    """A form that comes back from Python as the same moment, whatever the zones are."""
    from pyspark.sql import functions as F

    return F.unix_micros(moment) if kind.simpleString() == "timestamp" else moment.cast("string")


def _literal(row: Row, name: str, kind: DataType) -> Column:
    from pyspark.sql import functions as F

    value = F.lit(row[name])
    return F.timestamp_micros(value) if kind.simpleString() == "timestamp" else value.cast(kind)

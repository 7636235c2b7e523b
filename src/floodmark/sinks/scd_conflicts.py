"""Finding events that contradict each other before any of them is written, without reading the whole log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.sinks.scd_events import CONTESTED, REFUSED, Ordering, winners
from floodmark.spark.delta_tables import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row
    from pyspark.sql.types import DataType


def conflict_in(arriving: DataFrame, stored: DataFrame | None, order: Ordering) -> tuple[str, str] | None:
    """Key and sequence of events that nothing decides between, as JSON; None if there are none."""
    from pyspark.sql import functions as F

    fresh = arriving.where(f"{REFUSED} IS NULL")
    held = _held(fresh, stored, order) if stored is not None else None
    events = fresh.unionByName(held, allowMissingColumns=True) if held is not None else fresh
    shown = [F.to_json(F.struct(*map(quoted, names))) for names in (order.key, order.sequence)]
    found = winners(events, order).where(CONTESTED).select(*shown).limit(1).collect()
    return (found[0][0], found[0][1]) if found else None


def _held(fresh: DataFrame, stored: DataFrame, order: Ordering) -> DataFrame | None:
    """Stored events that could contradict: of the same keys, between the first and the last moment that arrives.

    The moments go in as literals, so that files of other times are not opened: mostly all of them.
    """
    from pyspark.sql import functions as F

    kind, moment = fresh.schema[order.moment].dataType, F.col(quoted(order.moment))
    row = fresh.agg(*(_plain(end(moment), kind).alias(name) for name, end in (("lo", F.min), ("hi", F.max)))).collect()
    if row[0]["lo"] is None:
        return None
    near = stored.where(moment.between(_literal(row[0], "lo", kind), _literal(row[0], "hi", kind)))
    keys = fresh.select(*map(quoted, order.key)).distinct()
    return near.join(F.broadcast(keys), list(order.key), "left_semi")


def _plain(moment: Column, kind: DataType) -> Column:
    """A form that comes back from Python as the same moment, whatever the zones are."""
    from pyspark.sql import functions as F

    return F.unix_micros(moment) if kind.simpleString() == "timestamp" else moment.cast("string")


def _literal(row: Row, name: str, kind: DataType) -> Column:
    from pyspark.sql import functions as F

    value = F.lit(row[name])
    return F.timestamp_micros(value) if kind.simpleString() == "timestamp" else value.cast(kind)

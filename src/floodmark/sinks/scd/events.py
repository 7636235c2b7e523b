"""Events on their way into the log of a table with history: which are refused, which count, and which contradict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from floodmark.sinks.contract import POSITION
from floodmark.sinks.own_columns import without_own
from floodmark.sinks.scd_compare import state_of
from floodmark.spark.delta_tables import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

Ties = Literal["error", "quarantine", "last_arrival"]

LEDGER, NUMBER, PLACE = "_event_ledger", "_event_number", "_event_place"
DELETED, REFUSED = "_event_deleted", "_event_refused"
FLOOR, SINCE = "_event_floor", "_event_since"
DELETE, CONTESTED, BEST = "_fm_delete", "_fm_contested", "_fm_best"
LOG_COLUMNS = (LEDGER, NUMBER, PLACE, DELETED, REFUSED, FLOOR, SINCE)
"""What the log keeps beside the user's columns: which batch brought an event and in which order, whether it deletes,
why it was refused; on the first event of a key whose older ones were pruned, the floor and the start of its version."""


@dataclass(frozen=True)
class Ordering:
    """How the events of a table are told apart, put in order and compared.

    The first column of `sequence` is the moment from which an event holds; the others decide between events of one
    moment. `track` names the columns whose change makes a version; empty: all that are neither key nor sequence nor
    `untracked`.
    `first_from` names the column that says when a key began.
    """

    key: tuple[str, ...]
    sequence: tuple[str, ...]
    track: tuple[str, ...] = ()
    first_from: str | None = None
    ties: Ties = "error"
    untracked: tuple[str, ...] = ()

    @property
    def moment(self) -> str:
        return self.sequence[0]

    def payload(self, columns: Sequence[str]) -> list[str]:
        """The user's columns among those of the log."""
        return [name for name in columns if name not in LOG_COLUMNS]

    def tracked(self, columns: Sequence[str]) -> list[str]:
        left_out = {*self.key, *self.sequence, *self.untracked, self.first_from}
        return list(self.track) or [name for name in self.payload(columns) if name not in left_out]

    def state(self, schema: StructType) -> Column:
        """The tracked columns as one value that can be compared, NULL for NULL."""
        return state_of(schema, self.tracked(schema.names))


def received(rows: DataFrame, order: Ordering, floors: DataFrame | None, *, ledger: str, number: int) -> DataFrame:
    """The rows of a batch as the log takes them, each with the reason if it is refused."""
    from pyspark.sql import functions as F

    moment = rows.schema[order.moment].dataType
    known = rows.join(F.broadcast(floors), list(order.key), "left") if floors is not None else None
    seen = known if known is not None else rows.withColumn(FLOOR, F.lit(None).cast(moment))
    return without_own(
        seen.withColumns(
            {
                REFUSED: _reason(order),
                PLACE: _place(rows, order),
                DELETED: F.col(DELETE),
                LEDGER: F.lit(ledger),
                NUMBER: F.lit(number).cast("long"),
            }
        )
        .withColumns({FLOOR: F.lit(None).cast(moment), SINCE: F.lit(None).cast(moment)})
        .select(*map(quoted, rows.columns), *LOG_COLUMNS)
    )


def _reason(order: Ordering) -> Column:
    """Why an event cannot have a place in anyone's history; NULL if it can."""
    from pyspark.sql import functions as F

    missing = [(name, "key") for name in order.key] + [(name, "sequence") for name in order.sequence]
    reasons = [F.when(F.col(quoted(name)).isNull(), F.lit(f"{what} column {name} is NULL")) for name, what in missing]
    below = F.col(quoted(order.moment)) < F.col(FLOOR)
    told = F.concat(F.lit("older than the floor "), F.col(FLOOR).cast("string"), F.lit(" to which the log was pruned"))
    return F.coalesce(*reasons, F.when(below, told))


def _place(rows: DataFrame, order: Ordering) -> Column:
    """Where an event came among those of its key and sequence in this batch; 0 where nothing says."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    if POSITION not in rows.columns:
        return F.lit(0)
    alike = Window.partitionBy(*map(quoted, (*order.key, *order.sequence)))
    return F.dense_rank().over(alike.orderBy(POSITION))


def winners(events: DataFrame, order: Ordering) -> DataFrame:
    """One event of each key and sequence, with CONTESTED on those that nothing decides.

    A delete wins over an upsert; identical events are one. What differs in untracked columns only is chosen by value,
    so that the order of arrival has no say, unless it is asked for.
    """
    from pyspark.sql import functions as F

    same = (*order.key, *order.sequence)
    if order.ties != "last_arrival":
        return _best(events, same, order).select(f"{BEST}.*", CONTESTED)
    at_once = _best(events, (*same, NUMBER, PLACE), order)
    last = F.max_by(F.struct(BEST, CONTESTED), F.struct(f"{BEST}.{DELETED}", NUMBER, PLACE)).alias("_fm_last")
    return at_once.groupBy(*map(quoted, same)).agg(last).select(f"_fm_last.{BEST}.*", f"_fm_last.{CONTESTED}")


def _best(events: DataFrame, same: Sequence[str], order: Ordering) -> DataFrame:
    """Of events that are the same in these columns: the highest by value as BEST, and whether others say otherwise."""
    from pyspark.sql import functions as F

    schema, state = events.schema, order.state(events.schema)
    every = state_of(schema, order.payload(schema.names))
    differ = ~F.min(state).eqNullSafe(F.max(state)) & ~F.max(DELETED)
    best = F.max_by(F.struct(*map(quoted, schema.names)), F.struct(DELETED, every)).alias(BEST)
    return events.groupBy(*map(quoted, same)).agg(best, differ.alias(CONTESTED))


def contradicting(events: DataFrame, order: Ordering) -> DataFrame:
    """All events that share key and sequence with one that says something else."""
    same = [*order.key, *order.sequence]
    contested = winners(events, order).where(CONTESTED).select(*map(quoted, same))
    return events.join(contested, same, "left_semi").select(*map(quoted, events.columns))


def last_of_each_moment(chosen: DataFrame, order: Ordering) -> DataFrame:
    """Where the sequence has several columns, only the last event of a moment is ever seen."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    if len(order.sequence) == 1:
        return chosen
    at_once = Window.partitionBy(*map(quoted, (*order.key, order.moment)))
    last = at_once.orderBy(*(F.col(quoted(name)).desc() for name in order.sequence[1:]))
    return chosen.withColumn("_fm_rank", F.row_number().over(last)).where("_fm_rank = 1").drop("_fm_rank")

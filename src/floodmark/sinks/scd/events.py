"""Events: which of them count, which contradict each other, and what rows follow from them.

Plain functions from rows to rows; the tables that hold events and rows are in `tables`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Literal

from floodmark.locations import quote
from floodmark.sinks.contract import DELETE, POSITION, without_own
from floodmark.sinks.refusals import EARLIER
from floodmark.spark.schemas import EXACT_JSON, comparable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row
    from pyspark.sql.types import DataType, StructType

Ties = Literal["error", "quarantine", "last_arrival"]
LEDGER, NUMBER, PLACE = "_event_ledger", "_event_number", "_event_place"
DELETED, REFUSED = "_event_deleted", "_event_refused"
FLOOR, SINCE = "_event_floor", "_event_since"
LOG_COLUMNS = (LEDGER, NUMBER, PLACE, DELETED, REFUSED, FLOOR, SINCE)
"""What the log keeps beside the user's columns: which batch brought an event and in which order, whether it deletes,
why it was refused; on the first event of a key whose older ones were pruned, the floor and the start of its version."""
VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
INTERVAL = (VALID_FROM, VALID_TO, IS_CURRENT)
CONTESTED, BEST = "_fm_contested", "_fm_best"
RUN, ROW = "_fm_run", "_fm_row"
CONFLICT = "_fm_conflict"
CONTRADICTED = "another event of the same key and sequence says something else"
SET_ASIDE = "set aside: another event of the same key and sequence was chosen"
BROADCAST_AT_MOST = 200_000
"""Keys that are sent to every task, so that the log is filtered where it is read and not moved."""


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

    def tracked_columns(self, columns: Sequence[str]) -> list[str]:
        left_out = {*self.key, *self.sequence, *self.untracked, self.first_from}
        return list(self.track) or [name for name in self.payload(columns) if name not in left_out]

    def state(self, schema: StructType) -> Column:
        """The tracked columns as one value that can be compared, NULL for NULL."""
        return state_of(schema, self.tracked_columns(schema.names))


def log_rows(rows: DataFrame, order: Ordering, floors: DataFrame | None, *, ledger: str, number: int) -> DataFrame:
    """The rows of a batch as the log takes them, each with the reason if it is refused."""
    from pyspark.sql import functions as F

    moment = rows.schema[order.moment].dataType
    known = rows.join(F.broadcast(floors), list(order.key), "left") if floors is not None else None
    seen = known if known is not None else rows.withColumn(FLOOR, F.lit(None).cast(moment))
    return without_own(
        seen.withColumns(
            {
                REFUSED: _refusal(order),
                PLACE: _place(rows, order),
                DELETED: F.col(DELETE),
                LEDGER: F.lit(ledger),
                NUMBER: F.lit(number).cast("long"),
            }
        )
        .withColumns({FLOOR: F.lit(None).cast(moment), SINCE: F.lit(None).cast(moment)})
        .select(*map(quote, rows.columns), *LOG_COLUMNS)
    )


def _refusal(order: Ordering) -> Column:
    """Why an event cannot have a place in anyone's history; NULL if it can."""
    from pyspark.sql import functions as F

    missing = [(name, "key") for name in order.key] + [(name, "sequence") for name in order.sequence]
    reasons = [F.when(F.col(quote(name)).isNull(), F.lit(f"{what} column {name} is NULL")) for name, what in missing]
    below = F.col(quote(order.moment)) < F.col(FLOOR)
    reason = F.concat(
        F.lit("older than the floor "), F.col(FLOOR).cast("string"), F.lit(" to which the log was pruned")
    )
    return F.coalesce(*reasons, F.when(below, reason))


def _place(rows: DataFrame, order: Ordering) -> Column:
    """Where an event came among those of its key and sequence in this batch; 0 where nothing says."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    if POSITION not in rows.columns:
        return F.lit(0)
    alike = Window.partitionBy(*map(quote, (*order.key, *order.sequence)))
    return F.dense_rank().over(alike.orderBy(POSITION))


def still_set_aside(arriving: DataFrame, log: DataFrame, order: Ordering) -> DataFrame:
    """The arriving events; one that was set aside before and comes once more stays so."""
    from pyspark.sql import functions as F

    same = (*order.key, *order.sequence)
    tracked = [name for name in order.tracked_columns(log.columns) if name in arriving.columns]
    aside = log.where(f"{REFUSED} = '{SET_ASIDE}'").select(
        *(F.col(quote(name)).alias(f"_fm_{place}") for place, name in enumerate(same)),
        state_of(log.schema, tracked).alias("_fm_state"),
    )
    alike = [F.col(quote(name)) == F.col(f"_fm_{place}") for place, name in enumerate(same)]
    is_it = reduce(and_, alike) & state_of(arriving.schema, tracked).eqNullSafe(F.col("_fm_state")) & ~F.col(DELETED)
    met = arriving.join(F.broadcast(aside.distinct()), is_it, "left")
    reason = F.coalesce(REFUSED, F.when(F.col("_fm_state").isNotNull(), F.lit(SET_ASIDE)))
    return met.withColumn(REFUSED, reason).select(*map(quote, arriving.columns))


@dataclass(frozen=True)
class Survey:
    """What one pass over arriving events tells: how many there are, if known, and key and sequence, as JSON, of those
    that nothing decides between."""

    events: int | None = None
    conflict: tuple[str, str] | None = None


def survey_of(arriving: DataFrame, stored: DataFrame | None, order: Ordering) -> Survey:
    """Hold the events against each other, then against those of the log that could contradict them."""
    from pyspark.sql import functions as F

    fresh = arriving.where(f"{REFUSED} IS NULL")
    kind, moment = fresh.schema[order.moment].dataType, F.col(quote(order.moment))
    ends = [_plain(end(moment), kind).alias(name) for name, end in (("lo", F.min), ("hi", F.max))]
    row = winners(fresh, order).agg(_first_conflict(order), F.count(F.lit(1)).alias("n"), *ends).collect()[0]
    survey = Survey(row["n"], _conflict_in(row))
    if stored is None or survey.conflict or not survey.events:
        return survey
    # The moments go in as literals, so that files of other times are not opened: mostly all of them.
    near = stored.where(moment.between(_literal(row, "lo", kind), _literal(row, "hi", kind)))
    return Survey(survey.events, _conflict_with(near, fresh, survey.events, order)) if near.inputFiles() else survey


def _conflict_with(near: DataFrame, fresh: DataFrame, events: int, order: Ordering) -> tuple[str, str] | None:
    """A contradiction between events that arrive and those of the same keys that are stored."""
    from pyspark.sql import functions as F

    keys = fresh.select(*map(quote, order.key))
    held = near.join(F.broadcast(keys) if events <= BROADCAST_AT_MOST else keys, list(order.key), "left_semi")
    every = fresh.unionByName(held, allowMissingColumns=True)
    return _conflict_in(winners(every, order).agg(_first_conflict(order)).collect()[0])


def _first_conflict(order: Ordering) -> Column:
    from pyspark.sql import functions as F

    shown = [F.to_json(F.struct(*map(quote, names)), EXACT_JSON) for names in (order.key, order.sequence)]
    return F.min(F.when(F.col(CONTESTED), F.struct(*shown))).alias(CONFLICT)


def _conflict_in(row: Row) -> tuple[str, str] | None:
    return (row[CONFLICT][0], row[CONFLICT][1]) if row[CONFLICT] else None


def _plain(moment: Column, kind: DataType) -> Column:
    """A form that comes back from Python as the same moment, whatever the zones are."""
    from pyspark.sql import functions as F

    return F.unix_micros(moment) if kind.simpleString() == "timestamp" else moment.cast("string")


def _literal(row: Row, name: str, kind: DataType) -> Column:
    from pyspark.sql import functions as F

    value = F.lit(row[name])
    return F.timestamp_micros(value) if kind.simpleString() == "timestamp" else value.cast(kind)


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
    return at_once.groupBy(*map(quote, same)).agg(last).select(f"_fm_last.{BEST}.*", f"_fm_last.{CONTESTED}")


def _best(events: DataFrame, same: Sequence[str], order: Ordering) -> DataFrame:
    """Of events that are the same in these columns: the highest by value as BEST, and whether others say otherwise."""
    from pyspark.sql import functions as F

    schema, state = events.schema, order.state(events.schema)
    every = state_of(schema, order.payload(schema.names))
    differ = ~F.min(state).eqNullSafe(F.max(state)) & ~F.max(DELETED)
    best = F.max_by(F.struct(*map(quote, schema.names)), F.struct(DELETED, every)).alias(BEST)
    return events.groupBy(*map(quote, same)).agg(best, differ.alias(CONTESTED))


def contradictions(events: DataFrame, order: Ordering) -> DataFrame:
    """All events that share key and sequence with one that says something else."""
    same = [*order.key, *order.sequence]
    contested = winners(events, order).where(CONTESTED).select(*map(quote, same))
    return events.join(contested, same, "left_semi").select(*map(quote, events.columns))


def newly_contested(events: DataFrame, order: Ordering, arrived: Column) -> DataFrame:
    """Events that contradict each other since those that have just `arrived` came, with EARLIER on those before them.

    Where the earlier ones contradicted each other already, only the new ones are told.
    """
    from pyspark.sql import functions as F

    same = [*order.key, *order.sequence]
    near = events.join(events.where(arrived).select(*map(quote, same)).distinct(), same, "left_semi")
    known = contradictions(near.where(~arrived), order).select(*map(quote, same)).distinct().withColumn(BEST, F.lit(1))
    told = contradictions(near, order).withColumn(EARLIER, ~arrived).join(known, same, "left")
    return told.where(f"NOT {EARLIER} OR {BEST} IS NULL").select(*map(quote, events.columns), EARLIER)


def last_of_each_moment(chosen: DataFrame, order: Ordering) -> DataFrame:
    """Where the sequence has several columns, only the last event of a moment is ever seen."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    if len(order.sequence) == 1:
        return chosen
    at_once = Window.partitionBy(*map(quote, (*order.key, order.moment)))
    last = at_once.orderBy(*(F.col(quote(name)).desc() for name in order.sequence[1:]))
    return chosen.withColumn("_fm_rank", F.row_number().over(last)).where("_fm_rank = 1").drop("_fm_rank")


def versions(events: DataFrame, order: Ordering) -> DataFrame:
    """Each version of each key, with the moment it begins and the one it ends; a delete ends one and begins none."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    in_order = Window.partitionBy(*map(quote, order.key)).orderBy(VALID_FROM)
    ended = runs(events, order).withColumn(VALID_TO, F.lead(VALID_FROM).over(in_order)).where(f"NOT {ROW}.{DELETED}")
    own = [F.col(f"{ROW}.{quote(name)}").alias(name) for name in order.payload(events.columns)]
    return ended.select(*own, VALID_FROM, VALID_TO, F.col(VALID_TO).isNull().alias(IS_CURRENT))


def runs(events: DataFrame, order: Ordering) -> DataFrame:
    """Events of a key that follow each other and say the same, as one: VALID_FROM, and the last of them as ROW.

    So columns that are not tracked have the value of the last event.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    moment, in_order = quote(order.moment), Window.partitionBy(*map(quote, order.key)).orderBy(quote(order.moment))
    # A deleted key has no values, so two deletes in a row are one state.
    state = F.struct(DELETED, F.when(~F.col(DELETED), order.state(events.schema)).alias("values"))
    begins = (~F.lag(state).over(in_order).eqNullSafe(state)).cast("int").alias("_fm_begins")
    numbered = events.select("*", begins).select("*", F.sum("_fm_begins").over(in_order).alias(RUN))
    joined = numbered.groupBy(*map(quote, order.key), RUN).agg(
        F.min(F.coalesce(F.col(SINCE), F.col(moment))).alias(VALID_FROM),
        F.min_by(F.coalesce(F.col(SINCE), F.col(quote(order.first_from or order.moment))), moment).alias("_fm_first"),
        F.max_by(F.struct(*map(quote, events.columns)), moment).alias(ROW),
    )
    # A creation time behind the first change is not believed, and a deleted key has not begun.
    begins_early = (F.col(RUN) == 1) & ~F.col(f"{ROW}.{DELETED}")
    early = F.least(F.col("_fm_first").cast(events.schema[order.moment].dataType), F.col(VALID_FROM))
    return joined.withColumn(VALID_FROM, F.when(begins_early, early).otherwise(F.col(VALID_FROM)))


def latest(events: DataFrame, order: Ordering) -> DataFrame:
    """The last row of each key, if its last event did not delete it."""
    from pyspark.sql import functions as F

    payload = order.payload(events.columns)
    row = F.max_by(F.struct(DELETED, *map(quote, payload)), quote(order.moment)).alias("_fm_row")
    last = events.groupBy(*map(quote, order.key)).agg(row).where(f"NOT _fm_row.{DELETED}")
    return last.select(*(F.col(f"_fm_row.{quote(name)}").alias(name) for name in payload))


def row_changes(new: DataFrame, old: DataFrame, identity: Sequence[str]) -> DataFrame:
    """What has to be done to `old` to make it `new`: rows to put, and with DELETE, rows to take out."""
    from pyspark.sql import functions as F

    columns = new.columns
    filled = old.select(*(_column(old, name, new.schema[name].dataType.simpleString()) for name in columns))
    put = new.select(
        *(F.col(quote(name)).alias(f"_fm_id{n}") for n, name in enumerate(identity)),
        F.struct(*map(quote, columns)).alias("_fm_new"),
        state_of(new.schema, columns).alias("_fm_new_state"),
    )
    held = filled.select(
        *(F.col(quote(name)).alias(f"_fm_id{n}") for n, name in enumerate(identity)),
        F.struct(*map(quote, columns)).alias("_fm_old"),
        state_of(filled.schema, columns).alias("_fm_old_state"),
    )
    both = put.join(held, [f"_fm_id{n}" for n, _ in enumerate(identity)], "full_outer")
    differing = both.where(~F.col("_fm_new_state").eqNullSafe(F.col("_fm_old_state")))
    row = F.coalesce("_fm_new", "_fm_old").alias("_fm_row")
    return differing.select(row, F.col("_fm_new").isNull().alias(DELETE)).select("_fm_row.*", DELETE)


def _column(rows: DataFrame, name: str, kind: str) -> Column:
    """A column that the table does not have yet reads as NULL."""
    from pyspark.sql import functions as F

    return F.col(quote(name)) if name in rows.columns else F.lit(None).cast(kind).alias(name)


def state_of(schema: StructType, names: Sequence[str]) -> Column:
    """The named columns as one value; two such values are equal if every column is."""
    from pyspark.sql import functions as F

    parts = [comparable(F.col(quote(name)), schema[name].dataType).alias(f"c{n}") for n, name in enumerate(names)]
    return F.struct(*parts) if parts else F.struct(F.lit(0).alias("c0"))

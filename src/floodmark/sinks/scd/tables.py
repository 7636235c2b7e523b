"""Adding a batch to the log and bringing the table up to it: the two commits, and what each needs to know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from floodmark.errors import ConflictingEvents
from floodmark.sinks.contract import Batch, Recorded
from floodmark.sinks.refusals import refuse
from floodmark.sinks.scd_conflicts import BROADCAST_AT_MOST, Survey, surveyed
from floodmark.sinks.scd_events import (
    CONTESTED,
    REFUSED,
    SINCE,
    Ordering,
    contradicting,
    last_of_each_moment,
    received,
    winners,
)
from floodmark.sinks.scd_settle import SETTLED, refused_again
from floodmark.sinks.scd_tables import EventLog, RebuiltTable
from floodmark.spark.delta_tables import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FEW = 1_000
"""Events of a batch whose keys one task rebuilds."""


@dataclass(frozen=True)
class Pending(Batch):
    """A batch whose events wait in the log, known by its ledger alone."""

    @classmethod
    def of(cls, ledger: str, recorded: Recorded) -> Pending:
        now = datetime.now(timezone.utc)
        return cls("", ledger, recorded.number, "fence", recorded.digest or "", "batch", now)

    def ledger(self, sink: str) -> str:
        return self.job


@dataclass(frozen=True)
class Keeping:
    """A log, the table that follows from it, and how: `shape` makes rows of the events that count."""

    name: str
    order: Ordering
    log: EventLog
    table: RebuiltTable
    shape: Callable[[DataFrame], DataFrame]

    def add(self, events: DataFrame, batch: Batch) -> int:
        """The first commit. Raises ConflictingEvents before anything is written."""
        spark, ledger = events.sparkSession, batch.ledger(self.name)
        stored = None if batch.kind == "refresh" else self.log.read(spark)
        arriving, survey = self._received(events, stored, batch), Survey()
        if self.log.number(ledger, lambda: spark) < batch.number and self.order.ties != "quarantine":
            accepted = stored.where(f"{REFUSED} IS NULL") if stored is not None else None
            survey = surveyed(arriving, accepted, self.order)
        if survey.conflict:
            raise ConflictingEvents(batch.job, sink=self.name, key=survey.conflict[0], sequence=survey.conflict[1])
        return self.log.append(arriving, batch, survey.events)

    def rebuild(self, spark: SparkSession, batch: Batch, arrived: int | None = None) -> None:
        """The second commit: every key with events above the number that the table has, from all its events."""
        from pyspark.sql import functions as F

        ledger = batch.ledger(self.name)
        done = self.table.number(ledger, lambda: spark)
        if done >= batch.number:
            return
        held, events = self.table.read(spark), self.log.accepted(spark)
        if events is None:
            return
        if held is None or batch.kind == "refresh":
            self.table.fill(self.rows_of(events), batch)
            return
        keys = self.log.touched_keys(events, ledger, done)
        keys = F.broadcast(keys) if arrived is not None and arrived <= BROADCAST_AT_MOST else keys
        self.rebuild_keys(keys, events, held, batch, arrived)

    def rebuild_keys(
        self, keys: DataFrame, events: DataFrame, held: DataFrame, batch: Batch, arrived: int | None = None
    ) -> None:
        """Turn what the table holds of these keys into what follows from their events, in one commit."""
        own = [quoted(name) for name in self.order.key]
        told, old = (each.join(keys, list(self.order.key), "left_semi") for each in (events, held))
        few = arrived is not None and arrived <= FEW
        # Rows in one place need not be moved again, however they are grouped, ordered and joined.
        told, old = (told.repartition(1), old.repartition(1)) if few else (told.repartition(*own), old)
        self.table.exchange(self.rows_of(told), self._above_floor(old, held.sparkSession), batch, few=few)

    def rows_of(self, events: DataFrame) -> DataFrame:
        """The table's rows for these events, which are all that their keys have."""
        return self.shape(self.counting(events))

    def counting(self, events: DataFrame) -> DataFrame:
        """One event of each key and moment: the one that counts."""
        agreed = f"NOT {CONTESTED}" if self.order.ties == "quarantine" else self._agreed()
        return last_of_each_moment(winners(events, self.order).where(agreed).drop(CONTESTED), self.order)

    def refused(self, spark: SparkSession) -> DataFrame | None:
        """Every event that has no place in the table, with the reason; None while there is no log."""
        every = self.log.read(spark)
        return self.refused_among(every) if every is not None else None

    def refused_among(self, events: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        accepted, without_place = (events.where(f"{REFUSED} IS {state}") for state in ("NULL", "NOT NULL"))
        reason = F.lit("another event of the same key and sequence says something else")
        return without_place.unionByName(contradicting(accepted, self.order).withColumn(REFUSED, reason))

    def _received(self, events: DataFrame, stored: DataFrame | None, batch: Batch) -> DataFrame:
        """The events as the log takes them, with a reason on those that have no place."""
        spark, ledger = events.sparkSession, batch.ledger(self.name)
        floors = self.log.floors(spark) if stored is not None else None
        arriving = received(events, self.order, floors, ledger=ledger, number=batch.number)
        if stored is None or not self.table.number(SETTLED, lambda: spark):
            return arriving
        return refused_again(arriving, stored, self.order)

    def _agreed(self) -> Column:
        """The log holds no contradictions, since they were refused on arrival; if it does, nothing is guessed."""
        from pyspark.sql import functions as F

        shown = F.to_json(F.struct(*map(quoted, (*self.order.key, *self.order.sequence))))
        reason = F.concat(F.lit("the log has events that contradict each other at "), shown)
        return F.when(F.col(CONTESTED), refuse(reason).cast("boolean")).otherwise(F.lit(True))

    def _above_floor(self, held: DataFrame, spark: SparkSession) -> DataFrame:
        """Versions that ended before a key's floor can no longer be rebuilt, and stay as they are."""
        from pyspark.sql import functions as F

        floors = self.log.floors(spark)
        if floors is None or "valid_from" not in held.columns:
            return held
        known = held.join(F.broadcast(floors.select(*map(quoted, self.order.key), SINCE)), list(self.order.key), "left")
        return known.where(f"{SINCE} IS NULL OR valid_from >= {SINCE}").drop(SINCE)

"""The two Delta tables behind a table with history: its log of events, and the rows that are rebuilt from it.

A batch is two commits, one to each; what they decide by is in `events`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Literal

from floodmark.errors import ConflictingEvents
from floodmark.locations import quote
from floodmark.sinks.contract import Batch, Recorded, Session, require_own_number, written_columns
from floodmark.sinks.delta import Delta
from floodmark.sinks.delta.merge import merge_statement, shared_view
from floodmark.sinks.refusals import EARLIER, ID, REASON, row_id
from floodmark.sinks.scd.events import (
    BROADCAST_AT_MOST,
    CONTESTED,
    CONTRADICTED,
    FLOOR,
    LEDGER,
    LOG_COLUMNS,
    NUMBER,
    PLACE,
    REFUSED,
    SET_ASIDE,
    SINCE,
    Ordering,
    Survey,
    contradictions,
    last_of_each_moment,
    log_rows,
    newly_contested,
    row_changes,
    still_set_aside,
    survey_of,
    winners,
)
from floodmark.spark.faults import raise_in_plan
from floodmark.spark.schemas import EXACT_JSON

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LOG_SUFFIX = "__events"
IN_ONE_FILE = 100_000
"""Events of a batch that one task writes."""
SMALL_BYTES = 1 << 20
ONCE = {"spark.databricks.delta.merge.materializeSource": "all"}
"""A merge asks for its rows up to three times: rebuilding them each time would be most of its cost."""
IN_ONE_PLACE = {
    "spark.databricks.delta.merge.deletionVectors.persistent": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""For few rows and a small table: it is written as a whole, which is quicker than to mark rows in it; one task does it,
and there is nothing to learn on the way."""
PRUNED = "floodmark.prune"
"""The ledger under which a log counts how often it was pruned."""
SETTLED = "floodmark.settle"
"""The ledger under which a table counts how often it was settled."""
VECTORS = "delta.enableDeletionVectors"
"""With it, rows that change are marked in their files and written anew beside them: a few keys cost no whole file. But
readers without Spark (deltalake, polars, duckdb) do not all know it, so it has to be asked for."""
FEW = 1_000
"""Events of a batch whose keys one task rebuilds."""


@dataclass(frozen=True)
class HistoryTables:
    """A log, the table that follows from it, and how: `shape` makes rows of the events that count.

    Where the log is the source of a job it is never pruned, and has no floors.
    """

    name: str
    order: Ordering
    log: EventLog
    table: RebuiltTable
    shape: Callable[[DataFrame], DataFrame]
    has_floors: bool = True

    def add(self, events: DataFrame, batch: Batch) -> int:
        """The first commit. Raises ConflictingEvents before anything is written."""
        spark, ledger = events.sparkSession, batch.ledger(self.name)
        stored = None if batch.kind == "refresh" else self.log.read(spark)
        arriving, survey = self._log_rows(events, stored, batch), Survey()
        if self.log.number(ledger, lambda: spark) < batch.number and self.order.ties != "quarantine":
            accepted = stored.where(f"{REFUSED} IS NULL") if stored is not None else None
            survey = survey_of(arriving, accepted, self.order)
        if survey.conflict:
            raise ConflictingEvents(batch.job, sink=self.name, key=survey.conflict[0], sequence=survey.conflict[1])
        return self.log.append(arriving, batch, survey.events)

    def rebuild(self, spark: SparkSession, batch: Batch, arrived: int | None = None) -> None:
        """The second commit: every key with events above the number that the table has, from all its events."""
        from pyspark.sql import functions as F

        ledger = batch.ledger(self.name)
        recorded = self.table.sink.target.recorded(ledger, lambda: spark) or Recorded(0)
        if recorded.number >= batch.number:
            require_own_number(recorded, batch, self.name)
            return
        held, events = self.table.read(spark), self.log.accepted_events(spark)
        if events is None:
            return
        if held is None or batch.kind == "refresh":
            self.table.fill(self.rows_of(events), batch)
            return
        keys = self.log.touched_keys(events, ledger, recorded.number)
        keys = F.broadcast(keys) if arrived is not None and arrived <= BROADCAST_AT_MOST else keys
        self.rebuild_keys(keys, events, held, batch, arrived)

    def rebuild_from(self, arriving: DataFrame, every: DataFrame, batch: Batch) -> int:
        """The one commit of a table whose log is the source: the keys that arrive, from all their events there.

        Returns how many arrived. Raises ConflictingEvents before anything is written.
        """
        from pyspark.sql import functions as F

        spark, ledger = arriving.sparkSession, batch.ledger(self.name)
        came, events = (log_rows(rows, self.order, None, ledger=ledger, number=0) for rows in (arriving, every))
        sound = events.where(f"{REFUSED} IS NULL")
        arrived, held = came.count(), self.table.read(spark)
        recorded = self.table.sink.target.recorded(ledger, lambda: spark) or Recorded(0)
        if recorded.number >= batch.number:
            require_own_number(recorded, batch, self.name)
            return arrived
        if conflict := survey_of(came, sound, self.order).conflict:
            raise ConflictingEvents(batch.job, sink=self.name, key=conflict[0], sequence=conflict[1])
        if held is None or batch.kind == "refresh":
            self.table.fill(self.rows_of(sound), batch)
            return arrived
        keys = came.select(*map(quote, self.order.key))
        # Few keys are sent to every task, so that the source is filtered where it is read and not moved.
        self.rebuild_keys(F.broadcast(keys) if arrived <= BROADCAST_AT_MOST else keys, sound, held, batch, arrived)
        return arrived

    def rebuild_keys(
        self, keys: DataFrame, events: DataFrame, held: DataFrame, batch: Batch, arrived: int | None = None
    ) -> None:
        """Turn what the table holds of these keys into what follows from their events, in one commit."""
        own = [quote(name) for name in self.order.key]
        new, old = (each.join(keys, list(self.order.key), "left_semi") for each in (events, held))
        few = arrived is not None and arrived <= FEW
        # Rows in one place need not be moved again, however they are grouped, ordered and joined.
        new, old = (new.repartition(1), old.repartition(1)) if few else (new.repartition(*own), old)
        self.table.exchange(self.rows_of(new), self._above_floor(old, held.sparkSession), batch, few=few)

    def rows_of(self, events: DataFrame) -> DataFrame:
        """The table's rows for these events, which are all that their keys have."""
        return self.shape(self.counting_events(events))

    def counting_events(self, events: DataFrame) -> DataFrame:
        """One event of each key and moment: the one that counts."""
        agreed = f"NOT {CONTESTED}" if self.order.ties == "quarantine" else self._without_conflict()
        return last_of_each_moment(winners(events, self.order).where(agreed).drop(CONTESTED), self.order)

    def may_refuse(self, session: Session) -> bool:
        """Whether an event with key and sequence may have no place: below a floor, or against another one."""
        return self.order.ties == "quarantine" or self.log.was_pruned(session)

    def refused_since(self, spark: SparkSession, batch: Batch) -> DataFrame | None:
        """What has no place since a batch that the log has: its own events, and earlier ones that they contradict.

        Events that came later are not looked at, so that it is the same whenever it is asked.
        """
        from pyspark.sql import functions as F

        every = self.log.read(spark)
        if every is None:
            return None
        arrived = (F.col(LEDGER) == batch.ledger(self.name)) & (F.col(NUMBER) == batch.number)
        until = every.where((F.col(LEDGER) != batch.ledger(self.name)) | (F.col(NUMBER) <= batch.number))
        refused = until.where(arrived & F.col(REFUSED).isNotNull()).withColumn(EARLIER, F.lit(False))
        if self.order.ties == "quarantine":
            contested = newly_contested(until.where(f"{REFUSED} IS NULL"), self.order, arrived)
            refused = refused.unionByName(contested.withColumn(REFUSED, F.lit(CONTRADICTED)))
        return self.with_ids(refused)

    def ids(self, spark: SparkSession) -> tuple[DataFrame, DataFrame] | None:
        """As the quarantine knows them: events that contradict each other still, and those that were set aside."""
        from pyspark.sql import functions as F

        every = self.log.read(spark)
        if every is None:
            return None
        contested = contradictions(every.where(f"{REFUSED} IS NULL"), self.order)
        parts = (contested, every.where(f"{REFUSED} = '{SET_ASIDE}'"))
        undecided, given_up = (self.with_ids(part).select(F.col(ID).alias("id")) for part in parts)
        return undecided, given_up

    def with_ids(self, events: DataFrame) -> DataFrame:
        """The user's columns of events that have no place, as the quarantine takes them."""
        from pyspark.sql import functions as F

        own = self.order.payload(events.columns)
        named = events.withColumn(ID, row_id([name for name in own if name != EARLIER], LEDGER, NUMBER, PLACE))
        return named.withColumn(REASON, F.col(REFUSED)).drop(*LOG_COLUMNS)

    def refused_events(self, spark: SparkSession) -> DataFrame | None:
        """Every event that has no place in the table, with the reason; None while there is no log."""
        every = self.log.read(spark)
        return self.refused_among(every) if every is not None else None

    def refused_among(self, events: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        accepted, without_place = (events.where(f"{REFUSED} IS {state}") for state in ("NULL", "NOT NULL"))
        contested = contradictions(accepted, self.order).withColumn(REFUSED, F.lit(CONTRADICTED))
        return without_place.unionByName(contested)

    def _log_rows(self, events: DataFrame, stored: DataFrame | None, batch: Batch) -> DataFrame:
        """The events as the log takes them, with a reason on those that have no place."""
        spark, ledger = events.sparkSession, batch.ledger(self.name)
        floors = self.log.floors(spark) if stored is not None else None
        arriving = log_rows(events, self.order, floors, ledger=ledger, number=batch.number)
        if stored is None or not self.table.number(SETTLED, lambda: spark):
            return arriving
        return still_set_aside(arriving, stored, self.order)

    def _without_conflict(self) -> Column:
        """The log holds no contradictions, since they were refused on arrival; if it does, nothing is guessed."""
        from pyspark.sql import functions as F

        shown = F.to_json(F.struct(*map(quote, (*self.order.key, *self.order.sequence))), EXACT_JSON)
        reason = F.concat(F.lit("the log has events that contradict each other at "), shown)
        return F.when(F.col(CONTESTED), raise_in_plan("sink", reason).cast("boolean")).otherwise(F.lit(True))

    def _above_floor(self, held: DataFrame, spark: SparkSession) -> DataFrame:
        """Versions that ended before a key's floor can no longer be rebuilt, and stay as they are."""
        from pyspark.sql import functions as F

        floors = self.log.floors(spark) if self.has_floors else None
        if floors is None or "valid_from" not in held.columns:
            return held
        known = held.join(F.broadcast(floors.select(*map(quote, self.order.key), SINCE)), list(self.order.key), "left")
        return known.where(f"{SINCE} IS NULL OR valid_from >= {SINCE}").drop(SINCE)


@dataclass(frozen=True)
class EventLog:
    """Every event that ever came, in the order of the batches; within one batch ordered by key."""

    sink: Delta
    order: Ordering

    @classmethod
    def beside(cls, table: Delta, order: Ordering) -> EventLog:
        path, name = (f"{at}{LOG_SUFFIX}" if at else None for at in (table.path, table.table))
        return cls(replace(table, path=path, table=name, mode="append", partition_by=(), cluster_by=()), order)

    def append(self, events: DataFrame, batch: Batch, count: int | None = None) -> int:
        """Once per batch number; returns how many came then. `count` is about how many there are, if that is known."""
        keys = [quote(name) for name in self.order.key]
        # To find ranges, the events are read once more: for one file there is nothing to find.
        is_small = count is not None and count <= IN_ONE_FILE
        parted = events.repartition(1) if is_small else events.repartitionByRange(*keys)
        return self.sink.write(parted.sortWithinPartitions(*keys, quote(self.order.moment)), batch) or 0

    def number(self, ledger: str, session: Session) -> int:
        """The highest batch whose events it has."""
        recorded = self.sink.target.recorded(ledger, session)
        return recorded.number if recorded else 0

    def last_batch(self, ledger: str, session: Session) -> FenceBatch | None:
        """The last batch that brought events, whatever was fenced since; None if there was none, or nobody knows."""
        target = self.sink.target
        recorded, commit = target.recorded(ledger, session), target.last_batch(ledger, session)
        if commit is not None and commit.number is not None:
            kind: Literal["batch", "refresh"] = "refresh" if commit.replaces_all else "batch"
            return FenceBatch.of(ledger, commit.number, commit.digest, kind)
        if recorded is None or recorded.is_fence:
            return None
        return FenceBatch.of(ledger, recorded.number, recorded.digest, "batch")

    def read(self, spark: SparkSession) -> DataFrame | None:
        """All events; None while there is no log."""
        return self.sink.read(lambda: spark)

    def accepted_events(self, spark: SparkSession) -> DataFrame | None:
        """The events that were not refused."""
        every = self.read(spark)
        return every.where(f"{REFUSED} IS NULL") if every is not None else None

    def touched_keys(self, events: DataFrame, ledger: str, after: int) -> DataFrame:
        """The keys of events that came above a batch number, each as often as it came."""
        from pyspark.sql import functions as F

        return events.where((F.col(LEDGER) == ledger) & (F.col(NUMBER) > after)).select(*map(quote, self.order.key))

    def was_pruned(self, session: Session) -> bool:
        """Whether it has floors; the table's transactions tell at once."""
        return self.sink.target.recorded(PRUNED, session) is not None

    def floors(self, spark: SparkSession) -> DataFrame | None:
        """Per key, where it was pruned; None if that never happened."""
        every = self.read(spark) if self.was_pruned(lambda: spark) else None
        if every is None:
            return None
        return every.where(f"{FLOOR} IS NOT NULL").select(*map(quote, self.order.key), FLOOR, SINCE)


@dataclass(frozen=True)
class RebuiltTable:
    """The rows that follow from the log; `identity` tells them apart. Whoever builds on it reads its change feed."""

    sink: Delta
    identity: tuple[str, ...]

    @classmethod
    def of(cls, table: Delta, identity: tuple[str, ...], *, deletion_vectors: bool) -> RebuiltTable:
        properties = {VECTORS: str(deletion_vectors).lower()}
        return cls(replace(table, mode="merge", key=identity, change_feed=True, _properties=properties), identity)

    def number(self, ledger: str, session: Session) -> int:
        """The highest batch that it has."""
        recorded = self.sink.target.recorded(ledger, session)
        return recorded.number if recorded else 0

    def read(self, spark: SparkSession) -> DataFrame | None:
        return self.sink.read(lambda: spark)

    def fill(self, rows: DataFrame, batch: Batch) -> None:
        """All rows of a table that has none yet, or has others: nothing there has to be compared."""
        replace(self.sink, mode="append", key=()).write(rows, batch)

    def exchange(self, rows: DataFrame, held: DataFrame, batch: Batch, *, few: bool) -> None:
        """Turn the rows that are held into these, writing only what differs, in one commit.

        The changes are unique and say themselves whether they delete. `few`: one task can hold them.
        """
        changes, spark, target = row_changes(rows, held, self.identity), rows.sparkSession, self.sink.target

        def merge(_exists: bool) -> None:
            probe = target.probe(lambda: spark) if few else None
            is_small = probe is not None and probe.files_and_bytes()[1] <= SMALL_BYTES
            settings = {**ONCE, **(IN_ONE_PLACE if is_small else {})}
            with shared_view(changes) as view:
                parts = (target.place.sql, view, written_columns(changes), self.identity, ())
                target.run(merge_statement(*parts, evolve=self.sink.evolve), batch, spark, settings)

        target.write_once(changes, batch, merge)


@dataclass(frozen=True)
class FenceBatch(Batch):
    """What is left of a batch when only its ledger and number are known: nobody says any more which job it was."""

    ledger_name: str = ""

    @classmethod
    def of(cls, ledger: str, number: int, digest: str | None, kind: Literal["batch", "refresh"]) -> FenceBatch:
        now = datetime.now(timezone.utc)
        return cls("", ledger, number, "fence", digest or "", kind, now, ledger_name=ledger)

    def ledger(self, sink: str) -> str:
        return self.ledger_name

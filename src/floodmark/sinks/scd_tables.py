"""The two Delta tables behind a table with history: its log of events, and the rows that are rebuilt from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from floodmark.sinks.contract import Batch, Session
from floodmark.sinks.delta import Delta
from floodmark.sinks.scd_events import FLOOR, LEDGER, NUMBER, REFUSED, SINCE, Ordering
from floodmark.sinks.scd_versions import changes
from floodmark.spark.delta_tables import DeltaPlace, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG_SUFFIX = "__events"
PRUNED = "floodmark.prune"
"""The ledger under which a log counts how often it was pruned."""
PROPERTIES = {
    # Rows that change are marked in their files and written anew beside them: a few keys cost no whole file.
    "delta.enableDeletionVectors": "true",
    # Whoever builds on the table reads what changed.
    "delta.enableChangeDataFeed": "true",
}


@dataclass(frozen=True)
class EventLog:
    """Every event that ever came, in the order of the batches; within one batch ordered by key."""

    sink: Delta
    order: Ordering

    @classmethod
    def beside(cls, table: Delta, order: Ordering) -> EventLog:
        path, name = (f"{at}{LOG_SUFFIX}" if at else None for at in (table.path, table.table))
        return cls(replace(table, path=path, table=name, mode="append"), order)

    def append(self, events: DataFrame, batch: Batch) -> int:
        """Once per batch number; returns how many came then."""
        keys = [quoted(name) for name in self.order.key]
        clustered = events.repartitionByRange(*keys).sortWithinPartitions(*keys, quoted(self.order.moment))
        return self.sink.write(clustered, batch) or 0

    def number(self, ledger: str, session: Session) -> int:
        recorded = self.sink.recorded(ledger, session)
        return recorded.number if recorded else 0

    def read(self, spark: SparkSession) -> DataFrame | None:
        """All events; None while there is no log."""
        return frame_of(self.sink, spark)

    def accepted(self, spark: SparkSession) -> DataFrame | None:
        """The events that were not refused."""
        every = self.read(spark)
        return every.where(f"{REFUSED} IS NULL") if every is not None else None

    def touched_keys(self, events: DataFrame, ledger: str, after: int) -> DataFrame:
        """The keys of events that came above a batch number."""
        from pyspark.sql import functions as F

        return (
            events.where((F.col(LEDGER) == ledger) & (F.col(NUMBER) > after))
            .select(*map(quoted, self.order.key))
            .distinct()
        )

    def floors(self, spark: SparkSession) -> DataFrame | None:
        """Per key, where it was pruned; None if that never happened, which the table's transactions tell at once."""
        every = self.read(spark) if self.sink.recorded(PRUNED, lambda: spark) else None
        if every is None:
            return None
        return every.where(f"{FLOOR} IS NOT NULL").select(*map(quoted, self.order.key), FLOOR, SINCE)


@dataclass(frozen=True)
class ExactChanges(Delta):
    """A merge whose rows are unique already, and say themselves whether they delete."""

    def _newest(self, rows: DataFrame) -> DataFrame:
        return rows

    def _properties(self) -> dict[str, str]:
        return PROPERTIES


@dataclass(frozen=True)
class RebuiltTable:
    """The rows that follow from the log; `identity` tells them apart."""

    sink: Delta
    identity: tuple[str, ...]

    def number(self, ledger: str, session: Session) -> int:
        recorded = self.sink.recorded(ledger, session)
        return recorded.number if recorded else 0

    def read(self, spark: SparkSession) -> DataFrame | None:
        return frame_of(self.sink, spark)

    def fill(self, rows: DataFrame, batch: Batch) -> None:
        """All rows of a table that has none yet, or has others: nothing there has to be compared."""
        as_it_comes = replace(self.sink, mode="append", key=())
        as_it_comes.write(rows, batch)

    def exchange(self, rows: DataFrame, held: DataFrame, batch: Batch) -> None:
        """Turn the rows that are held into these, writing only what differs, in one commit."""
        self.sink.write(changes(rows, held, self.identity), batch)


def rebuilt(table: Delta, identity: Sequence[str]) -> RebuiltTable:
    """The table as a target of exact changes."""
    given = {name: getattr(table, name) for name in ("path", "table", "name", "evolve", "patience_seconds")}
    return RebuiltTable(ExactChanges(**given, mode="merge", key=tuple(identity)), tuple(identity))


def frame_of(sink: Delta, spark: SparkSession) -> DataFrame | None:
    """The table as it is now, if it exists."""
    if sink.schema(lambda: spark) is None:
        return None
    location = DeltaPlace(sink.path, sink.table).location(lambda: spark)
    return spark.read.format("delta").load(location)

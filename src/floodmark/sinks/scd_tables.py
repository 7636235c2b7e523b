"""The two Delta tables behind a table with history: its log of events, and the rows that are rebuilt from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from floodmark.sinks.contract import Batch, Session
from floodmark.sinks.delta import Delta
from floodmark.sinks.scd_events import FLOOR, LEDGER, NUMBER, REFUSED, SINCE, Ordering
from floodmark.sinks.scd_versions import changes
from floodmark.spark.delta_tables import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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

    def append(self, events: DataFrame, batch: Batch, count: int | None = None) -> int:
        """Once per batch number; returns how many came then. `count` is about how many there are, if that is known."""
        keys = [quoted(name) for name in self.order.key]
        # To find ranges, the events are read once more: for one file there is nothing to find.
        is_small = count is not None and count <= IN_ONE_FILE
        parted = events.repartition(1) if is_small else events.repartitionByRange(*keys)
        return self.sink.write(parted.sortWithinPartitions(*keys, quoted(self.order.moment)), batch) or 0

    def number(self, ledger: str, session: Session) -> int:
        recorded = self.sink.recorded(ledger, session)
        return recorded.number if recorded else 0

    def read(self, spark: SparkSession) -> DataFrame | None:
        """All events; None while there is no log."""
        return self.sink.read(lambda: spark)

    def accepted(self, spark: SparkSession) -> DataFrame | None:
        """The events that were not refused."""
        every = self.read(spark)
        return every.where(f"{REFUSED} IS NULL") if every is not None else None

    def touched_keys(self, events: DataFrame, ledger: str, after: int) -> DataFrame:
        """The keys of events that came above a batch number, each as often as it came."""
        from pyspark.sql import functions as F

        return events.where((F.col(LEDGER) == ledger) & (F.col(NUMBER) > after)).select(*map(quoted, self.order.key))

    def floors(self, spark: SparkSession) -> DataFrame | None:
        """Per key, where it was pruned; None if that never happened, which the table's transactions tell at once."""
        every = self.read(spark) if self.sink.recorded(PRUNED, lambda: spark) else None
        if every is None:
            return None
        return every.where(f"{FLOOR} IS NOT NULL").select(*map(quoted, self.order.key), FLOOR, SINCE)


@dataclass(frozen=True)
class ExactChanges(Delta):
    """A merge whose rows are unique already, and say themselves whether they delete; `few`: one task can hold them."""

    few: bool = False

    def _newest(self, rows: DataFrame) -> DataFrame:
        return rows

    def _settings(self, batch: Batch, spark: SparkSession) -> dict[str, str]:
        probe = self._looked(lambda: spark) if self.few else None
        is_small = probe is not None and probe.files_and_bytes()[1] <= SMALL_BYTES
        return {**super()._settings(batch, spark), **ONCE, **(IN_ONE_PLACE if is_small else {})}

    def _properties(self) -> dict[str, str]:
        return PROPERTIES


@dataclass(frozen=True)
class RebuiltTable:
    """The rows that follow from the log; `identity` tells them apart."""

    sink: ExactChanges
    identity: tuple[str, ...]

    def number(self, ledger: str, session: Session) -> int:
        recorded = self.sink.recorded(ledger, session)
        return recorded.number if recorded else 0

    def read(self, spark: SparkSession) -> DataFrame | None:
        return self.sink.read(lambda: spark)

    def fill(self, rows: DataFrame, batch: Batch) -> None:
        """All rows of a table that has none yet, or has others: nothing there has to be compared."""
        as_it_comes = replace(self.sink, mode="append", key=())
        as_it_comes.write(rows, batch)

    def exchange(self, rows: DataFrame, held: DataFrame, batch: Batch, *, few: bool) -> None:
        """Turn the rows that are held into these, writing only what differs, in one commit."""
        replace(self.sink, few=few).write(changes(rows, held, self.identity), batch)


def rebuilt(table: Delta, identity: Sequence[str]) -> RebuiltTable:
    """The table as a target of exact changes."""
    given = {name: getattr(table, name) for name in ("path", "table", "name", "evolve", "patience_seconds")}
    return RebuiltTable(ExactChanges(**given, mode="merge", key=tuple(identity)), tuple(identity))

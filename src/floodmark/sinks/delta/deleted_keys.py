"""The keys that a merge deleted, each with the sequence of its delete, beside the target: `<table>__deleted`.

Without them a row that is older than the delete, and comes later, would bring its key back. The target is committed
first and this table second: a batch that never reaches the target must leave no deletes behind, since they would keep
rows out for good. A run that is killed between the two finds its batch open, and the same rows again, before anybody
can write the next one; so no later batch is ever judged by a table that lacks this one's deletes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from floodmark.locations import quote
from floodmark.sinks.contract import DELETE, Batch, Session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from floodmark.probes.delta import Commit
    from floodmark.sinks.delta import Delta

SUFFIX = "__deleted"
DELETED_AT = "_deleted_at"
"""The time of the batch that deleted the key: by it an entry grows old."""
LAST = "_fm_deleted"
COMMITS_BETWEEN_PRUNING = 20
NOT_KEPT = timedelta(0)


@dataclass(frozen=True)
class DeletedKeys:
    """Deleted keys by `key` and `sequence`, an entry for every delete; after `keep` they are forgotten (None: never).

    Entries are only added, so that a rollback finds how it was after any batch.
    """

    sink: Delta
    key: tuple[str, ...]
    sequence: tuple[str, ...]
    keep: timedelta | None = None

    @classmethod
    def beside(cls, table: Delta, sequence: tuple[str, ...]) -> DeletedKeys:
        path, name = (f"{at}{SUFFIX}" if at else None for at in (table.path, table.table))
        own = type(table)(path, name, name=table.name, patience_seconds=table.patience_seconds)
        return cls(own, table.key, sequence, table.keep_deleted)

    def exists(self, session: Session) -> bool:
        """Whether anything was ever deleted."""
        return self.sink.target.table(session) is not None

    def without_older(self, newest: DataFrame, batch: Batch) -> DataFrame:
        """The rows of a batch that come after the last delete of their key; one of the same sequence does not.

        So the order in which a delete and an upsert of one moment arrive has no say.
        """
        from pyspark.sql import functions as F

        entries = self.sink.read(lambda: newest.sparkSession)
        if entries is None:
            return newest
        known = entries.where(F.col(DELETED_AT) >= self._oldest(batch)) if self.keep else entries
        last = known.groupBy(*map(quote, self.key)).agg(F.max(self._order()).alias(LAST))
        met = newest.join(last, list(self.key), "left")
        counts = F.col(DELETE) | F.col(LAST).isNull() | (self._order() > F.col(LAST))
        return met.where(counts).select(*map(quote, newest.columns))

    def remember(self, newest: DataFrame, batch: Batch, commit: Commit | None) -> None:
        """Add the deletes of a batch that the target has, once per number; `commit` is what its log says of it."""
        from pyspark.sql import functions as F

        spark = newest.sparkSession
        if batch.kind != "refresh" and not may_have_deleted(commit):
            return
        moment = F.lit(batch.batch_time).alias(DELETED_AT)
        deleted = newest.where(DELETE).select(*map(quote, self._columns()), moment)
        if not self.exists(lambda: spark):
            if deleted.isEmpty():
                return
            # Under number 0 there is nothing in it: where a rollback to before the first delete goes.
            self.sink.fence(batch.ledger(self.sink.name), 0, lambda: spark)
        # Batches without a delete are not in here, so what the target has confirmed says nothing about it.
        self.sink.write(deleted, replace(batch, confirmed={}))
        self._prune(batch, lambda: spark)

    def fence(self, ledger: str, number: int, session: Session) -> None:
        """Where there is a table: a paused run must not add to one that was put back meanwhile."""
        if self.exists(session):
            self.sink.fence(ledger, number, session)

    def _columns(self) -> Sequence[str]:
        return [*self.key, *(name for name in self.sequence if name not in self.key)]

    def _order(self) -> Column:
        """Compared left to right, with NULL below every value."""
        from pyspark.sql import functions as F

        return F.struct(*map(quote, self.sequence))

    def _oldest(self, batch: Batch) -> Column:
        from pyspark.sql import functions as F

        return F.lit(batch.batch_time - (self.keep or NOT_KEPT))

    def _prune(self, batch: Batch, session: Session) -> None:
        """What is too old is not asked for any more; now and then it is taken out, too."""
        probe = self.sink.target.probe(session)
        if not self.keep or probe is None or probe.latest() % COMMITS_BETWEEN_PRUNING:
            return
        oldest = (batch.batch_time - self.keep).isoformat(sep=" ")
        statement = f"DELETE FROM {self.sink.target.place.sql} WHERE {DELETED_AT} < TIMESTAMP '{oldest}'"
        self.sink.target.tidy(statement, batch, session())


def may_have_deleted(commit: Commit | None) -> bool:
    """Whether a merge may have had deletes: those of keys that the table did not have are counted nowhere.

    Every row that was neither inserted nor updated is a delete, or older than what is stored.
    """
    if commit is None or commit.operation != "MERGE" or "numSourceRows" not in commit.metrics:
        return True
    written = (commit.inserted_rows or 0) + commit.updated_rows
    return commit.deleted_rows > 0 or commit.metrics["numSourceRows"] > written

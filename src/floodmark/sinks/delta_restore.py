"""Putting a Delta table back to how a batch left it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.probes.delta import DeltaProbe
from floodmark.probes.delta_commit import note
from floodmark.sinks.delta import Delta
from floodmark.spark.delta_tables import DeltaPlace
from floodmark.spark.session import isolated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class RestorePoint:
    """A table, and its version after a batch."""

    table: Delta
    ledger: str
    version: int

    @classmethod
    def after(cls, table: Delta, ledger: str, number: int, spark: SparkSession) -> RestorePoint:
        """Where the batch left the table. Raises ConfigError if the log no longer knows, or others wrote since."""
        location = DeltaPlace(table.path, table.table).location(lambda: spark)
        probe = DeltaProbe(location or "")
        commit = probe.commit_of(ledger, number) if location and probe.refresh() else None
        if commit is None:
            raise ConfigError(
                f"the log of {table.describe()} does not have batch {number}.",
                hint="choose a later one, or rebuild with --full-refresh",
            )
        for later in probe.commits(commit.version, probe.latest()):
            if later.changes_rows and later.ledger != ledger:
                raise ConfigError(
                    f"version {later.version} of {table.describe()} ({later.operation}) is not of this job,"
                    " and would be undone with it.",
                    hint="undo it by hand first, or set the mark alone with `floodmark marks set`",
                )
        return cls(table, ledger, commit.version)

    def restore(self, spark: SparkSession, number: int) -> None:
        """In one commit, with the number of this act; done twice it is the same."""
        own, place = isolated(spark), DeltaPlace(self.table.path, self.table.table)
        own.conf.set("spark.databricks.delta.commitInfo.userMetadata", note(self.ledger, number, None))
        with self.table.alone(spark, self.ledger):
            own.sql(f"RESTORE TABLE {place.sql} TO VERSION AS OF {self.version}").collect()

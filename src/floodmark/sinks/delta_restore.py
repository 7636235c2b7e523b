"""Putting a Delta table back to how a batch left it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.probes.delta import DeltaProbe
from floodmark.probes.delta_commit import note
from floodmark.probes.delta_files import files_gone
from floodmark.sinks.delta import Delta
from floodmark.spark.delta_tables import DeltaPlace
from floodmark.spark.session import isolated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from floodmark.probes.delta_commit import Commit
    from floodmark.sinks.contract import Session


@dataclass(frozen=True)
class RestorePoint:
    """A table, its version after a batch, the latest one, and the first in between that changed rows."""

    table: Delta
    ledger: str
    version: int
    latest: int
    changed: int | None = None

    @classmethod
    def after(cls, table: Delta, ledger: str, number: int, session: Session) -> RestorePoint:
        """Where the batch left the table.

        Raises ConfigError if the log no longer knows, if others wrote since, or if files are gone that it would need.
        """
        location = DeltaPlace(table.path, table.table).location(session)
        probe = DeltaProbe(location or "")
        commit = probe.commit_upto(ledger, number) if location and probe.refresh() else None
        if commit is None:
            raise ConfigError(
                f"the log of {table.describe()} does not have batch {number}.",
                hint="choose a later one, or rebuild with --full-refresh",
            )
        later = [each for each in probe.commits(commit.version, probe.latest()) if each.changes_rows]
        _require_own(later, ledger, table)
        _require_files(probe, commit.version, number, table)
        return cls(table, ledger, commit.version, probe.latest(), later[0].version if later else None)

    @property
    def name(self) -> str:
        """What the table is known by, also to those who read it."""
        return str(DeltaPlace(self.table.path, self.table.table))

    def holds(self, version: int) -> bool:
        """Whether the table, once it is put back, has every row that a reader has read up to a version."""
        return self.changed is None or version < self.changed

    def is_same(self, version: int) -> bool:
        """Whether a version has the very rows that the table will have."""
        return version >= self.version and self.holds(version)

    def restore(self, spark: SparkSession, number: int) -> None:
        """In one commit, with the number of this act; done twice it is the same."""
        own, place = isolated(spark), DeltaPlace(self.table.path, self.table.table)
        own.conf.set("spark.databricks.delta.commitInfo.userMetadata", note(self.ledger, number, None))
        with self.table.alone(spark, self.ledger):
            own.sql(f"RESTORE TABLE {place.sql} TO VERSION AS OF {self.version}").collect()


def _require_own(later: Sequence[Commit], ledger: str, table: Delta) -> None:
    for each in later:
        if each.ledger != ledger:
            raise ConfigError(
                f"version {each.version} of {table.describe()} ({each.operation}) is not of this job,"
                " and would be undone with it.",
                hint="undo it by hand first, or set the mark alone with `floodmark marks set`",
            )


def _require_files(probe: DeltaProbe, version: int, number: int, table: Delta) -> None:
    """RESTORE finds out by itself, but only when other tables may have been put back already."""
    gone = files_gone(probe.where, version, probe.latest())
    if gone == ():
        return
    what = f"{len(gone)} of its files are gone (vacuum), as {gone[0]}" if gone else "its log no longer reaches back"
    raise ConfigError(
        f"{table.describe()} cannot be as batch {number} left it (version {version}): {what}.",
        hint="choose a later one, or rebuild with --full-refresh",
    )

"""How the rows of a batch become events: a change log as it is, the change feed of a Delta table, whole snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from floodmark.errors import ConfigError
from floodmark.sinks.contract import Batch
from floodmark.sinks.scd_events import DELETE, LOG_COLUMNS
from floodmark.sinks.scd_snapshot import events_of_snapshots
from floodmark.spark.delta_tables import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Changes = Literal["log", "feed", "snapshot"]

CHANGE = "_change_type"
RENAMED = {"_commit_timestamp": "committed_at", "_commit_version": "committed_version"}
"""A table that has a change feed of its own may not have columns with the feed's names."""
SNAPSHOT_AT = "snapshot_at"


@dataclass(frozen=True)
class Arrival:
    """What the rows of a batch say, and when it holds."""

    name: str
    changes: Changes
    key: tuple[str, ...]
    given_sequence: tuple[str, ...]
    delete_when: str | None = None
    allow_empty: bool = False

    @property
    def sequence(self) -> tuple[str, ...]:
        default = {"feed": tuple(RENAMED.values()), "snapshot": (SNAPSHOT_AT,)}
        return self.given_sequence or default.get(self.changes, ())

    def events(self, rows: DataFrame, current: DataFrame | None, batch: Batch) -> DataFrame:
        """The rows as events, with DELETE on those that delete; `current` is what the table shows now."""
        from pyspark.sql import functions as F

        if self.changes == "feed":
            return events_of_feed(rows, self.key)
        if self.changes == "snapshot":
            return events_of_snapshots(self, rows, current, batch)
        deletes = F.coalesce(F.expr(self.delete_when), F.lit(False)) if self.delete_when else F.lit(False)
        return rows.withColumn(DELETE, deletes)

    def expected(self, stored: StructType) -> StructType:
        """What the rows of a batch have to fit: the user's columns of the log, and those of a feed."""
        from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

        own = [column for column in stored.fields if column.name not in LOG_COLUMNS]
        if self.changes != "feed":
            return StructType(own)
        kinds = {CHANGE: StringType(), "_commit_timestamp": TimestampType(), "_commit_version": LongType()}
        return StructType([*own, *(StructField(name, kind) for name, kind in kinds.items())])

    def require_columns(self, rows: DataFrame, wanted: Sequence[str], reserved: Sequence[str]) -> None:
        """Raise ConfigError for a column that is missing from the rows, or that the table has for itself."""
        there = {RENAMED.get(name, name) if self.changes == "feed" else name for name in rows.columns}
        given = there | ({SNAPSHOT_AT} if self.changes == "snapshot" else set())
        missing = [name for name in (*wanted, *((CHANGE,) if self.changes == "feed" else ())) if name not in given]
        if missing:
            raise ConfigError(
                f"sink '{self.name}' needs column '{missing[0]}', and the rows have: {', '.join(rows.columns)}.",
                hint="keep it in the transform, or name another one",
            )
        own = [name for name in (*reserved, *LOG_COLUMNS) if name in rows.columns]
        if own:
            raise ConfigError(
                f"sink '{self.name}' makes column '{own[0]}' itself, and the rows have one of that name.",
                hint="rename it in the transform; `valid_from:` names a column that says when a key began",
            )


def events_of_feed(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """What a commit took away is a delete, unless the same commit put a row of that key there.

    So an update of the key itself deletes the old key, and a row that was exchanged counts as changed, not as gone.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    taken = F.col(CHANGE).isin("delete", "update_preimage")
    commit = Window.partitionBy(*map(quoted, key), "_commit_version")
    told = rows.select("*", taken.alias(DELETE), F.max(~taken).over(commit).alias("_fm_put"))
    kept = told.where(f"NOT {DELETE} OR NOT _fm_put")
    return kept.drop(CHANGE, "_fm_put").withColumnsRenamed(RENAMED)

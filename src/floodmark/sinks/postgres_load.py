"""What one batch needs to be staged and moved: its columns in the target, in the staging table and in the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.sinks.contract import POSITION
from floodmark.sinks.own_columns import written_columns
from floodmark.sinks.postgres_move import DELETE, POSITION_PART, Merge, Move
from floodmark.sinks.postgres_staging import Copied, Staging
from floodmark.sinks.postgres_target import Target, TargetColumn
from floodmark.sinks.postgres_types import as_copied
from floodmark.spark.delta_tables import quoted

if TYPE_CHECKING:
    from psycopg import Connection
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Load:
    """The rows as they are copied, and where to: columns that only help to choose stay behind in the staging table."""

    target: Target
    columns: tuple[TargetColumn, ...]
    staging: Staging
    rows: DataFrame

    def move(self, winners: Sequence[Copied]) -> Move:
        return Move(self.target, self.columns, self.staging.won(winners), sum(each.rows for each in winners))

    def merge(self, winners: Sequence[Copied], key: Sequence[str], sequence: Sequence[str]) -> Merge:
        """A stored row is compared by `sequence` only if the target keeps all of it."""
        ordered = tuple(column for name in sequence for column in _find(self.columns, name))
        positions = tuple(column for column in self.staging.columns if column.name.startswith(POSITION_PART))
        is_kept = self.target.exists and not any(column.is_new for column in ordered)
        return Merge(
            self.target,
            self.columns,
            self.staging.won(winners),
            sum(each.rows for each in winners),
            key=self.spelt(key, "key"),
            sequence=ordered if is_kept else (),
            order=(*ordered, *positions),
        )

    def spelt(self, names: Sequence[str], option: str) -> tuple[str, ...]:
        """The names as the target has them."""
        return spelt(self.columns, names, option)


def load_of(rows: DataFrame, target: Target, staging: Staging) -> Load:
    """For a mode that takes every row."""
    fields = [rows.schema[name] for name in written_columns(rows)]
    columns = target.fitted(fields)
    return Load(target, columns, replace(staging, columns=columns), rows.select(*map(as_copied, fields)))


def merge_load_of(
    rows: DataFrame, target: Target, staging: Staging, key: Sequence[str], delete_when: str | None
) -> Load:
    """For a merge: with the source's position and whether a row deletes beside the columns of the target."""
    from pyspark.sql import functions as F

    own = _with_position_parts(rows).withColumn(
        DELETE, F.coalesce(F.expr(delete_when), F.lit(False)) if delete_when else F.lit(False)
    )
    parts = [name for name in own.columns if name.startswith(POSITION_PART)]
    fields = [own.schema[name] for name in written_columns(rows)]
    helping = [own.schema[name] for name in (*parts, DELETE)]
    columns, more = target.fitted(fields), Target(target.schema, "").fitted(helping)
    staged = replace(staging, columns=(*columns, *more), key=spelt(columns, key, "key"))
    return Load(target, columns, staged, own.select(*map(as_copied, (*fields, *helping))))


def require_unique(connection: Connection, load: Load) -> None:
    """Raises ConfigError where the target has no unique index on the key: two writers could put one there twice."""
    from psycopg.sql import SQL, Identifier

    if not load.target.exists or load.target.has_unique(connection, load.staging.key):
        return
    columns = SQL(", ").join(map(Identifier, load.staging.key))
    wanted = SQL("CREATE UNIQUE INDEX ON {} ({})").format(load.target.sql, columns).as_string(connection)
    named = f"{load.target.schema}.{load.target.table}"
    raise ConfigError(f"table {named} has no unique index on the key of the merge.", hint=wanted)


def spelt(columns: Sequence[TargetColumn], names: Sequence[str], option: str) -> tuple[str, ...]:
    """The names that an option gives, as the columns are spelt. Raises ConfigError for one that is not there."""
    missing = [name for name in names if not _find(columns, name)]
    if missing:
        raise ConfigError(
            f"{option}: the rows have no column {', '.join(missing)}.",
            hint=f"one of: {', '.join(column.name for column in columns)}",
        )
    return tuple(_find(columns, name)[0].name for name in names)


def _with_position_parts(rows: DataFrame) -> DataFrame:
    """The position's fields as columns: JSON, which a struct would become, does not sort as a struct does."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    if POSITION not in rows.columns:
        return rows
    kind, position = rows.schema[POSITION].dataType, F.col(quoted(POSITION))
    parts = [position[name] for name in kind.names] if isinstance(kind, StructType) else [position]
    return rows.withColumns({f"{POSITION_PART}{place}": part for place, part in enumerate(parts)})


def _find(columns: Sequence[TargetColumn], name: str) -> list[TargetColumn]:
    return [column for column in columns if column.name.lower() == name.lower()]

"""What one batch needs to be staged and moved: its columns in the target, in the staging table and in the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.sinks.contract import POSITION
from floodmark.sinks.own_columns import written_columns
from floodmark.sinks.postgres_encoding import Encoding, encoding_of
from floodmark.sinks.postgres_move import DELETE, POSITION_PART, Merge, Move
from floodmark.sinks.postgres_pour import Pour
from floodmark.sinks.postgres_target import Target, TargetColumn
from floodmark.spark.delta_tables import quoted

if TYPE_CHECKING:
    from psycopg import Connection
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Load:
    """The rows as they are copied, and where to: columns that only help to choose do not come further than `staged`."""

    target: Target
    columns: tuple[TargetColumn, ...]
    staged: tuple[TargetColumn, ...]
    encoding: Encoding
    rows: DataFrame
    key: tuple[str, ...] = ()

    @property
    def alters(self) -> bool:
        """Whether the target gets columns: until that is committed, it is shut to everybody, also to the source."""
        return self.target.exists and any(column.is_new for column in self.columns)

    def move(self, pour: Pour) -> Move:
        return Move(self.target, self.columns, pour)

    def merge(self, pour: Pour, sequence: Sequence[str]) -> Merge:
        """A stored row is compared by `sequence` only if the target keeps all of it."""
        ordered = tuple(column for name in sequence for column in _find(self.columns, name))
        positions = tuple(column for column in self.staged if column.name.startswith(POSITION_PART))
        is_kept = self.target.exists and not any(column.is_new for column in ordered)
        return Merge(
            self.target,
            self.columns,
            pour,
            key=self.key,
            sequence=ordered if is_kept else (),
            order=(*ordered, *positions),
        )

    def spelt(self, names: Sequence[str], option: str) -> tuple[str, ...]:
        """The names as the target has them."""
        return spelt(self.columns, names, option)


def load_of(rows: DataFrame, target: Target) -> Load:
    """For a mode that takes every row."""
    fields = [rows.schema[name] for name in written_columns(rows)]
    columns = target.fitted(fields)
    encoding, copied = encoding_of(fields, columns)
    return Load(target, columns, columns, encoding, rows.select(*copied))


def merge_load_of(rows: DataFrame, target: Target, key: Sequence[str], delete_when: str | None) -> Load:
    """For a merge: with the source's position and whether a row deletes beside the columns of the target."""
    from pyspark.sql import functions as F

    own = _with_position_parts(rows).withColumn(
        DELETE, F.coalesce(F.expr(delete_when), F.lit(False)) if delete_when else F.lit(False)
    )
    parts = [name for name in own.columns if name.startswith(POSITION_PART)]
    fields = [own.schema[name] for name in written_columns(rows)]
    helping = [own.schema[name] for name in (*parts, DELETE)]
    columns = target.fitted(fields)
    staged = (*columns, *Target(target.schema, "").fitted(helping))
    encoding, copied = encoding_of([*fields, *helping], staged)
    return Load(target, columns, staged, encoding, own.select(*copied), spelt(columns, key, "key"))


def require_unique(connection: Connection, load: Load) -> None:
    """Raises ConfigError where the target has no unique index on the key: two writers could put one there twice."""
    from psycopg.sql import SQL, Identifier

    if not load.target.exists or load.target.has_unique(connection, load.key):
        return
    columns = SQL(", ").join(map(Identifier, load.key))
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

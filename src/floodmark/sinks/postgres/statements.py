"""The statements that bring a batch into its target: append, replace and merge, all in the transaction of the ledger.

A load says beforehand which columns the batch has in the target and on its way there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.locations import quote
from floodmark.sinks.contract import DELETE, POSITION, written_columns
from floodmark.sinks.modes import with_deletes
from floodmark.sinks.postgres.deleted_keys import DeletedKeysTable
from floodmark.sinks.postgres.encoding import Encoding, encoding_of
from floodmark.sinks.postgres.target import Target, TargetColumn, not_older, sortable
from floodmark.sinks.postgres.transport import BatchRefused, CopyIn, require_all

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed
    from pyspark.sql import DataFrame

POSITION_PART = f"{POSITION}_"
ARRIVED_ROWS, NEWEST, PLACE, RANK = "_fm_rows", "_fm_newest", "_fm_place", "_fm_rank"


@dataclass(frozen=True)
class Load:
    """The rows as they are copied, and where to: columns that only help to choose do not come further than `staged`."""

    target: Target
    columns: tuple[TargetColumn, ...]
    copied_columns: tuple[TargetColumn, ...]
    encoding: Encoding
    rows: DataFrame
    key: tuple[str, ...] = ()

    @property
    def alters(self) -> bool:
        """Whether the target gets columns: until that is committed, it is shut to everybody, also to the source."""
        return self.target.exists and any(column.is_new for column in self.columns)

    def move(self, copy: CopyIn) -> Move:
        return Move(self.target, self.columns, copy)

    def merge(self, copy: CopyIn, sequence: Sequence[str]) -> Merge:
        """A stored row is compared by `sequence` only if the target keeps all of it."""
        ordered = tuple(column for name in sequence for column in _find(self.columns, name))
        positions = tuple(column for column in self.copied_columns if column.name.startswith(POSITION_PART))
        is_kept = self.target.exists and not any(column.is_new for column in ordered)
        return Merge(
            self.target,
            self.columns,
            copy,
            key=self.key,
            sequence=ordered if is_kept else (),
            order=(*ordered, *positions),
        )

    def deleted_keys(self, sequence: Sequence[str], keep: timedelta | None, *, may_create: bool) -> DeletedKeysTable:
        """Where the deletes of a merge are kept."""
        key, ordered = (tuple(c for name in names for c in _find(self.columns, name)) for names in (self.key, sequence))
        return DeletedKeysTable(self.target, key, ordered, keep, may_create, NEWEST, f"t.{PLACE} = 1")

    def spell(self, names: Sequence[str], option: str) -> tuple[str, ...]:
        """The names as the target has them."""
        return spell(self.columns, names, option)


def load_of(rows: DataFrame, target: Target) -> Load:
    """For a mode that takes every row."""
    fields = [rows.schema[name] for name in written_columns(rows)]
    columns = target.columns_for(fields)
    encoding, copied = encoding_of(fields, columns)
    return Load(target, columns, columns, encoding, rows.select(*copied))


def merge_load_of(rows: DataFrame, target: Target, key: Sequence[str], delete_when: str | None) -> Load:
    """For a merge: with the source's position and whether a row deletes beside the columns of the target."""
    own = with_deletes(_with_position_parts(rows), delete_when)
    parts = [name for name in own.columns if name.startswith(POSITION_PART)]
    fields = [own.schema[name] for name in written_columns(rows)]
    helping = [own.schema[name] for name in (*parts, DELETE)]
    columns = target.columns_for(fields)
    staged = (*columns, *Target(target.schema, "").columns_for(helping))
    encoding, copied = encoding_of([*fields, *helping], staged)
    return Load(target, columns, staged, encoding, own.select(*copied), spell(columns, key, "key"))


def require_unique(connection: Connection, load: Load) -> None:
    """Raises ConfigError where the target has no unique index on the key: two writers could put one there twice."""
    from psycopg.sql import SQL, Identifier

    if not load.target.exists or load.target.has_unique(connection, load.key):
        return
    columns = SQL(", ").join(map(Identifier, load.key))
    wanted = SQL("CREATE UNIQUE INDEX ON {} ({})").format(load.target.sql, columns).as_string(connection)
    named = f"{load.target.schema}.{load.target.table}"
    raise ConfigError(f"table {named} has no unique index on the key of the merge.", hint=wanted)


def spell(columns: Sequence[TargetColumn], names: Sequence[str], option: str) -> tuple[str, ...]:
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
    kind, position = rows.schema[POSITION].dataType, F.col(quote(POSITION))
    parts = [position[name] for name in kind.names] if isinstance(kind, StructType) else [position]
    return rows.withColumns({f"{POSITION_PART}{place}": part for place, part in enumerate(parts)})


def _find(columns: Sequence[TargetColumn], name: str) -> list[TargetColumn]:
    return [column for column in columns if column.name.lower() == name.lower()]


@dataclass(frozen=True)
class Move:
    """A batch that is copied, on its way to the columns of its target."""

    target: Target
    columns: tuple[TargetColumn, ...]
    copy: CopyIn

    def append(self, connection: Connection) -> int:
        """Straight into the target, unless COPY cannot do what INSERT can (a view, a rule, a policy for rows)."""
        if self.target.takes_copy(connection):
            return self._checked(self.copy.into(connection, self.target.sql))
        self._copy_to_temporary(connection)
        return self._insert_temporary(connection)

    def replace_all(self, connection: Connection) -> int:
        """Not TRUNCATE: it shuts readers out, and shows an empty table to those who began before."""
        from psycopg.sql import SQL

        connection.execute(SQL("DELETE FROM {}").format(self.target.sql))
        return self.append(connection)

    def replace_by(self, connection: Connection, by: Sequence[str]) -> int:
        """Rows with the batch's values give way. Values with a NULL go by themselves: only `=` can use an index."""
        from psycopg.sql import SQL, Identifier

        self._copy_to_temporary(connection)
        names, some_null = SQL(", ").join(map(Identifier, by)), _join_names(" OR ", "{0} IS NULL", by)
        values = SQL(f"SELECT DISTINCT {{}} FROM {ARRIVED_ROWS} AS b").format(names)
        delete = "DELETE FROM {} AS t USING ({} WHERE {}) AS s WHERE {}"
        no_null, equal = SQL("NOT ({})").format(some_null), _join_names(" AND ", "t.{0} = s.{0}", by)
        same = _join_names(" AND ", "t.{0} IS NOT DISTINCT FROM s.{0}", by)
        connection.execute(SQL(delete).format(self.target.sql, values, no_null, equal))
        connection.execute(SQL(delete).format(self.target.sql, values, some_null, same))
        return self._insert_temporary(connection)

    def _copy_to_temporary(self, connection: Connection, required: Sequence[str] = ()) -> None:
        """Put the batch into a table of this transaction alone, for statements that have to look at its rows."""
        from psycopg.sql import SQL

        parts = (
            SQL("{}{}").format(column.definition(), SQL(" NOT NULL" if column.name in required else ""))
            for column in self.copy.columns
        )
        create = SQL(f"CREATE TEMPORARY TABLE {ARRIVED_ROWS} ({{}}) ON COMMIT DROP")
        connection.execute(create.format(SQL(", ").join(parts)))
        self._checked(self.copy.into(connection, SQL(ARRIVED_ROWS).format()))

    def _insert_temporary(self, connection: Connection) -> int:
        from psycopg.sql import SQL

        names = _names(self.columns)
        insert = SQL(f"INSERT INTO {{}} ({{}}) SELECT {{}} FROM {ARRIVED_ROWS}").format(self.target.sql, names, names)
        return self._checked(connection.execute(insert).rowcount)

    def _checked(self, moved: int) -> int:
        return require_all(moved, self.copy.reported_rows)


@dataclass(frozen=True)
class Merge(Move):
    """A batch whose newest row per key is moved; `order` are the columns that say which is newer."""

    key: tuple[str, ...]
    sequence: tuple[TargetColumn, ...]
    order: tuple[TargetColumn, ...]

    def apply(self, connection: Connection, deleted_keys: DeletedKeysTable | None = None) -> int:
        """Deletions first; then rows that are new, or not older than what is stored."""
        from psycopg.sql import SQL

        self._choose(connection)
        if deleted_keys is not None and self.sequence:  # a repair believes its rows
            deleted_keys.leave_out_older(connection)
        if deleted_keys is not None:
            deleted_keys.remember(connection)
        newer = SQL(" AND {}").format(not_older("s", self.sequence)) if self.sequence else SQL("")
        delete = f"DELETE FROM {{}} AS t USING {NEWEST} AS s WHERE s.{PLACE} = 1 AND s.{DELETE} AND {{}}{{}}"
        keyed = _join_names(" AND ", "t.{0} = s.{0}", self.key)
        deleted = connection.execute(SQL(delete).format(self.target.sql, keyed, newer)).rowcount
        return deleted + self._insert(connection, self._on_conflict())

    def refresh(self, connection: Connection, deleted_keys: DeletedKeysTable | None = None) -> int:
        """Nothing but the batch's newest rows is left."""
        from psycopg.sql import SQL

        self._choose(connection)
        if deleted_keys is not None:
            deleted_keys.forget(connection)
            deleted_keys.remember(connection)
        connection.execute(SQL("DELETE FROM {}").format(self.target.sql))
        return self._insert(connection, SQL("").format())

    def _choose(self, connection: Connection) -> None:
        """Put every key's rows in order, the newest first; refuse two that are different and equally new."""
        from psycopg.errors import NotNullViolation
        from psycopg.sql import SQL

        try:
            self._copy_to_temporary(connection, required=self.key)
        except NotNullViolation as error:
            raise BatchRefused(
                f"key column {error.diag.column_name} is NULL in a row: a merge needs every key"
            ) from None
        order = SQL(" ORDER BY {}").format(SQL(", ").join(map(_newest_first, self.order))) if self.order else SQL("")
        choose = (
            f"CREATE TEMPORARY TABLE {NEWEST} ON COMMIT DROP AS SELECT {{}}, {DELETE},"
            f" row_number() OVER w AS {PLACE}, rank() OVER w AS {RANK}"
            f" FROM {ARRIVED_ROWS} AS s WINDOW w AS (PARTITION BY {{}}{{}})"
        )
        connection.execute(SQL(choose).format(_names(self.columns), _identifiers(self.key), order))
        self._refuse_contradictions(connection)

    def _refuse_contradictions(self, connection: Connection) -> None:
        from psycopg.sql import SQL

        # As text, since some types (json, point) cannot be compared; only rows that tie are turned into it.
        find = (
            f"SELECT jsonb_build_object({{}})::text FROM {NEWEST} AS t JOIN {NEWEST} AS s ON {{}}"
            f" WHERE s.{RANK} = 1 AND s.{PLACE} > 1 AND t.{PLACE} = 1 AND ROW({{}})::text <> ROW({{}})::text LIMIT 1"
        )
        pairs = SQL(", ").join(_pair(name) for name in self.key)
        names = [column.name for column in self.columns]
        mine, other = (_join_names(", ", f"{side}.{{0}}", names) for side in ("s", "t"))
        keyed = _join_names(" AND ", "t.{0} = s.{0}", self.key)
        key = connection.execute(SQL(find).format(pairs, keyed, mine, other)).fetchone()
        if key:
            raise BatchRefused(
                f"two different rows have the key {key[0]} and nothing says which is newer: "
                "name a column that does in `sequence`"
            )

    def _insert(self, connection: Connection, on_conflict: Composed) -> int:
        from psycopg.sql import SQL

        insert = f"INSERT INTO {{}} AS t ({{}}) SELECT {{}} FROM {NEWEST} WHERE {PLACE} = 1 AND NOT {DELETE}{{}}"
        names = _names(self.columns)
        return connection.execute(SQL(insert).format(self.target.sql, names, names, on_conflict)).rowcount

    def _on_conflict(self) -> Composed:
        from psycopg.sql import SQL

        others = [column.name for column in self.columns if column.name not in self.key]
        if not others:
            return SQL(" ON CONFLICT ({}) DO NOTHING").format(_identifiers(self.key))
        updates = _join_names(", ", "{0} = excluded.{0}", others)
        newer = SQL(" WHERE {}").format(not_older("excluded", self.sequence)) if self.sequence else SQL("")
        return SQL(" ON CONFLICT ({}) DO UPDATE SET {}{}").format(_identifiers(self.key), updates, newer)


def _newest_first(column: TargetColumn) -> Composed:
    from psycopg.sql import SQL

    return SQL("{} DESC NULLS LAST").format(sortable("s", column))


def _names(columns: Sequence[TargetColumn]) -> Composed:
    return _identifiers([column.name for column in columns])


def _identifiers(names: Sequence[str]) -> Composed:
    from psycopg.sql import SQL, Identifier

    return SQL(", ").join(map(Identifier, names))


def _join_names(between: str, pattern: str, names: Sequence[str]) -> Composed:
    """The pattern once per name."""
    from psycopg.sql import SQL, Identifier

    return SQL(between).join(SQL(pattern).format(Identifier(name)) for name in names)


def _pair(name: str) -> Composed:
    from psycopg.sql import SQL, Identifier, Literal

    return SQL("{}, s.{}").format(Literal(name), Identifier(name))

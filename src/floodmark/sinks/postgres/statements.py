"""The statements that bring a staged batch into its target; all of them run in the one transaction of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.sinks.postgres_pour import Pour, Refused, require_all
from floodmark.sinks.postgres_target import Target, TargetColumn

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed

DELETE, POSITION_PART = "_fm_delete", "_fm_position_"
LANDED, NEWEST, PLACE, RANK = "_fm_rows", "_fm_newest", "_fm_place", "_fm_rank"


@dataclass(frozen=True)
class Move:
    """A batch that was staged, on its way to the columns of its target."""

    target: Target
    columns: tuple[TargetColumn, ...]
    pour: Pour

    def append(self, connection: Connection) -> int:
        """Straight into the target, unless COPY cannot do what INSERT can (a view, a rule, a policy for rows)."""
        if self.target.takes_copy(connection):
            return self._checked(self.pour.into(connection, self.target.sql))
        self._land(connection)
        return self._insert_landed(connection)

    def replace_all(self, connection: Connection) -> int:
        """Not TRUNCATE: it shuts readers out, and shows an empty table to those who began before."""
        from psycopg.sql import SQL

        connection.execute(SQL("DELETE FROM {}").format(self.target.sql))
        return self.append(connection)

    def replace_by(self, connection: Connection, by: Sequence[str]) -> int:
        """Rows with the batch's values give way. Values with a NULL go by themselves: only `=` can use an index."""
        from psycopg.sql import SQL, Identifier

        self._land(connection)
        names, some_null = SQL(", ").join(map(Identifier, by)), _joined(" OR ", "{0} IS NULL", by)
        values = SQL(f"SELECT DISTINCT {{}} FROM {LANDED} AS b").format(names)
        delete = "DELETE FROM {} AS t USING ({} WHERE {}) AS s WHERE {}"
        no_null, equal = SQL("NOT ({})").format(some_null), _joined(" AND ", "t.{0} = s.{0}", by)
        same = _joined(" AND ", "t.{0} IS NOT DISTINCT FROM s.{0}", by)
        connection.execute(SQL(delete).format(self.target.sql, values, no_null, equal))
        connection.execute(SQL(delete).format(self.target.sql, values, some_null, same))
        return self._insert_landed(connection)

    def _land(self, connection: Connection, required: Sequence[str] = ()) -> None:
        """Put the batch into a table of this transaction alone, for statements that have to look at its rows."""
        from psycopg.sql import SQL

        parts = (
            SQL("{}{}").format(column.defined(), SQL(" NOT NULL" if column.name in required else ""))
            for column in self.pour.columns
        )
        create = SQL(f"CREATE TEMPORARY TABLE {LANDED} ({{}}) ON COMMIT DROP")
        connection.execute(create.format(SQL(", ").join(parts)))
        self._checked(self.pour.into(connection, SQL(LANDED).format()))

    def _insert_landed(self, connection: Connection) -> int:
        from psycopg.sql import SQL

        names = _names(self.columns)
        insert = SQL(f"INSERT INTO {{}} ({{}}) SELECT {{}} FROM {LANDED}").format(self.target.sql, names, names)
        return self._checked(connection.execute(insert).rowcount)

    def _checked(self, moved: int) -> int:
        return require_all(moved, self.pour.reported)


@dataclass(frozen=True)
class Merge(Move):
    """A batch whose newest row per key is moved; `order` are the columns that say which is newer."""

    key: tuple[str, ...]
    sequence: tuple[TargetColumn, ...]
    order: tuple[TargetColumn, ...]

    def apply(self, connection: Connection) -> int:
        """Deletions first; then rows that are new, or not older than what is stored."""
        from psycopg.sql import SQL

        self._choose(connection)
        newer = SQL(" AND {}").format(_not_older("s", self.sequence)) if self.sequence else SQL("")
        delete = f"DELETE FROM {{}} AS t USING {NEWEST} AS s WHERE s.{PLACE} = 1 AND s.{DELETE} AND {{}}{{}}"
        keyed = _joined(" AND ", "t.{0} = s.{0}", self.key)
        deleted = connection.execute(SQL(delete).format(self.target.sql, keyed, newer)).rowcount
        return deleted + self._insert(connection, self._on_conflict())

    def refresh(self, connection: Connection) -> int:
        """Nothing but the batch's newest rows is left."""
        from psycopg.sql import SQL

        self._choose(connection)
        connection.execute(SQL("DELETE FROM {}").format(self.target.sql))
        return self._insert(connection, SQL("").format())

    def _choose(self, connection: Connection) -> None:
        """Put every key's rows in order, the newest first; refuse two that are different and equally new."""
        from psycopg.errors import NotNullViolation
        from psycopg.sql import SQL

        try:
            self._land(connection, required=self.key)
        except NotNullViolation as error:
            raise Refused(f"key column {error.diag.column_name} is NULL in a row: a merge needs every key") from None
        order = SQL(" ORDER BY {}").format(SQL(", ").join(map(_newest_first, self.order))) if self.order else SQL("")
        choose = (
            f"CREATE TEMPORARY TABLE {NEWEST} ON COMMIT DROP AS SELECT {{}}, {DELETE},"
            f" row_number() OVER w AS {PLACE}, rank() OVER w AS {RANK}"
            f" FROM {LANDED} AS s WINDOW w AS (PARTITION BY {{}}{{}})"
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
        shown = SQL(", ").join(_pair(name) for name in self.key)
        names = [column.name for column in self.columns]
        mine, other = (_joined(", ", f"{side}.{{0}}", names) for side in ("s", "t"))
        keyed = _joined(" AND ", "t.{0} = s.{0}", self.key)
        found = connection.execute(SQL(find).format(shown, keyed, mine, other)).fetchone()
        if found:
            raise Refused(
                f"two different rows have the key {found[0]} and nothing says which is newer: "
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
        updates = _joined(", ", "{0} = excluded.{0}", others)
        newer = SQL(" WHERE {}").format(_not_older("excluded", self.sequence)) if self.sequence else SQL("")
        return SQL(" ON CONFLICT ({}) DO UPDATE SET {}{}").format(_identifiers(self.key), updates, newer)


def _not_older(new: str, sequence: Sequence[TargetColumn]) -> Composed:
    """Left to right, with NULL below every value."""
    from psycopg.sql import SQL

    rest = SQL(" AND {}").format(_not_older(new, sequence[1:])) if len(sequence) > 1 else SQL("")
    ours, stored = (_compared(side, sequence[0]) for side in (new, "t"))
    above = "({n} > {o} OR ({o} IS NULL AND {n} IS NOT NULL) OR ({n} IS NOT DISTINCT FROM {o}{rest}))"
    return SQL(above).format(n=ours, o=stored, rest=rest)


def _newest_first(column: TargetColumn) -> Composed:
    from psycopg.sql import SQL

    return SQL("{} DESC NULLS LAST").format(_compared("s", column))


def _compared(side: str, column: TargetColumn) -> Composed:
    """Texts by their bytes, as Spark orders them and the other sinks do, whatever the database's language is."""
    from psycopg.sql import SQL, Identifier

    return SQL("{}{}").format(Identifier(side, column.name), SQL(' COLLATE "C"' if column.is_text else ""))


def _names(columns: Sequence[TargetColumn]) -> Composed:
    return _identifiers([column.name for column in columns])


def _identifiers(names: Sequence[str]) -> Composed:
    from psycopg.sql import SQL, Identifier

    return SQL(", ").join(map(Identifier, names))


def _joined(between: str, pattern: str, names: Sequence[str]) -> Composed:
    """The pattern once per name."""
    from psycopg.sql import SQL, Identifier

    return SQL(between).join(SQL(pattern).format(Identifier(name)) for name in names)


def _pair(name: str) -> Composed:
    from psycopg.sql import SQL, Identifier, Literal

    return SQL("{}, s.{}").format(Literal(name), Identifier(name))

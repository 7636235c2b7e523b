"""The keys that a merge into PostgreSQL deleted, each with the sequence of its delete: `<table>__deleted`.

They are read and written in the transaction of the batch, so table, deletes and ledger agree at every moment. Without
them a row that is older than the delete, and comes later, would bring its key back.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.logs import get_logger
from floodmark.sinks.contract import DELETE
from floodmark.sinks.postgres.target import Target, TargetColumn, not_older

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed

log = get_logger(__name__)
SUFFIX = "__deleted"
DELETED_AT = "_deleted_at"
NOT_KEPT = timedelta(0)
LONGEST_NAME = 63
"""Bytes of a name that PostgreSQL keeps; it cuts the rest off without a word."""


@dataclass(frozen=True)
class DeletedKeys:
    """One entry per deleted key, with the highest sequence by which it was; after `keep` it is forgotten (None: never).

    `rows` is the table of this transaction that has the batch, and `first` says which of its rows count.
    """

    target: Target
    key: tuple[TargetColumn, ...]
    sequence: tuple[TargetColumn, ...]
    keep: timedelta | None
    may_create: bool
    rows: str
    first: str

    def require_name(self) -> None:
        """Raises ConfigError for a table whose name leaves no room for the suffix."""
        if len(f"{self.target.table}{SUFFIX}".encode()) > LONGEST_NAME:
            raise ConfigError(
                f"the name of table {self.target.table} leaves no room for {SUFFIX}, where deleted keys are kept.",
                hint="shorten it, or keep none: keep_deleted: 0s",
            )

    def leave_out_older(self, connection: Connection) -> None:
        """Take out of the batch what does not come after the last delete of its key; one of the same sequence does not.

        So the order in which a delete and an upsert of one moment arrive has no say.
        """
        from psycopg.sql import SQL

        if not self._exists(connection):
            return
        fresh = SQL(" AND d.{} >= {}").format(SQL(DELETED_AT), self._oldest()) if self.keep else SQL("")
        statement = SQL(
            f"DELETE FROM {self.rows} AS t USING {{}} AS d WHERE {self.first} AND NOT t.{DELETE} AND {{}} AND {{}}{{}}"
        )
        connection.execute(statement.format(self._sql(), self._same("t", "d"), not_older("d", self.sequence), fresh))

    def remember(self, connection: Connection) -> None:
        """Add the deletes of the batch; the table is made when there is a first one."""
        from psycopg.sql import SQL

        found = SQL(f"SELECT 1 FROM {self.rows} AS t WHERE {self.first} AND t.{DELETE} LIMIT 1")
        if connection.execute(found).fetchone() is None or not self._made(connection):
            return
        connection.execute(self._insert())
        if self.keep:
            too_old = SQL("DELETE FROM {} WHERE {} < {}").format(self._sql(), SQL(DELETED_AT), self._oldest())
            connection.execute(too_old)

    def forget(self, connection: Connection) -> None:
        """What an earlier history deleted says nothing about one that begins anew."""
        from psycopg.sql import SQL

        if self._exists(connection):
            connection.execute(SQL("DELETE FROM {}").format(self._sql()))

    def _insert(self) -> Composed:
        from psycopg.sql import SQL

        columns = SQL(", ").join(column.name_sql() for column in self._columns())
        updates = SQL(", ").join(
            SQL("{0} = excluded.{0}").format(column.name_sql()) for column in self._columns() if column not in self.key
        )
        insert = SQL(
            f"INSERT INTO {{}} AS t ({{}}, {DELETED_AT}) SELECT {{}}, now() FROM {self.rows} AS t"
            f" WHERE {self.first} AND t.{DELETE} ON CONFLICT ({{}}) DO UPDATE SET {{}}{DELETED_AT} = now() WHERE {{}}"
        )
        key = SQL(", ").join(column.name_sql() for column in self.key)
        set_to = SQL("{}, ").format(updates) if len(self._columns()) > len(self.key) else SQL("")
        return insert.format(self._sql(), columns, columns, key, set_to, not_older("excluded", self.sequence))

    def _made(self, connection: Connection) -> bool:
        """Whether the table is there, or could be made."""
        from psycopg.sql import SQL

        if self._exists(connection):
            return True
        allowed = connection.execute("SELECT has_schema_privilege(%s, 'CREATE')", [self.target.schema]).fetchone()
        if not self.may_create or allowed != (True,):
            log.warning("deleted keys are not kept: their table is missing", table=f"{self.target.table}{SUFFIX}")
            return False
        parts = [column.definition() for column in self._columns()]
        key = SQL(", ").join(column.name_sql() for column in self.key)
        create = SQL(f"CREATE TABLE {{}} ({{}}, {DELETED_AT} timestamp with time zone NOT NULL, PRIMARY KEY ({{}}))")
        connection.execute(create.format(self._sql(), SQL(", ").join(parts), key))
        return True

    def _exists(self, connection: Connection) -> bool:
        named = self._sql().as_string(connection)
        return connection.execute("SELECT to_regclass(%s) IS NOT NULL", [named]).fetchone() == (True,)

    def _sql(self) -> Composed:
        from psycopg.sql import SQL, Identifier

        return SQL("{}").format(Identifier(self.target.schema, f"{self.target.table}{SUFFIX}"))

    def _columns(self) -> tuple[TargetColumn, ...]:
        return (*self.key, *(column for column in self.sequence if column not in self.key))

    def _same(self, one: str, other: str) -> Composed:
        from psycopg.sql import SQL, Identifier

        pairs = [(Identifier(one, column.name), Identifier(other, column.name)) for column in self.key]
        return SQL(" AND ").join(SQL("{} = {}").format(*pair) for pair in pairs)

    def _oldest(self) -> Composed:
        from psycopg.sql import SQL, Literal

        return SQL("now() - {}").format(Literal(self.keep))

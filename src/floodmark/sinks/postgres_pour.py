"""Pouring staged rows into a table of the one transaction: the driver passes bytes on and never looks at a row."""

from __future__ import annotations

import selectors
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodmark.sinks.postgres_encoding import Encoding
from floodmark.sinks.postgres_server import PostgresServer
from floodmark.sinks.postgres_staging import Copied, Staging
from floodmark.sinks.postgres_target import TargetColumn

if TYPE_CHECKING:
    from psycopg import BaseConnection, Connection, Copy
    from psycopg.sql import Composed


class Refused(Exception):
    """The batch cannot be moved; the text is the reason."""


def require_all(staged: int, reported: int) -> int:
    """A staging table without a log is empty after a crash of the server: then nothing is moved."""
    if staged != reported:
        raise Refused(f"the tasks copied {reported} rows, but {staged} are staged: the server lost some")
    return staged


@dataclass(frozen=True)
class Pour:
    """What the winning tasks staged, in the order of `columns`."""

    server: PostgresServer
    staging: Staging
    encoding: Encoding
    columns: tuple[TargetColumn, ...]
    winners: Sequence[Copied]

    @property
    def reported(self) -> int:
        """Rows, as the tasks counted them."""
        return sum(each.rows for each in self.winners)

    def into(self, connection: Connection, table: Composed) -> int:
        """Rows that the table took. Raises Refused unless all that the tasks reported is still staged."""
        from psycopg.sql import SQL, Identifier

        names = SQL(", ").join(Identifier(column.name) for column in self.columns)
        statement = SQL("COPY {} ({}) FROM STDIN ({})").format(table, names, SQL(self.encoding.options))
        connection.execute("SET LOCAL client_encoding = 'UTF8'")
        with connection.cursor() as cursor:
            with cursor.copy(statement) as copy:
                copy.write(self.encoding.opening)
                self._pass_on(copy)
                copy.write(self.encoding.closing)
            return cursor.rowcount

    def _pass_on(self, copy: Copy) -> None:
        staged = 0
        with self.server.connect() as reader, closing(self.staging.pieces(reader, self.winners)) as pieces:
            for piece in pieces:
                copy.write(piece.content)
                await_sent(copy.connection)
                staged += piece.rows
        require_all(staged, self.reported)


def await_sent(connection: BaseConnection[Any]) -> None:
    """Until the server has taken what was written: the driver's library would keep all of a large batch for it."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection.fileno(), selectors.EVENT_READ | selectors.EVENT_WRITE)
        while connection.pgconn.flush():
            for _, events in selector.select():
                if events & selectors.EVENT_READ:
                    connection.pgconn.consume_input()

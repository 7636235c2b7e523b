"""Pouring a batch into a table of the one transaction: the driver passes bytes on and never looks at a row."""

from __future__ import annotations

import selectors
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from floodmark.sinks.postgres_encoding import Encoding
from floodmark.sinks.postgres_server import PostgresServer
from floodmark.sinks.postgres_staging import Copied, Piece, Staging
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


class Pieces(Protocol):
    """A batch in pieces of the stream that COPY takes."""

    @property
    def reported(self) -> int:
        """Rows, as the tasks counted them; known once every piece was taken."""

    def taken(self) -> Generator[Piece, None, None]:
        """One piece after the other; an error unless they were all that the tasks have."""


@dataclass(frozen=True)
class StagedPieces:
    """What the winning tasks staged."""

    server: PostgresServer
    staging: Staging
    winners: Sequence[Copied]

    @property
    def reported(self) -> int:
        return sum(each.rows for each in self.winners)

    def taken(self) -> Generator[Piece, None, None]:
        """Through a connection of its own, as the other one is in the middle of its COPY."""
        staged = 0
        with self.server.connect() as reader, closing(self.staging.pieces(reader, self.winners)) as pieces:
            for piece in pieces:
                yield piece
                staged += piece.rows
        require_all(staged, self.reported)


@dataclass(frozen=True)
class Pour:
    """A batch whose rows have these columns, in this order."""

    encoding: Encoding
    columns: tuple[TargetColumn, ...]
    pieces: Pieces

    @property
    def reported(self) -> int:
        """Rows, as the tasks counted them; known once the batch was poured."""
        return self.pieces.reported

    def into(self, connection: Connection, table: Composed) -> int:
        """Rows that the table took. Raises Refused unless they are all that the tasks reported."""
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
        with closing(self.pieces.taken()) as pieces:
            for piece in pieces:
                copy.write(piece.content)
                await_sent(copy.connection)


def await_sent(connection: BaseConnection[Any]) -> None:
    """Until the server has taken what was written: the driver's library would keep all of a large batch for it."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection.fileno(), selectors.EVENT_READ | selectors.EVENT_WRITE)
        while connection.pgconn.flush():
            for _, events in selector.select():
                if events & selectors.EVENT_READ:
                    connection.pgconn.consume_input()

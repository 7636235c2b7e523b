"""Making the staging table itself the target, where there was none: the rows of a first load are written once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from floodmark.sinks.postgres_load import Load
from floodmark.sinks.postgres_move import require_all
from floodmark.sinks.postgres_staging import ATTEMPT, Copied, is_won

if TYPE_CHECKING:
    from psycopg import Connection


def adopt(connection: Connection, load: Load, winners: Sequence[Copied]) -> int | None:
    """Within the transaction of the ledger. None if a lost task still copies: then the rows have to be moved.

    Whoever comes later with the staging table's name finds no such table, so nothing is added behind our back.
    """
    from psycopg.errors import LockNotAvailable
    from psycopg.sql import SQL, Identifier

    staged = load.staging.sql
    try:
        with connection.transaction():
            connection.execute(SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE NOWAIT").format(staged))
    except LockNotAvailable:
        return None
    connection.execute(SQL("DELETE FROM {} WHERE NOT {}").format(staged, is_won(winners)))
    count = connection.execute(SQL("SELECT count(*) FROM {}").format(staged)).fetchone()
    rows = require_all(int(count[0]) if count else 0, sum(each.rows for each in winners))
    altered = SQL("ALTER TABLE {} DROP COLUMN {}, RESET (autovacuum_enabled)")
    connection.execute(altered.format(staged, Identifier(ATTEMPT)))
    connection.execute(SQL("ALTER TABLE {} RENAME TO {}").format(staged, Identifier(load.target.table)))
    for statement in load.target.noted(load.columns):
        connection.execute(statement)
    return rows

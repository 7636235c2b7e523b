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
    rows = require_all(_without_losers(connection, load, winners), sum(each.rows for each in winners))
    altered = SQL("ALTER TABLE {} DROP COLUMN {}, RESET (autovacuum_enabled)")
    connection.execute(altered.format(staged, Identifier(ATTEMPT)))
    connection.execute(SQL("ALTER TABLE {} RENAME TO {}").format(staged, Identifier(load.target.table)))
    for statement in load.target.noted(load.columns):
        connection.execute(statement)
    return rows


def _without_losers(connection: Connection, load: Load, winners: Sequence[Copied]) -> int:
    """The rows that are left when those of lost tasks are gone; mostly there are none of these."""
    from psycopg.sql import SQL

    staged, won = load.staging.sql, is_won(winners)
    counts = SQL("SELECT count(*) FILTER (WHERE {}), count(*) FROM {}").format(won, staged)
    kept, there = connection.execute(counts).fetchone() or (0, 0)
    if kept < there:
        connection.execute(SQL("DELETE FROM {} WHERE NOT {}").format(staged, won))
    return int(kept)

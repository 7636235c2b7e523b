"""The transaction that wrote a row, as a cursor: every row version has one, and it costs the table nothing.

A row keeps the lower 32 bits of its transaction's id. The full id is the highest one with these bits below the next id
of the server, which is right while a row is younger than 2^32 transactions; one that is older would be read again, and
is never missed. No index knows the column, so every look and every read scans the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError, SourceGap, SourceRegressed
from floodmark.probes.tables import Cursor, CursorColumn

if TYPE_CHECKING:
    from floodmark.probes.postgres import PostgresProbe

XMIN = CursorColumn("xmin", "xid8", "bigint", is_nullable=False)
BITS = "CAST(CAST(fm.xmin AS text) AS bigint)"
LAST = "(SELECT CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint) - 1)"
FULL_XMIN = f"(CASE WHEN {BITS} < 3 THEN {BITS} ELSE {LAST} - (({LAST} - {BITS}) & 4294967295) END)"
"""Ids below 3 are no transactions: rows from before the beginning have them. The next id is asked for once."""
HORIZON = """
SELECT CAST(CAST(pg_snapshot_xmin(s) AS text) AS bigint), CAST(CAST(pg_snapshot_xmax(s) AS text) AS bigint)
FROM pg_current_snapshot() AS s
"""
OLDEST = """
SELECT 'pid ' || pid || coalesce(' (' || nullif(application_name, '') || ')', ''),
       extract(epoch FROM clock_timestamp() - xact_start)::float8, age(backend_xid)
FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
UNION ALL
SELECT 'the prepared transaction ' || gid, extract(epoch FROM clock_timestamp() - prepared)::float8, age(transaction)
FROM pg_prepared_xacts
ORDER BY 3 DESC LIMIT 1
"""
TOO_OLD = 2**31


@dataclass(frozen=True)
class Horizon:
    """All transactions up to `over` have ended; `following` is the id that the next one gets."""

    over: int
    following: int
    holder: str

    def require_reaches(self, mark: int, source: str) -> None:
        """Raises SourceGap for a mark whose distance 32 bits cannot tell, SourceRegressed for one of the future."""
        if mark >= self.following:
            raise SourceRegressed(source, mark=f"transaction {mark}", highest=f"transaction {self.following - 1}")
        if self.following - mark > TOO_OLD:
            hint = "`floodmark run --full-refresh`, or `floodmark marks set` if nothing was written since"
            oldest = f"transaction {self.following - TOO_OLD}"
            raise SourceGap(source, mark=f"transaction {mark}", oldest=oldest, hint=hint)


def horizon_of(probe: PostgresProbe) -> Horizon:
    """The horizon of the whole server: who writes in another database is waited for too."""
    ((lowest, following),), oldest = probe.at_once(HORIZON, OLDEST)
    return Horizon(lowest - 1, following, _told(oldest))


def xmin_cursor(source: str, table: str | None) -> Cursor:
    """The cursor. Raises ConfigError for a query, whose rows no single transaction wrote.

    Rows of one transaction share its id. None of them comes later, for it has ended, so nothing has to tell them apart.
    """
    if table is None:
        raise ConfigError(f"{source}: a query has no xmin.", hint="name the table, or read the query by a column")
    return Cursor((XMIN,), is_unique=True)


def _told(rows: Sequence[Sequence[Any]]) -> str:
    if not rows:
        return "a transaction that has just ended, or that this user may not see"
    who, seconds, _ = rows[0]
    return f"{who}, open for {max(0.0, seconds or 0.0):.0f} s"

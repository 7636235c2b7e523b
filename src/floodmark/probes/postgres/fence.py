"""Which transactions of a PostgreSQL database may still write: what a fence around late commits is made of.

The order of the statements is what makes a fence right. The highest value is read first, then the open transactions,
then the prepared ones. A transaction shows itself as open before it can take a value, and stops showing only after its
rows are visible or it is listed as prepared. So whoever took a value at or below the highest one is in one of the two
lists, or its rows are there to be read. One that began between the statements is listed too; it took higher values,
and counting it costs a little patience and needs no clock. Each statement has to be a transaction of its own: within
one the list of open transactions is read only once.

One moment stays uncovered: PostgreSQL takes the time that now() gives a little before it shows the transaction. The
lists are therefore read `UNSEEN_SECONDS` after the highest value if that is a time.

Whether a fence can work at all on a table (who may still write has to be visible here, and nowhere else), and the
horizon that `cursor: xmin` reads up to instead, stand below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from floodmark.errors import ConfigError, FenceBlind, SourceGap, SourceRegressed
from floodmark.probes.tables import ResolvedCursor
from floodmark.probes.tables.dialects import XMIN, text_literal

if TYPE_CHECKING:
    from floodmark.probes.postgres import PostgresProbe
    from floodmark.probes.tables import LowerBound, TableBounds, UpperBound


OUR_READERS = "floodmark/"
"""How our reading sessions call themselves; they are read-only. Our writing ones have no slash in their name."""
UNSEEN_SECONDS = 0.25
"""How long a transaction may have its time and not show it yet: microseconds, unless its process is made to wait."""
OPEN = f"""
SELECT pid, coalesce(xact_start, query_start)::text, backend_xid::text, application_name, backend_type,
       extract(epoch FROM clock_timestamp() - coalesce(xact_start, query_start))::float8, state
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND (xact_start IS NOT NULL OR state IN ('active', 'disabled') OR backend_type IS NULL)
  AND (backend_type IS NULL OR backend_type NOT IN ('walsender', 'autovacuum worker', 'parallel worker'))
  AND NOT starts_with(coalesce(application_name, ''), '{OUR_READERS}')
ORDER BY xact_start, pid
"""
"""A worker of a parallel query is counted by its leader, and vacuum writes no rows. A session may be at work without a
transaction for a moment, between two that came in one message: both have the time of that message."""
PREPARED = """
SELECT gid, transaction::text, extract(epoch FROM clock_timestamp() - prepared)::float8
FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared, gid
"""
Row: TypeAlias = Callable[[str], Sequence[Any]]
"""Runs a statement and gives its one row."""
SERVER = """
SELECT pg_is_in_recovery(), pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'),
       current_setting('track_activities') = 'on', (SELECT count(*) FROM pg_subscription_rel)
"""
TABLE = """
SELECT c.relkind::text, (
  SELECT count(*) FROM pg_subscription_rel s
  WHERE s.srrelid = c.oid OR s.srrelid IN (SELECT relid FROM pg_partition_tree(c.oid)))
FROM pg_class c WHERE c.oid = to_regclass({table})
"""
COLUMN = """
SELECT pg_get_expr(d.adbin, d.adrelid), s.seqcache, s.seqincrement, s.seqcycle,
       a.atttypmod BETWEEN 0 AND 5 AND a.atttypid IN ('timestamp'::regtype, 'timestamptz'::regtype)
FROM pg_attribute a
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_depend u ON u.classid = 'pg_class'::regclass AND u.refclassid = 'pg_class'::regclass
  AND u.refobjid = a.attrelid AND u.refobjsubid = a.attnum AND u.deptype = 'i'
LEFT JOIN pg_depend v ON v.classid = 'pg_attrdef'::regclass AND v.objid = d.oid AND v.refclassid = 'pg_class'::regclass
  AND v.refobjid <> a.attrelid
LEFT JOIN pg_sequence s ON s.seqrelid = coalesce(u.objid, v.refobjid)
WHERE a.attrelid = to_regclass({table}) AND a.attname = {column}
LIMIT 1
"""
VIEWS = ("v", "m")
PRIMARY = "read from the primary"
GRANT = "`GRANT pg_read_all_stats TO` this user"
TRACK = "turn track_activities on"
TAKEN_INSIDE = re.compile(
    r"\b(now|transaction_timestamp|statement_timestamp|clock_timestamp|uuidv7)\(\)|\b(CURRENT|LOCAL)_?(TIMESTAMP|DATE)\b"
)
"""Defaults whose values come into being inside the transaction that inserts the row."""
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


def bounds_and_writers(
    probe: PostgresProbe, low: LowerBound, max_rows: int | None, upper: Sequence[UpperBound]
) -> tuple[TableBounds, Writers]:
    """How far the table reaches, and then who may still write: three transactions in one round trip."""
    query = probe.query(low, upper)
    (answer,), *lists = probe.at_once(query.bounds_sql(max_rows), OPEN, PREPARED)
    return query.parse_bounds(answer), _parse_writers(lists, probe.place())


def current_writers(probe: PostgresProbe) -> Writers:
    """Who may still write now. Raises FenceBlind if a session hides what it does."""
    return _parse_writers(probe.at_once(OPEN, PREPARED), probe.place())


def _parse_writers(lists: Sequence[Sequence[Sequence[Any]]], source: str) -> Writers:
    open_rows, prepared_rows = lists
    open_ones = tuple(_open_transaction(row, source) for row in open_rows)
    return Writers(open_ones, tuple(PreparedTransaction(*row) for row in prepared_rows))


def _open_transaction(row: Sequence[Any], source: str) -> OpenTransaction:
    pid, began, xid, application, backend, seconds, state = row
    if backend is None:
        raise FenceBlind(source, reason="this user may not see the transactions of other users (pg_read_all_stats)")
    if state == "disabled":
        raise FenceBlind(source, reason=f"the session with pid {pid} hides its transactions (track_activities is off)")
    return OpenTransaction(pid, began, xid, application or "", max(0.0, seconds))


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction that a session has open, known by the session and when it began."""

    pid: int
    began: str
    xid: str | None = field(default=None, compare=False)
    """Its id, if it had one when it was seen; it may take one later."""
    application: str = field(default="", compare=False)
    seconds: float = field(default=0.0, compare=False)

    def __str__(self) -> str:
        name = f" ({self.application})" if self.application else ""
        return f"pid {self.pid}{name}, open for {self.seconds:.0f} s"


@dataclass(frozen=True)
class PreparedTransaction:
    """A transaction that was prepared and waits for COMMIT PREPARED; no session belongs to it."""

    gid: str
    xid: str
    seconds: float = field(default=0.0, compare=False)

    def __str__(self) -> str:
        return f"the prepared transaction {self.gid!r}, waiting for {self.seconds:.0f} s"


@dataclass(frozen=True)
class Writers:
    """Every transaction that may still write, as listed right after the highest value was read."""

    open: tuple[OpenTransaction, ...] = ()
    prepared: tuple[PreparedTransaction, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.open or self.prepared)

    def __str__(self) -> str:
        all_of_them: list[OpenTransaction | PreparedTransaction] = [*self.open, *self.prepared]
        each = sorted(all_of_them, key=lambda one: -one.seconds)
        more = f" and {len(each) - 1} more" if len(each) > 1 else ""
        return f"{each[0]}{more}" if each else "nobody"


@dataclass(frozen=True)
class Doubt:
    """Why a fence may be incomplete, with the id of the rule that lint's page explains."""

    rule: str
    reason: str


@dataclass(frozen=True)
class Trust:
    """How far a fence can be trusted.

    In a coarse column, as timestamptz(0) is one, a later transaction may take the highest value once more.
    """

    doubts: tuple[Doubt, ...] = ()
    is_coarse: bool = False


def table_trust(probe: PostgresProbe) -> Trust:
    """How far a fence on the probe's table can be trusted. Raises FenceBlind where writers may be out of sight."""

    def row(sql: str) -> Sequence[Any]:
        (rows,) = probe.at_once(sql)
        return rows[0] if rows else ()

    is_table = probe.relation.table is not None
    table = text_literal(probe.relation.sql(probe.dialect.quote, {})) if is_table else None
    require_fit(row, probe.place(), table)
    return trust(row, table, text_literal(probe.cursor().columns[0].name))


def require_fit(row: Row, source: str, table: str | None) -> None:
    """Raises FenceBlind where writers may be out of sight. `table` is a literal of its quoted name; None: a query."""
    is_standby, may_see, is_tracked, subscribed = row(SERVER)
    if is_standby:
        raise FenceBlind(source, reason="the server is a standby, and its writers are on the primary", hint=PRIMARY)
    if not may_see:
        raise FenceBlind(source, reason="this user may not see the transactions of others", hint=GRANT)
    if not is_tracked:
        raise FenceBlind(source, reason="track_activities is off, so open transactions are not shown", hint=TRACK)
    kind, of_table = (row(TABLE.format(table=table)) if table else None) or ("v", subscribed)
    if kind == "f":
        raise FenceBlind(source, reason="it is a foreign table, and its writers are on another server")
    if subscribed if kind in VIEWS else of_table:
        what = "the database has tables" if kind in VIEWS else "it is a table"
        raise FenceBlind(source, reason=f"{what} that a subscription fills, with values from another server")


def trust(row: Row, table: str | None, column: str) -> Trust:
    """What the default of the cursor's column leaves open: values that were not taken inside the transaction."""
    if table is None:
        return Trust((Doubt("FM412", "it reads a query, whose values may be made anywhere"),))
    found: Sequence[Any] = row(COLUMN.format(table=table, column=column)) or (None, None, None, None, False)
    default, cache, increment, cycles, is_coarse = found
    if cache is None:
        return Trust(_outside_doubts(default), is_coarse)
    if cache > 1:
        return Trust((Doubt("FM411", f"its sequence has a cache of {cache}: sessions keep low values for later"),))
    return Trust((Doubt("FM411", "its sequence does not only grow"),) if increment < 0 or cycles else ())


def _outside_doubts(default: str | None) -> tuple[Doubt, ...]:
    if TAKEN_INSIDE.search(default or ""):
        return ()
    made = f"its default is {default}" if default else "it has no default"
    return (Doubt("FM412", f"{made}, so its values may be made outside the database"),)


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
    return Horizon(lowest - 1, following, _oldest_holder(oldest))


def xmin_cursor(source: str, table: str | None) -> ResolvedCursor:
    """The cursor. Raises ConfigError for a query, whose rows no single transaction wrote.

    Rows of one transaction share its id. None of them comes later, for it has ended, so nothing has to tell them apart.
    """
    if table is None:
        raise ConfigError(f"{source}: a query has no xmin.", hint="name the table, or read the query by a column")
    return ResolvedCursor((XMIN,), is_unique=True)


def _oldest_holder(rows: Sequence[Sequence[Any]]) -> str:
    if not rows:
        return "a transaction that has just ended, or that this user may not see"
    who, seconds, _ = rows[0]
    return f"{who}, open for {max(0.0, seconds or 0.0):.0f} s"

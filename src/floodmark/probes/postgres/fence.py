"""Which transactions of a PostgreSQL database may still write: what a fence around late commits is made of.

The order of the statements is what makes a fence right. The highest value is read first, then the open transactions,
then the prepared ones. A transaction shows itself as open before it can take a value, and stops showing only after its
rows are visible or it is listed as prepared. So whoever took a value at or below the highest one is in one of the two
lists, or its rows are there to be read. One that began between the statements is listed too; it took higher values,
and counting it costs a little patience and needs no clock. Each statement has to be a transaction of its own: within
one the list of open transactions is read only once.

One moment stays uncovered: PostgreSQL takes the time that now() gives a little before it shows the transaction. The
lists are therefore read `UNSEEN_SECONDS` after the highest value if that is a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from floodmark.errors import FenceBlind
from floodmark.probes.cursor_sql import Postgres, text_literal
from floodmark.probes.postgres_fence_fit import Doubt, Trust, require_fit, trust

if TYPE_CHECKING:
    from floodmark.probes.postgres import PostgresProbe
    from floodmark.probes.tables import Bounds, Ceiling, Cursor, Low

SQL = Postgres()

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


def writers(lists: Sequence[Sequence[Sequence[Any]]], source: str) -> Writers:
    """What the two lists say. Raises FenceBlind if a session hides what it does."""
    open_rows, prepared_rows = lists
    opened = tuple(_open(row, source) for row in open_rows)
    return Writers(opened, tuple(PreparedTransaction(*row) for row in prepared_rows))


def _open(row: Sequence[Any], source: str) -> OpenTransaction:
    pid, began, xid, application, backend, seconds, state = row
    if backend is None:
        raise FenceBlind(source, reason="this user may not see the transactions of other users (pg_read_all_stats)")
    if state == "disabled":
        raise FenceBlind(source, reason=f"the session with pid {pid} hides its transactions (track_activities is off)")
    return OpenTransaction(pid, began, xid, application or "", max(0.0, seconds))


@dataclass
class FenceProbe:
    """A table together with the transactions that may still write to its database."""

    probe: PostgresProbe
    _fit: Cursor | None = None
    _trust: Trust = field(default_factory=Trust)

    @property
    def moves_on(self) -> bool:
        """Whether a later transaction takes another value, so that none comes at the last one that was passed."""
        return not self._trust.is_coarse

    def bounds(self, low: Low, max_rows: int | None, ceilings: Sequence[Ceiling]) -> tuple[Bounds, Writers]:
        """How far the table reaches, and then who may still write: three transactions in one round trip."""
        asked = self.probe.question(low, ceilings)
        (answer,), *lists = self.probe.at_once(asked.bounds(max_rows), OPEN, PREPARED)
        return asked.told(answer), writers(lists, self.probe.place())

    def writers(self) -> Writers:
        """Who may still write now."""
        return writers(self.probe.at_once(OPEN, PREPARED), self.probe.place())

    def newly_fit(self) -> tuple[Doubt, ...]:
        """Asked once per connection, for another one may lead elsewhere. Raises FenceBlind; gives what is in doubt."""
        cursor = self.probe.cursor()  # kept with the connection
        if self._fit is cursor:
            return ()
        name = self.probe.relation.sql(SQL.quote, {}) if self.probe.relation.table is not None else None
        table = text_literal(name) if name is not None else None
        require_fit(self._row, self.probe.place(), table)
        self._fit = cursor
        self._trust = trust(self._row, table, text_literal(cursor.columns[0].name))
        return self._trust.doubts

    def _row(self, sql: str) -> Sequence[Any]:
        (rows,) = self.probe.at_once(sql)
        return rows[0] if rows else ()

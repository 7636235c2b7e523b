"""Whether a fence can work on a PostgreSQL table: who may still write has to be visible here, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from floodmark.errors import FenceBlind

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
        return Trust(_made_outside(default), is_coarse)
    if cache > 1:
        return Trust((Doubt("FM411", f"its sequence has a cache of {cache}: sessions keep low values for later"),))
    return Trust((Doubt("FM411", "its sequence does not only grow"),) if increment < 0 or cycles else ())


def _made_outside(default: str | None) -> tuple[Doubt, ...]:
    if TAKEN_INSIDE.search(default or ""):
        return ()
    made = f"its default is {default}" if default else "it has no default"
    return (Doubt("FM412", f"{made}, so its values may be made outside the database"),)

"""What a look at a table sees, without a JVM, and what is said of it: how fresh its rows are, and how many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from threading import Lock
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from floodmark.errors import SourceUnreadable
from floodmark.health.report import HOUR, Check, Finding, Status, TableWatch
from floodmark.hwm import Json
from floodmark.probes.delta import DeltaProbe, rows_in

if TYPE_CHECKING:
    from floodmark.probes.delta import Commit


AT_ONCE = 8
COMMITS_READ = 50
"""Maintenance rarely fills that many commits in a row; where it does, the oldest of them gives the age."""


@dataclass(frozen=True)
class TableFacts:
    """One look. `error`: it could not be looked at, which is not the same as empty; `exists` False: no such table."""

    name: str
    exists: bool = True
    last_change: datetime | None = None
    rows: int | None = None
    rows_before: int | None = None
    """Before the last batch or other commit that changed them; None where the log does not reach back to it."""
    files: int = 0
    bytes: int = 0
    error: str | None = None


@runtime_checkable
class LogReader(Protocol):
    """What asks the logs of Delta tables: the source of a job, or a sink's target."""

    def log_places(self) -> Sequence[str]:
        """Where the tables lie, as far as that is known without Spark."""

    def ask_through(self, probes: Mapping[str, DeltaProbe]) -> None:
        """Use these, by place, instead of probes of one's own."""


@dataclass
class TableLooks:
    """Looks at tables, also again and again: one whose log has not grown since the last look is not read anew.

    Threads may share it; each table is looked at by one at a time.
    """

    _probes: dict[str, DeltaProbe] = field(default_factory=dict)
    _locks: dict[str, Lock] = field(default_factory=dict)
    _facts: dict[str, tuple[str, int, TableFacts]] = field(default_factory=dict)

    def look_at_all(self, tables: Sequence[TableWatch]) -> list[TableFacts]:
        """Side by side, since a store elsewhere lets one wait."""
        with ThreadPoolExecutor(AT_ONCE) as looking:
            return list(looking.map(self.look_at, tables))

    def look_at(self, table: TableWatch) -> TableFacts:
        """Read the table's log; whatever goes wrong is a fact too."""
        try:
            with self._refreshed(table.where) as probe:
                return self._facts_of(table, probe) if probe else TableFacts(table.name, exists=False)
        except SourceUnreadable as error:
            return TableFacts(table.name, error=error.reason)

    def columns(self, where: str) -> list[str] | None:
        """As the log has them; None if it cannot be read, or is none."""
        try:
            with self._refreshed(where) as probe:
                return list(probe.columns()) if probe else None
        except SourceUnreadable:
            return None

    @contextmanager
    def lent_to(self, *readers: object) -> Iterator[None]:
        """Let them ask through the probes that are kept here, and nobody else meanwhile: no log is opened twice."""
        asking = [reader for reader in readers if isinstance(reader, LogReader)]
        places = sorted({place for reader in asking for place in reader.log_places()})  # in one order for all threads
        with ExitStack() as held:
            for place in places:
                held.enter_context(self._locks.setdefault(place, Lock()))
            probes = {place: self._probes.setdefault(place, DeltaProbe(place)) for place in places}
            for reader in asking:
                reader.ask_through(probes)
            yield

    @contextmanager
    def _refreshed(self, where: str) -> Iterator[DeltaProbe | None]:
        with self._locks.setdefault(where, Lock()):
            probe = self._probes.setdefault(where, DeltaProbe(where))
            yield probe if probe.refresh() else None

    def _facts_of(self, table: TableWatch, probe: DeltaProbe) -> TableFacts:
        identity, version = probe.table_id(), probe.latest()
        known = self._facts.get(table.where)
        if known is not None and known[:2] == (identity, version):
            return replace(known[2], name=table.name)
        files, last = probe.files(), last_commit(probe)
        sizes, rows = files.column("size_bytes").to_pylist(), rows_in(files)
        moment = datetime.fromtimestamp(last.timestamp_ms / 1000, timezone.utc) if last else None
        facts = TableFacts(table.name, True, moment, rows, rows_before(probe, last, rows), len(sizes), sum(sizes))
        self._facts[table.where] = (identity, version, facts)
        return facts


def look_at(table: TableWatch) -> TableFacts:
    """One look at one table."""
    return TableLooks().look_at(table)


def last_commit(probe: DeltaProbe) -> Commit | None:
    """By which rows last came or went: compaction does not make a table fresh."""
    latest = probe.latest()
    commits = probe.commits(max(-1, latest - COMMITS_READ), latest)[::-1]
    return next((commit for commit in commits if commit.changes_rows), commits[-1] if commits else None)


def rows_before(probe: DeltaProbe, last: Commit | None, rows: int | None) -> int | None:
    """How many rows there were before a commit, by what it says of itself, else by the table as it was."""
    if last is None or rows is None or not last.changes_rows:
        return None
    if last.counts_rows:
        return rows - (last.inserted_rows or 0) + last.deleted_rows
    return probe.rows_at(last.version - 1)


def freshness(table: TableWatch, facts: TableFacts, now: datetime) -> Finding:
    """FRESH below the limit, STALE below twice the limit, VERY_STALE above."""
    if facts.error:
        return _unseen("data_freshness", table, facts, {"freshness": None}, "stale")
    if not facts.exists or facts.last_change is None:
        why = "there is no such table"
        return Finding("data_freshness", table.name, "CRITICAL", why, {"freshness": None}, "stale", _advice(table))
    age = max(0.0, (now - facts.last_change).total_seconds())
    word, status = _grade(age, table.limits.freshness_seconds)
    details: dict[str, Json] = {
        "freshness": word,
        "age_hours": round(age / HOUR, 2),
        "last_change": facts.last_change.isoformat(),
    }
    message = f"{word}: rows last changed {age / HOUR:.1f} h ago"
    return Finding("data_freshness", table.name, status, message, details, "stale", _advice(table))


def _unseen(check: Check, table: TableWatch, facts: TableFacts, details: dict[str, Json], kind: str) -> Finding:
    advice = f"{table.name}: see that its log can be read from here"
    return Finding(check, table.name, "UNKNOWN", f"could not look: {facts.error}", details, kind, advice)


def _grade(age: float, limit: float) -> tuple[str, Status]:
    if age < limit:
        return "FRESH", "HEALTHY"
    return ("STALE", "WARNING") if age < 2 * limit else ("VERY_STALE", "CRITICAL")


def _advice(table: TableWatch) -> str:
    return f"{table.name}: run the job that fills it, and look at `floodmark runs` for why it did not"


def table_count(table: TableWatch, facts: TableFacts, before: int | None) -> Finding:
    """Against zero, the minimum, and the count before the last batch; where the log forgot it, of the last look."""
    when = "at the last look" if facts.rows_before is None else "before its last batch"
    before = before if facts.rows_before is None else facts.rows_before
    details: dict[str, Json] = {"rows": facts.rows, "rows_before": before, "files": facts.files, "bytes": facts.bytes}
    if facts.error:
        return _unseen("record_counts", table, facts, details, "count")
    advice = f"{table.name}: compare it with its source; `floodmark runs` shows what was written"

    def finding(status: str, message: str) -> Finding:
        return Finding("record_counts", table.name, status, message, details, "count", advice)  # type: ignore[arg-type]

    if not facts.exists:
        why = "there is no such table"
        return Finding("record_counts", table.name, "CRITICAL", why, details, "count", _advice(table))
    if facts.rows is None:
        return finding("UNKNOWN", "its files do not tell how many rows they hold")
    if facts.rows == 0:
        return finding("CRITICAL" if table.limits.min_rows else "HEALTHY", "it is empty")
    if facts.rows < table.limits.min_rows:
        return finding("WARNING", f"{rows_text(facts.rows)}, at least {table.limits.min_rows} expected")
    change = abs(facts.rows - before) / before if before else 0.0
    if change > table.limits.count_change:
        return finding("WARNING", f"{facts.rows} rows, {before} {when}: changed by {change:.0%}")
    return finding("HEALTHY", rows_text(facts.rows))


def rows_text(rows: int) -> str:
    """1 row, 2 rows."""
    return "1 row" if rows == 1 else f"{rows} rows"

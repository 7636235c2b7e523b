"""Planning what one batch reads from a Delta table: from its log alone, before any row is touched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from floodmark.errors import ChangeFeedOff, ConfigError, SourceGap, SourceRegressed, SourceRewritten
from floodmark.hwm import Span, VersionHWM
from floodmark.probes.delta import FEED, DeltaProbe
from floodmark.probes.delta_commit import Commit
from floodmark.sources.contract import Sight

MarkOf = Callable[[int], VersionHWM]


@dataclass(frozen=True)
class Planner:
    """One look at a table whose probe was just refreshed; `sql` is how a statement names the table."""

    probe: DeltaProbe
    table: str
    sql: str
    changes: Literal["append", "feed"] = "append"
    max_rows: int | None = None

    def snapshot(self, mark: MarkOf) -> Sight:
        """Everything that is there now; an empty table has nothing to give, and no mark."""
        self._needs_feed()
        rows, latest = self.probe.rows(), self.probe.latest()
        if rows == 0:
            return Sight(None)
        detail = {"snapshot": latest, "timestamp_ms": self._moment(latest)}
        return Sight(Span(None, mark(latest), detail), expected_rows=rows)

    def nothing_before(self, mark: MarkOf) -> Sight:
        """A mark at the table's end, by a batch without rows: a feed that ends before it begins."""
        self._needs_feed()
        latest = self.probe.latest()
        return Sight(Span(None, mark(latest), {"first": latest + 1, "last": latest}), expected_rows=0)

    def feed_after(self, after: int, mark: MarkOf) -> Sight:
        """What was committed above a version; commits that change no row are not new data and move no mark."""
        latest = self.probe.latest()
        if latest < after:
            raise SourceRegressed(f"delta table {self.table}", mark=f"version {after}", highest=f"version {latest}")
        if latest == after:
            return Sight(None)
        commits = self._unbroken(after, latest)
        changing = [commit for commit in commits if commit.changes_rows]
        if not changing:
            return Sight(None)
        self._needs_feed(commits, changing[0])
        return self._span(after, latest, self._first_rows(changing), changing, mark)

    def gap_of(self, span: Span) -> SourceGap:
        """For a version whose files are gone although the log still names them."""
        after = span.after.value if span.after else "(none)"
        return SourceGap(f"delta table {self.table}", mark=f"version {after}", oldest=f"version {self.probe.latest()}")

    def _span(
        self, after: int, latest: int, taken: Sequence[Commit], changing: Sequence[Commit], mark: MarkOf
    ) -> Sight:
        if self.changes == "append":
            self._only_added(taken)
        last = latest if len(taken) == len(changing) else taken[-1].version
        rows = [commit.rows_in_feed for commit in taken]
        known = sum(count for count in rows if count is not None) if None not in rows else None
        begin = mark(after) if after >= 0 else None
        return Sight(Span(begin, mark(last), {"first": taken[0].version, "last": last}), expected_rows=known)

    def _unbroken(self, after: int, latest: int) -> tuple[Commit, ...]:
        commits = self.probe.commits(after, latest)
        if len(commits) != latest - after:
            oldest = self.probe.oldest()
            raise SourceGap(
                f"delta table {self.table}",
                mark=f"version {after}",
                oldest=f"version {oldest}",
                hint=f"`floodmark run --from {oldest}` accepts the gap, `--full-refresh` starts again from a snapshot",
            )
        return commits

    def _first_rows(self, changing: Sequence[Commit]) -> Sequence[Commit]:
        """Whole versions while they fit, and at least one."""
        if self.max_rows is None:
            return changing
        totals = accumulate(commit.rows_in_feed or 0 for commit in changing)
        fitting = sum(1 for total in totals if total <= self.max_rows)
        return changing[: max(fitting, 1)]

    def _only_added(self, taken: Sequence[Commit]) -> None:
        found = next((commit for commit in taken if commit.rewrites), None)
        if found is None:
            return
        raise rewritten(self.table, f"version {found.version} ({found.operation}) changed or removed rows")

    def _needs_feed(self, commits: Sequence[Commit] = (), first: Commit | None = None) -> None:
        """The feed has to be on, and to have been on since the first change that is to be read."""
        if not self.probe.feed_is_on():
            raise ChangeFeedOff(f"delta table {self.table}", where=self.sql)
        switched = next((commit.version for commit in commits if commit.sets_property(FEED)), None)
        if first is not None and switched is not None and first.version < switched:
            raise ChangeFeedOff(f"delta table {self.table}", where=self.sql, since=first.version)

    def _moment(self, version: int) -> int:
        commits = self.probe.commits(version - 1, version)
        return commits[0].timestamp_ms if commits else 0


def meant_version(text: str | int) -> int:
    """The version a user wrote."""
    try:
        version = int(text)
    except ValueError:
        version = -1
    if version < 0:
        raise ConfigError(f"{text!r} is not a version.", hint="give a version of the table, 0 or higher") from None
    return version


def rewritten(table: str, what: str) -> SourceRewritten:
    """The stop of a source that takes added rows only."""
    return SourceRewritten(
        f"delta table {table}",
        what=f"{what}, and `changes: append` takes added rows only",
        hint="`changes: feed` delivers updates and deletes too; `floodmark run --full-refresh` starts from a snapshot",
    )

"""A Delta table as a source: a snapshot first, then what its commits did, always between pinned versions.

A change feed tells that, where the table has one; without it, the rows of the files that commits added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

from floodmark.errors import (
    ChangeFeedOff,
    ConfigError,
    DeltaTableMissing,
    SourceGap,
    SourceRegressed,
    SourceRewritten,
    SourceUnreadable,
)
from floodmark.hwm import HWM, Json, Span, VersionHWM
from floodmark.probes.delta import FEED, Commit, DeltaProbe
from floodmark.probes.delta.files import why_not_these
from floodmark.sources.contract import Immutable, Reading, Request, Session, Sight
from floodmark.spark.faults import fault_in, raise_in_plan
from floodmark.spark.table_files import CHANGE, TIME, VERSION, FileRows, read_changes, read_table
from floodmark.spark.tables import DeltaPlace

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from floodmark.errors import FloodmarkError
    from floodmark.probes.delta.commits import RowFile


MarkOf = Callable[[int], VersionHWM]
ORDER_IN_A_COMMIT = ("delete", "update_preimage", "insert", "update_postimage")
"""What a commit took away comes before what it put there: the last row of a key is the one that counts."""
ASK_AGAIN_SECONDS = 60.0
"""How long an idle loop believes what the catalog said about a name."""
VACUUMED = (
    "FILE_NOT_EXIST", "FileNotFoundException", "DELTA_CHANGE_DATA_FILE_NOT_FOUND", "DELTA_FILE_NOT_FOUND",
    "PATH_NOT_FOUND",
)  # fmt: skip
MAPPING = "delta.columnMapping.mode"
BY_FILES = {"by": "files"}
"""In the detail of a span that is read without a feed."""


@dataclass(frozen=True)
class Delta(Immutable):
    """Rows of a Delta table, by version.

    `changes="append"` gives rows that were added, and stops on anything else; `"feed"` gives every change with
    `_change_type`, `_commit_version` and `_commit_timestamp`, and needs the table's change feed. `start` is "earliest"
    (a snapshot, then what follows), "latest" (only what follows) or a version, from which on changes are read.

    >>> Delta("bronze/orders", changes="feed").start
    'earliest'
    """

    path: str | None = None
    table: str | None = None
    changes: Literal["append", "feed"] = "append"
    name: str = "delta"
    start: str | int = "earliest"
    _probes: dict[str, DeltaProbe] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.changes not in ("append", "feed"):
            raise ConfigError(f"changes: {self.changes!r} is not known.", hint="one of: append, feed")
        if self.start not in ("earliest", "latest"):
            parse_version(self.start)
        DeltaPlace(self.path, self.table)  # raises ConfigError if neither or both are given

    @cached_property
    def _place(self) -> DeltaPlace:
        return DeltaPlace(self.path, self.table)

    def fingerprint(self, session: Session) -> str:
        """A name may stand for another table by now: it is looked up for every batch, and now and then between."""
        self._place.location_now(session, after_seconds=ASK_AGAIN_SECONDS)
        return f"delta {self._place} (table id {self._probe(session).table_id()})"

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        where, place = self._where(session), self._place
        planner = VersionPlanner(self._probe(session), str(place), place.sql, self.changes, request.max_rows)
        sight = self._sight(planner, mark, request)
        if sight.span is not None and place.location_now(session) != where:
            reason = "the catalog has had it moved while it was looked at; the next look goes where it is now"
            raise SourceUnreadable(f"delta table {place}", reason=reason)
        return sight

    def read(self, spark: SparkSession, span: Span) -> Reading:
        rows = self._pinned_rows(spark, self._where(lambda: spark), span)
        return self._only_inserts(rows) if self.changes == "append" else Reading(rows, position=commit_order())

    def without_rows(self, spark: SparkSession) -> Reading:
        """The columns that the table has now."""
        rows = _as_inserts(read_table(spark, self._where(lambda: spark)), None, None)
        return self._only_inserts(rows) if self.changes == "append" else Reading(rows, position=commit_order())

    def explain(self, error: Exception, spark: SparkSession, span: Span) -> FloodmarkError | None:
        """What a failed write met, if it was this table's doing."""
        text = str(error)
        if fault_in(error, "rewritten") is not None:
            return not_append_only(str(self._place), "a commit of this span changed or removed rows")
        if any(sign in text for sign in VACUUMED) and str(self._where(lambda: spark)).split(":")[-1] in text:
            return VersionPlanner(self._probe(lambda: spark), str(self._place), self._place.sql).gap_of(span)
        return None

    def _sight(self, planner: VersionPlanner, mark: HWM[Any] | None, request: Request) -> Sight:
        if request.start is not None:
            return planner.feed_after(parse_version(request.start) - 1, self._mark)
        if mark is not None and mark.value is not None:
            return planner.feed_after(mark.value, self._mark)
        if request.whole or self.start == "earliest":
            return planner.snapshot(self._mark)
        if self.start == "latest":
            return planner.nothing_before(self._mark)
        return planner.feed_after(parse_version(self.start) - 1, self._mark)

    def _pinned_rows(self, spark: SparkSession, location: str, span: Span) -> DataFrame:
        snapshot, first, last = (span.detail.get(name) for name in ("snapshot", "first", "last"))
        if snapshot is not None:
            return _snapshot(read_table(spark, location, int(str(snapshot))), span)
        if _is_void(span):
            return _snapshot(read_table(spark, location, int(str(last))), span).limit(0)
        if span.detail.get("by") == "files":
            return self._added_rows(spark, location, span)
        return read_changes(spark, location, self._probe(lambda: spark), int(str(first)), int(str(last)))

    def _added_rows(self, spark: SparkSession, location: str, span: Span) -> DataFrame:
        planner = VersionPlanner(self._probe(lambda: spark), str(self._place), self._place.sql)
        files = planner.added_files(span)
        schema = read_table(spark, location, int(str(span.detail["last"]))).schema
        return FileRows(spark, location, schema, files).changes()

    def _mark(self, version: int) -> VersionHWM:
        return VersionHWM(self.name, version, entity=str(self._place))

    def _only_inserts(self, rows: DataFrame) -> Reading:
        """The log was asked already; the guard in the plan is for commits that do not say what they did."""
        from pyspark.sql import functions as F

        rewritten = raise_in_plan("rewritten", "a commit changed or removed rows").cast("boolean")
        guarded = rows.where((F.col(CHANGE) == "insert") | rewritten)
        return Reading(guarded, hidden=(CHANGE, VERSION, TIME), position=F.struct(F.col(VERSION)))

    def log_places(self) -> tuple[str, ...]:
        """Where the log is, unless only the catalog knows."""
        known = self._place.known_location
        return () if known is None else (known,)

    def ask_through(self, probes: Mapping[str, DeltaProbe]) -> None:
        """For somebody who looks at the same tables for other reasons, too."""
        self._probes.update(probes)

    def _where(self, session: Session) -> str:
        location = self._place.location(session)
        if location is None:
            raise SourceUnreadable(f"delta table {self._place}", reason="the catalog has no table of that name")
        return location

    def _probe(self, session: Session) -> DeltaProbe:
        location = self._where(session)
        if location not in self._probes:
            self._probes.clear()
        probe = self._probes.setdefault(location, DeltaProbe(location))
        if not probe.refresh():
            raise DeltaTableMissing(self._place)
        return probe


def _snapshot(rows: DataFrame, span: Span) -> DataFrame:
    """A snapshot as the end of a span."""
    return _as_inserts(rows, span.upto.value, span.detail.get("timestamp_ms"))


def _as_inserts(rows: DataFrame, version: int | None, at_ms: Json) -> DataFrame:
    """A snapshot with the columns that the change feed has."""
    from pyspark.sql import functions as F

    moment = F.timestamp_millis(F.lit(at_ms).cast("long"))
    return rows.withColumns({CHANGE: F.lit("insert"), VERSION: F.lit(version).cast("long"), TIME: moment})


def _is_void(span: Span) -> bool:
    """A feed that ends before it begins: the mark is put there, and no row is read."""
    return "first" in span.detail and span.detail["first"] == span.upto.value + 1


def commit_order() -> Column:
    """Where a row of a change feed comes among the others."""
    from pyspark.sql import functions as F

    return F.struct(F.col(VERSION), F.array_position(F.lit(list(ORDER_IN_A_COMMIT)), F.col(CHANGE)))


@dataclass(frozen=True)
class VersionPlanner:
    """Plans what one batch reads, from the table's log alone, before any row is touched.

    The probe was just refreshed; `sql` is how a statement names the table.
    """

    probe: DeltaProbe
    table: str
    sql: str
    changes: Literal["append", "feed"] = "append"
    max_rows: int | None = None

    def snapshot(self, mark: MarkOf) -> Sight:
        """Everything that is there now; an empty table has nothing to give, and no mark."""
        self._goes_by_files()
        rows, latest = self.probe.rows(), self.probe.latest()
        if rows == 0:
            return Sight(None)
        detail = {"snapshot": latest, "timestamp_ms": self._moment(latest)}
        return Sight(Span(None, mark(latest), detail), expected_rows=rows)

    def nothing_before(self, mark: MarkOf) -> Sight:
        """A mark at the table's end, by a batch without rows: a feed that ends before it begins."""
        self._goes_by_files()
        latest = self.probe.latest()
        return Sight(Span(None, mark(latest), {"first": latest + 1, "last": latest}), expected_rows=0)

    def feed_after(self, after: int, mark: MarkOf) -> Sight:
        """What was committed above a version; commits that change no row are not new data and move no mark."""
        latest = self.probe.latest()
        if latest < after:
            raise SourceRegressed(f"delta table {self.table}", mark=f"version {after}", highest=f"version {latest}")
        if latest == after:
            return Sight(None)
        commits = self._require_unbroken(after, latest)
        changing = [commit for commit in commits if commit.changes_rows]
        if not changing:
            return Sight(None)
        by_files = self._goes_by_files(commits, changing[0])
        sight = self._span(after, latest, self._first_rows(changing), changing, mark)
        return self._by_files(sight) if by_files else sight

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

    def _require_unbroken(self, after: int, latest: int) -> tuple[Commit, ...]:
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
        raise not_append_only(self.table, f"version {found.version} ({found.operation}) changed or removed rows")

    def _goes_by_files(self, commits: Sequence[Commit] = (), first: Commit | None = None) -> bool:
        """Whether rows are read by their files, since the feed is off, or was at the first change that is to be read.

        Raises ChangeFeedOff where only a feed could tell them.
        """
        switched = next((commit.version for commit in commits if commit.sets_property(FEED)), None)
        since = first.version if first is not None and switched is not None and first.version < switched else None
        if self.probe.feed_is_on() and since is None:
            return False
        why = why_not_by_files(self.probe) if self.changes == "append" else None
        if self.changes == "feed" or why is not None:
            since = since if self.probe.feed_is_on() else None
            raise ChangeFeedOff(f"delta table {self.table}", where=self.sql, since=since, why=why)
        return True

    def _by_files(self, sight: Sight) -> Sight:
        """The same span without a feed; what its commits did to files is looked at before a batch is begun."""
        span = replace(sight.span, detail={**sight.span.detail, **BY_FILES}) if sight.span else None
        if span is not None:
            self.added_files(span)
        return replace(sight, span=span)

    def added_files(self, span: Span) -> tuple[RowFile, ...]:
        """The files whose rows are the span's. Raises SourceRewritten for a commit that did not only add some.

        A commit that changed no row, by what the log counts, brought none either, whatever it did to files.
        """
        first, last = (int(str(span.detail[name])) for name in ("first", "last"))
        changing = {each.version: each.operation for each in self.probe.commits(first - 1, last) if each.changes_rows}
        try:
            found = [each for each in self.probe.file_actions(first, last) if each.version in changing]
        except FileNotFoundError as error:
            raise self.gap_of(span) from error
        rewriting = next((each.version for each in found if each.rewrites), None)
        if rewriting is not None:
            what = f"version {rewriting} ({changing[rewriting]}) wrote rows again or removed some"
            raise not_append_only(self.table, what)
        files = tuple(file for each in found for file in each.added)
        why = why_not_these(files)
        if why is not None:
            raise ChangeFeedOff(f"delta table {self.table}", where=self.sql, why=why)
        return files

    def _moment(self, version: int) -> int:
        commits = self.probe.commits(version - 1, version)
        return commits[0].timestamp_ms if commits else 0


def parse_version(text: str | int) -> int:
    """The version a user wrote."""
    try:
        version = int(text)
    except ValueError:
        version = -1
    if version < 0:
        raise ConfigError(f"{text!r} is not a version.", hint="give a version of the table, 0 or higher") from None
    return version


def why_not_by_files(probe: DeltaProbe) -> str | None:
    """Why the files of a table do not tell its rows; None if they do."""
    if probe.properties().get(MAPPING, "none").lower() != "none":
        return "with column mapping its files have other columns than the table"
    return None


def not_append_only(table: str, what: str) -> SourceRewritten:
    """The stop of a source that takes added rows only."""
    return SourceRewritten(
        f"delta table {table}",
        what=f"{what}, and `changes: append` takes added rows only",
        hint="`changes: feed` delivers updates and deletes too, of a table whose change feed is on; `floodmark run "
        "--full-refresh` starts again from a snapshot",
    )

"""A Delta table as a source: a snapshot first, then its change feed, always between pinned versions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from floodmark.errors import ConfigError, SourceUnreadable
from floodmark.hwm import HWM, Json, Span, VersionHWM
from floodmark.probes.delta import DeltaProbe
from floodmark.sources.contract import Immutable, Reading, Request, Session, Sight
from floodmark.sources.delta_span import Planner, meant_version, rewritten
from floodmark.spark.delta_tables import DeltaPlace

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession

    from floodmark.errors import FloodmarkError

CHANGE, VERSION, TIME = "_change_type", "_commit_version", "_commit_timestamp"
ORDER_IN_A_COMMIT = ("delete", "update_preimage", "insert", "update_postimage")
"""What a commit took away comes before what it put there: the last row of a key is the one that counts."""
REWRITTEN = "[floodmark] a commit changed or removed rows [/floodmark]"
VACUUMED = ("FILE_NOT_EXIST", "FileNotFoundException", "DELTA_CHANGE_DATA_FILE_NOT_FOUND", "DELTA_FILE_NOT_FOUND")


@dataclass(frozen=True)
class Delta(Immutable):
    """Rows of a Delta table, by version.

    `changes="append"` gives rows that were added, and stops on anything else; `"feed"` gives every change with
    `_change_type`, `_commit_version` and `_commit_timestamp`. `start` is "earliest" (a snapshot, then what follows),
    "latest" (only what follows) or a version, from which on the change feed is read.
    """

    path: str | None = None
    table: str | None = None
    changes: Literal["append", "feed"] = "append"
    name: str = "delta"
    start: str | int = "earliest"
    _place: DeltaPlace = field(init=False, repr=False, compare=False)
    _probes: dict[str, DeltaProbe] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.changes not in ("append", "feed"):
            raise ConfigError(f"changes: {self.changes!r} is not known.", hint="one of: append, feed")
        if self.start not in ("earliest", "latest"):
            meant_version(self.start)
        object.__setattr__(self, "_place", DeltaPlace(self.path, self.table))

    def fingerprint(self, session: Session) -> str:
        return f"delta {self._place} (table id {self._looked(session).table_id()})"

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        planner = Planner(self._looked(session), str(self._place), self._place.sql, self.changes, request.max_rows)
        return self._sight(planner, mark, request)

    def read(self, spark: SparkSession, span: Span) -> Reading:
        rows = self._pinned(spark.read.format("delta"), self._where(lambda: spark), span)
        return self._only_inserts(rows) if self.changes == "append" else Reading(rows, position=_position())

    def without_rows(self, spark: SparkSession) -> Reading:
        """The columns that the table has now."""
        rows = _as_inserts(spark.read.format("delta").load(self._where(lambda: spark)), None, None)
        return self._only_inserts(rows) if self.changes == "append" else Reading(rows, position=_position())

    def explain(self, error: Exception, spark: SparkSession, span: Span) -> FloodmarkError | None:
        """What a failed write met, if it was this table's doing."""
        text = str(error)
        if REWRITTEN in text:
            return rewritten(str(self._place), "a commit of this span changed or removed rows")
        if any(sign in text for sign in VACUUMED) and str(self._where(lambda: spark)).split(":")[-1] in text:
            return Planner(self._looked(lambda: spark), str(self._place), self._place.sql).gap_of(span)
        return None

    def _sight(self, planner: Planner, mark: HWM[Any] | None, request: Request) -> Sight:
        if request.start is not None:
            return planner.feed_after(meant_version(request.start) - 1, self._mark)
        if mark is not None and mark.value is not None:
            return planner.feed_after(mark.value, self._mark)
        if request.whole or self.start == "earliest":
            return planner.snapshot(self._mark)
        if self.start == "latest":
            return planner.nothing_before(self._mark)
        return planner.feed_after(meant_version(self.start) - 1, self._mark)

    def _pinned(self, reader: DataFrameReader, location: str, span: Span) -> DataFrame:
        snapshot, first, last = (span.detail.get(name) for name in ("snapshot", "first", "last"))
        if snapshot is not None:
            return _inserted(reader.option("versionAsOf", str(snapshot)).load(location), span)
        if _is_void(span):
            return _inserted(reader.option("versionAsOf", str(last)).load(location), span).limit(0)
        feed = reader.option("readChangeFeed", "true").option("startingVersion", str(first))
        return feed.option("endingVersion", str(last)).load(location)

    def _mark(self, version: int) -> VersionHWM:
        return VersionHWM(self.name, version, entity=str(self._place))

    def _only_inserts(self, rows: DataFrame) -> Reading:
        """The log was asked already; the guard in the plan is for commits that do not say what they did."""
        from pyspark.sql import functions as F

        guarded = rows.where((F.col(CHANGE) == "insert") | F.raise_error(REWRITTEN).cast("boolean"))
        return Reading(guarded, hidden=(CHANGE, VERSION, TIME), position=F.struct(F.col(VERSION)))

    def _where(self, session: Session) -> str:
        location = self._place.location(session)
        if location is None:
            raise SourceUnreadable(f"delta table {self._place}", reason="the catalog has no table of that name")
        return location

    def _looked(self, session: Session) -> DeltaProbe:
        location = self._where(session)
        probe = self._probes.setdefault(location, DeltaProbe(location))
        if not probe.refresh():
            raise SourceUnreadable(f"delta table {self._place}", reason="there is no such table")
        return probe


def _inserted(rows: DataFrame, span: Span) -> DataFrame:
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


def _position() -> Column:
    from pyspark.sql import functions as F

    return F.struct(F.col(VERSION), F.array_position(F.lit(list(ORDER_IN_A_COMMIT)), F.col(CHANGE)))

"""The upkeep of Delta tables: compaction, Z-order, statistics, vacuum; and of the logs behind tables with history.

No row changes, and no reader loses its place.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.errors.causes import reason_of
from floodmark.jobs.dead_letters import require_no_open_batch
from floodmark.jobs.job import Job
from floodmark.jobs.quarantine import close_settled
from floodmark.jobs.table_readers import TableRetention, readers_of, safe_retention
from floodmark.locations import local_path, quote
from floodmark.logs import get_logger
from floodmark.probes.delta import DeltaProbe
from floodmark.sinks.contract import ledger_id
from floodmark.sinks.delta.choice import AnotherWay
from floodmark.sinks.delta.lock import table_lock
from floodmark.sinks.delta.native import set_properties
from floodmark.sinks.scd import Scd1
from floodmark.spark.remote import isolated_session
from floodmark.spark.session import session_of
from floodmark.spark.tables import DeltaPlace
from floodmark.step import RunRequest
from floodmark.step.engine import session_under
from floodmark.step.set_aside import union_all
from floodmark.stores.lease import HeldLease, hold
from floodmark.stores.record import UPKEEP, Receipt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.hwm import Json
    from floodmark.sinks.scd.maintenance import Moment
    from floodmark.sources.contract import Session
    from floodmark.stores.contract import MarkStore


log = get_logger(__name__)
PROPERTIES = "retention and statistics"
DEFAULT_VACUUM = timedelta(hours=168)
DEFAULT_FILE_SIZE = 256 * 1024 * 1024
LOCK_PATIENCE_SECONDS = 600.0
FILE_SIZE_SETTINGS = ("spark.databricks.delta.optimize.maxFileSize", "spark.databricks.delta.optimize.minFileSize")


@dataclass(frozen=True)
class Upkeep:
    """What is done to one table. `zorder` rewrites it whole, so it is done only when rows came since the last time.

    Neither that nor compaction is worth it below `after_small_files` files. `analyze` has the engine collect statistics
    for its planner; where it has no such thing for Delta tables, those of the files are all there is.

    >>> Upkeep("orders", path="/lake/orders", zorder=("customer_id",), vacuum=timedelta(days=30)).after_small_files
    2
    """

    name: str
    path: str | None = None
    table: str | None = None
    zorder: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()
    target_file_bytes: int = DEFAULT_FILE_SIZE
    after_small_files: int = 2
    vacuum: timedelta | None = None
    analyze: bool = False

    def place(self) -> DeltaPlace:
        return DeltaPlace(self.path, self.table)


@dataclass(frozen=True)
class TableReport:
    """What was done to a table, or why it could not be; `note` says why there was nothing to do.

    >>> report = TableReport("orders", done=("compacted",), files_before=120, files_after=3)
    >>> report.serialize()["done"]
    ['compacted']
    """

    table: str
    done: tuple[str, ...] = ()
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    seconds: float = 0.0
    error: str | None = None
    note: str | None = None

    def serialize(self) -> dict[str, Json]:
        return {**asdict(self), "done": list(self.done)}


def optimize(
    spark: SparkSession | Session, tables: Sequence[Upkeep], store: MarkStore, *, dry_run: bool = False
) -> list[TableReport]:
    """Look after each table in turn; one that cannot be does not stop the others. What was done is kept as a run.

    A function that gives the session is called only if Spark has something to do, or a table has to be looked up by
    its name.

    >>> for _ in range(2):
    ...     spark.range(3).coalesce(1).write.format("delta").mode("append").save(f"{folder}/orders")
    >>> [report] = optimize(spark, [Upkeep("orders", path=f"{folder}/orders")], fm.stores.open("memory"))
    >>> report.files_before, report.files_after
    (2, 1)
    """
    started, analysis = datetime.now(timezone.utc), Analysis()
    session = session_of(spark)
    reports = [_look_after(session, each, store, analysis, dry_run=dry_run) for each in tables]
    if not dry_run and any(report.done or report.error for report in reports):
        store.add_run(receipt_of(reports, started))
    return reports


def receipt_of(reports: Sequence[TableReport], started: datetime) -> Receipt:
    """All tables as one run; only of those that something was done to is it said how long it took."""
    errors = [f"{report.table}: {report.error}" for report in reports if report.error]
    return Receipt(
        UPKEEP,
        uuid.uuid4().hex[:12],
        "failed" if errors else "done",
        started,
        round(sum(report.seconds for report in reports), 3),
        durations={report.table: report.seconds for report in reports if report.done and not report.error},
        notes=tuple(f"{report.table}: {', '.join(report.done)}" for report in reports if report.done),
        error="; ".join(errors) or None,
    )


def _look_after(
    session: Session, upkeep: Upkeep, store: MarkStore, analysis: Analysis, *, dry_run: bool
) -> TableReport:
    started, report = time.monotonic(), TableReport(upkeep.name)
    try:
        work = TableWork.on(session, upkeep, store, analysis)
        if work is None:
            return replace(report, note="no run has written to it yet")
        report = replace(report, files_before=work.files, bytes_before=work.bytes)
        done = work.plan() if dry_run else work.do()
        files, size = work.probe.files_and_bytes()
        report = replace(report, done=done, files_after=files, bytes_after=size)
    except Exception as error:  # noqa: BLE001 - it is the report of this table, and the next one is tried
        report = replace(report, error=reason_of(error))
    return replace(report, seconds=round(time.monotonic() - started, 3))


@dataclass
class TableWork:
    """One table: what it looks like, and the statements that it needs."""

    session: Session
    upkeep: Upkeep
    place: DeltaPlace
    probe: DeltaProbe
    retention: TableRetention
    analysis: Analysis
    files: int = field(init=False)
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.files, self.bytes = self.probe.files_and_bytes()

    @classmethod
    def on(cls, session: Session, upkeep: Upkeep, store: MarkStore, analysis: Analysis) -> TableWork | None:
        """None if there is no such table yet."""
        place = upkeep.place()
        location = place.location(session)
        probe = None if location is None else DeltaProbe(location)
        if probe is None or not probe.refresh():
            return None
        readers, now = readers_of(probe.table_id(), store), datetime.now(timezone.utc)
        retention = safe_retention(probe, readers, upkeep.vacuum or DEFAULT_VACUUM, now)
        return cls(session, upkeep, place, probe, retention, analysis)

    def statements(self) -> Iterator[tuple[str, str]]:
        """(what it does, the statement), in order."""
        if wanted := self._properties():
            listed = ", ".join(f"'{name}' = '{value}'" for name, value in wanted.items())
            yield PROPERTIES, f"ALTER TABLE {self.place.sql} SET TBLPROPERTIES ({listed})"
        if self.upkeep.zorder and self.files >= self.upkeep.after_small_files and self._changed_since("zOrderBy"):
            columns = ", ".join(map(quote, self.upkeep.zorder))
            yield "z-order", f"OPTIMIZE {self.place.sql} ZORDER BY ({columns})"
        elif not self.upkeep.zorder and self._small_files() >= self.upkeep.after_small_files:
            yield "compaction", f"OPTIMIZE {self.place.sql}"
        if self.upkeep.vacuum is not None:
            yield "vacuum", f"VACUUM {self.place.sql}"

    def plan(self) -> tuple[str, ...]:
        return tuple(what for what, _ in self.statements())

    def do(self) -> tuple[str, ...]:
        """What was done. Properties are set by this process where that is possible: Spark may have nothing to do."""
        done = self._set_properties()
        statements = tuple(self.statements())
        if statements or (self.upkeep.analyze and not self.analysis.is_refused):
            done += self._run(statements)
        self.probe.refresh()
        return done

    def _set_properties(self) -> tuple[str, ...]:
        """Nothing where it is left to Spark."""
        wanted = self._properties()
        if not wanted:
            return ()
        try:
            with self._lock(None):
                self.probe.refresh()
                set_properties(self.probe, wanted)
        except AnotherWay as reason:
            log.debug("left to Spark", table=self.upkeep.name, reason=str(reason))
            return ()
        return (PROPERTIES,)

    def _run(self, statements: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        """Run them in a session of their own: the size of files is a setting of the session."""
        done, spark = [], self.session()
        with isolated_session(spark) as session, self._lock(spark):
            for name in FILE_SIZE_SETTINGS:
                session.conf.set(name, str(self.upkeep.target_file_bytes))
            for what, statement in statements:
                session.sql(statement).collect()
                done.append(what)
            if self.upkeep.analyze and self.analysis.collect(session, self.place):
                done.append("statistics")
        return tuple(done)

    def _properties(self) -> dict[str, str]:
        """Those that are not as they should be: a needless commit is a needless version."""
        wanted = self.retention.properties()
        if self.upkeep.statistics:
            wanted["delta.dataSkippingStatsColumns"] = ",".join(self.upkeep.statistics)
        known = self.probe.properties()
        return {name: value for name, value in wanted.items() if known.get(name) != value}

    def _small_files(self) -> int:
        return sum(size < self.upkeep.target_file_bytes // 2 for size in self.probe.file_sizes())

    def _changed_since(self, parameter: str) -> bool:
        """Whether rows came or went since the last commit that was made with this parameter."""
        for commit in reversed(self.probe.commits(-1, self.probe.latest())):
            if commit.operation == "OPTIMIZE" and commit.parameters.get(parameter, "[]") != "[]":
                return False
            if commit.changes_rows:
                return True
        return True

    @contextmanager
    def _lock(self, spark: SparkSession | None) -> Iterator[None]:
        """Held by whoever commits: the session's JVM, or this process."""
        folder = local_path(self.probe.where)
        if folder is None:
            yield
            return
        with table_lock(folder, spark, patience_seconds=LOCK_PATIENCE_SECONDS):
            yield


@dataclass
class Analysis:
    """Statistics that the engine collects of a table; the first table tells whether it does so for Delta.

    Databricks does. Open-source Spark refuses, and Delta's own statistics of each file stay what its planner has.
    """

    is_refused: bool = False

    def collect(self, session: SparkSession, place: DeltaPlace) -> bool:
        """Whether the engine did."""
        from pyspark.errors import AnalysisException

        if self.is_refused:
            return False
        try:
            session.sql(f"ANALYZE TABLE {place.sql} COMPUTE STATISTICS FOR ALL COLUMNS").collect()
        except AnalysisException as error:
            if "NOT_SUPPORTED" not in str(error.getCondition()) and "not supported" not in str(error).lower():
                raise
            self.is_refused = True
        return not self.is_refused


def prune_events(job: Job, before: Moment | None, spark: SparkSession, store: MarkStore) -> dict[str, int]:
    """Drop events below a moment from every log of the job, under its lease; returns how many, by sink.

    Without a moment, each log keeps events of the age that its sink says (`keep_events`); one that does not say keeps
    all. What is open at the moment becomes a key's first event, and what arrives below it later is refused. Raises
    LeaseHeld while a run is under way, ConfigError if the job keeps no history.

    >>> prices = fm.testing.RowsSource([{"sku": 1, "at": at} for at in (10, 20, 30)], "sku long, at long")
    >>> job = fm.Job("prices", prices, [fm.sinks.Scd2(f"{folder}/prices", key="sku", sequence="at")])
    >>> store = fm.stores.open("memory")
    >>> job.run(spark, store).status
    'done'
    >>> prune_events(job, 25, spark, store)  # the event at 20 is open at 25, and stays
    {'scd2': 1}
    """
    now = datetime.now(timezone.utc)
    with histories(job, spark, store) as (sinks, _):
        floors = {sink: now - sink.keep_events if before is None and sink.keep_events else before for sink in sinks}
        return {sink.name: sink.prune(spark, floor) for sink, floor in floors.items() if floor is not None}


def settle_conflicts(job: Job, keep: str, spark: SparkSession, store: MarkStore) -> dict[str, int]:
    """Decide between events that contradict each other (`on_conflict: quarantine`), under the job's lease.

    Those for which the SQL `keep` holds count from now on, the others are set aside with a reason; returns how many,
    by sink. In the quarantine they are closed. Raises LeaseHeld while a run is under way, ConfigError if a batch is
    open or there is nothing to decide between.

    >>> rows = [{"sku": 1, "at": 10, "price": 5}, {"sku": 1, "at": 10, "price": -5}]
    >>> prices = fm.testing.RowsSource(rows, "sku long, at long, price long")
    >>> sink = fm.sinks.Scd2(f"{folder}/prices", key="sku", sequence="at", on_conflict="quarantine")
    >>> job, store = fm.Job("prices", prices, [sink], quarantine=f"{folder}/aside"), fm.stores.open("memory")
    >>> job.run(spark, store).status
    'done'
    >>> settle_conflicts(job, "price > 0", spark, store)
    {'scd2': 1}
    """
    with histories(job, spark, store) as (sinks, lease):
        step = job.step(session_under(lease, lambda: spark), store, RunRequest())
        require_no_open_batch(step)
        settled = {sink.name: sink.settle(spark, keep) for sink in sinks}
        ids = [found for sink in sinks if (found := sink.contradictions(spark)) is not None]
        undecided, set_aside = (union_all(list(parts)) for parts in zip(*ids, strict=True))
        close_settled(step, lease, undecided, set_aside)
        return settled


@contextmanager
def histories(job: Job, spark: SparkSession, store: MarkStore) -> Iterator[tuple[list[Scd1], HeldLease]]:
    """The job's tables with history, each up to its log, and nobody else at work on them: under the job's lease."""
    sinks = [sink for sink in job.sinks if isinstance(sink, Scd1)]
    if not sinks:
        raise ConfigError(f"job '{job.name}' has no sink with history.", hint="name a job with a scd1 or scd2 sink")
    with hold(store, job.name) as lease:
        open_ones = [
            s.name for s in sinks if s.partial_batch(ledger_id(store.namespace, job.name, s.name), lambda: spark)
        ]
        if open_ones:
            raise ConfigError(
                f"sink '{open_ones[0]}' of job '{job.name}' has events that are not in its table yet.",
                hint="run the job first: it finishes the open batch",
            )
        yield sinks, lease

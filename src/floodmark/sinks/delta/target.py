"""The Delta table behind a sink: its ledger, its lock, how it is made and committed to, and how it is put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from floodmark.errors import (
    ConfigError,
    DiskNotShared,
    Overtaken,
    SinkBehind,
    SinkDisagrees,
    SinkFailed,
    SourceUnreadable,
)
from floodmark.locations import local_path
from floodmark.probes.delta import FENCE_COLUMN, DeltaProbe, missing_files, note
from floodmark.sinks.contract import Batch, Recorded, Session, Way, is_written, without_own
from floodmark.sinks.delta.lock import LockRefused, TableBusy, table_lock
from floodmark.spark.faults import fault_in, hosts_without
from floodmark.spark.remote import isolated_session
from floodmark.spark.session import runs_here
from floodmark.spark.tables import DeltaPlace, cluster_table, create_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

    from floodmark.probes.delta import Commit
    from floodmark.sinks.delta import Delta

COLUMNS = "floodmark.columns"
"""The ledger under which a table counts how often a fence's column gave way to those of rows."""


@dataclass(frozen=True)
class DeltaTarget:
    """A table as one sink commits to it; `sink` is the sink's name, `properties` are what a new table gets."""

    sink: str
    place: DeltaPlace
    patience_seconds: float
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    _probes: dict[str, DeltaProbe] = field(init=False, repr=False, compare=False, default_factory=dict)

    def probe(self, session: Session) -> DeltaProbe | None:
        """The probe of the table's log after a fresh look, or None if there is no log yet."""
        location = self.place.location(session)
        if location is None:
            return None
        if location not in self._probes:
            self._probes.clear()  # the table of that name lies elsewhere now
        probe = self._probes.setdefault(location, DeltaProbe(location))
        return probe if probe.refresh() or probe.has_only_fences() else None

    def log_places(self) -> tuple[str, ...]:
        """Where the log is, unless only the catalog knows."""
        known = self.place.known_location
        return () if known is None else (known,)

    def ask_through(self, probes: Mapping[str, DeltaProbe]) -> None:
        """For somebody who looks at the same tables for other reasons, too."""
        self._probes.update(probes)

    def table(self, session: Session) -> DeltaProbe | None:
        """As `probe`, or None also where a fence was here and no batch yet."""
        probe = self.probe(session)
        return probe if _has_table(probe) else None

    def location(self, spark: SparkSession) -> str:
        """Where it lies. Raises ConfigError for a name that the catalog does not have."""
        location = self.place.location(lambda: spark)
        if location is None:
            raise ConfigError(f"table {self.place} could not be made.", hint="check the catalog and the schema's name")
        return location

    def recorded(self, ledger: str, session: Session) -> Recorded | None:
        """The highest number of the ledger, from the table's transactions; the digest while its commit is known."""
        probe = self.probe(session)
        return _recorded(probe, ledger) if probe else None

    def last_batch(self, ledger: str, session: Session) -> Commit | None:
        """The commit of the last batch of the ledger that wrote, whatever was fenced since, if the log has it."""
        probe = self.probe(session)
        return probe.last_batch(ledger) if probe else None

    def write_once(self, rows: DataFrame, batch: Batch, commit: Callable[[bool], None]) -> Commit | None:
        """Let `commit` write the batch unless it is written; return what the log says of it, if it still does.

        `commit` is told whether the table was there before. Raises Overtaken where the number is taken, also if that
        happened while `commit` was at work; a row that the plan itself refused becomes SinkFailed, with the reason
        alone.
        """
        spark = rows.sparkSession
        is_new_name = self._make_name(rows, batch)

        def commit_by_spark(probe: DeltaProbe | None) -> None:
            commit(_has_table(probe) and not (is_new_name and probe is not None and probe.rows() == 0))

        return self._write(batch, commit_by_spark, lambda: spark, held_by=spark)

    def write_natively(
        self, batch: Batch, commit: Callable[[DeltaProbe | None], None], session: Session
    ) -> Commit | None:
        """As `write_once`, but the commit is made by this process, which then holds the lock, and not by Spark's JVM.

        `commit` gets the probe whose look found the number free, and has to commit on top of that look: a commit with
        a number of the ledger in between makes it fail, also where no lock is.
        """
        return self._write(batch, commit, session, held_by=None)

    def _write(
        self,
        batch: Batch,
        commit: Callable[[DeltaProbe | None], None],
        session: Session,
        *,
        held_by: SparkSession | None,
    ) -> Commit | None:
        with self.lock(held_by, batch.job):
            probe = self.probe(session)
            if not self.has(probe, batch):
                self._require_shared_disk(session(), batch)
                try:
                    commit(probe)
                except Exception as error:
                    self.explain(error, batch, session)
                    raise
                probe = self.probe(session)
                # Delta passes over a transaction whose number it has without a word, whoever took it.
                if not self.has(probe, batch):
                    reason = f"the log of {self.place} does not have the commit that was just made"
                    raise SinkFailed(batch.job, sink=self.sink, reason=reason)
            return self.commit_of(probe, batch)

    def _require_shared_disk(self, spark: SparkSession, batch: Batch) -> None:
        """Raises DiskNotShared where a task would leave its files on a disk that the table is not on.

        Delta's commit would name them all the same. Asked by a small job of its own, and on clusters alone: a merge
        writes behind a shuffle, so its rows cannot carry the question along. A small batch that the driver itself
        commits is refused, too: the next one may be a large one.
        """
        if runs_here(spark):
            return
        location = self.place.location(lambda: spark)
        folder = local_path(location) if location else None
        hosts = hosts_without(folder, spark) if folder is not None else []
        if hosts:
            raise DiskNotShared(batch.job, sink=self.sink, reason=f"{hosts[0]} does not see {folder}")

    def commit_of(self, probe: DeltaProbe | None, batch: Batch) -> Commit | None:
        """The commit of the batch, if the log still has it; the batch notes by which way it was made."""
        commit = probe.commit_of(batch.ledger(self.sink), batch.number) if probe else None
        if commit is not None:
            batch.notes.ways[self.sink] = _way_of(commit)
        return commit

    def fence(self, ledger: str, number: int, session: Session) -> None:
        """An append without rows. A table that is not there is made by it, without the columns that it will have."""
        spark = session()
        nothing = spark.createDataFrame([], f"{FENCE_COLUMN} int")
        if self.place.location(session) is None:
            create_table(nothing, self.place, (), (), self.properties)
        with self.lock(spark, ledger):
            location, probe = self.location(spark), self.probe(session)
            recorded = _recorded(probe, ledger) if probe else None
            if recorded is not None and recorded.number >= number:
                return
            rows = spark.read.format("delta").load(location).limit(0) if probe else nothing
            covered = note(ledger, number, None, before=recorded.last_batch if recorded else 0)
            self._writer(rows, ledger, number, covered).mode("append").save(location)

    def prepare(self, rows: DataFrame, batch: Batch) -> None:
        """A writer makes a table at a path by itself, but no clusters, and it does not fit the column of a fence."""
        if self.cluster_by or self.probe(lambda: rows.sparkSession) is not None:
            self.create(rows, batch)

    def create(self, rows: DataFrame, batch: Batch) -> None:
        """An empty table for such rows, where there is none or only a fence. Raises Overtaken if it is this batch's."""
        probe = self.probe(lambda: rows.sparkSession)
        if probe is None:
            create_table(_no_rows(rows), self.place, self.partition_by, self.cluster_by, self.properties)
        elif not self.has(probe, batch) and probe.has_only_fences():
            self._give_columns(rows, probe)

    def _make_name(self, rows: DataFrame, batch: Batch) -> bool:
        """Whether a name had to be given to the catalog: only then is it known which folder is to be locked."""
        if self.place.location(lambda: rows.sparkSession) is not None:
            return False
        self.create(rows, batch)
        return True

    def _give_columns(self, rows: DataFrame, probe: DeltaProbe) -> None:
        """Exchange the column of the fence for those of the rows, with partitions, clusters and properties.

        It counts how often that was done, in a ledger of its own: of two writers that find the fence only one does it,
        so neither takes the other's rows away, also where no lock is.
        """
        spark, location = rows.sparkSession, self.location(rows.sparkSession)
        missing = self.properties.items() - probe.properties().items()
        if missing:
            options = ", ".join(f"'{name}' = '{value}'" for name, value in sorted(missing))
            spark.sql(f"ALTER TABLE {self.place.sql} SET TBLPROPERTIES ({options})")
        number = (probe.recorded(COLUMNS) or 0) + 1
        writer = self._writer(_no_rows(rows), COLUMNS, number, note(COLUMNS, number, None))
        writer = writer.partitionBy(*self.partition_by).mode("overwrite").option("overwriteSchema", "true")
        writer.save(location)
        cluster_table(spark, self.place, self.cluster_by)

    def has(self, probe: DeltaProbe | None, batch: Batch) -> bool:
        """Whether the batch is written. Raises Overtaken, SinkBehind or SinkDisagrees where it must not be."""
        recorded = _recorded(probe, batch.ledger(self.sink)) if probe else None
        return is_written(recorded, batch, self.sink, str(self.place))

    def explain(self, error: Exception, batch: Batch, session: Session) -> None:
        """Raise what a failed commit means, where that is known."""
        reason = fault_in(error, "sink")
        if reason is not None:
            raise SinkFailed(batch.job, sink=self.sink, reason=reason) from error
        try:
            self.has(self.probe(session), batch)
        except (Overtaken, SinkBehind, SinkDisagrees) as taken:
            raise taken from error
        except SourceUnreadable:
            return  # what Spark said tells more

    def writer(self, rows: DataFrame, batch: Batch) -> DataFrameWriter:
        """A writer whose commit carries the batch's number, digest and marks."""
        writer = self._writer(rows, batch.ledger(self.sink), batch.number, self.note(batch))
        return writer.partitionBy(*self.partition_by) if self.partition_by else writer

    def run(self, statement: str, batch: Batch, spark: SparkSession, settings: Mapping[str, str]) -> None:
        """MERGE takes its transaction from session settings only, so it gets a session that nobody else uses."""
        transaction = {
            "spark.databricks.delta.write.txnAppId": batch.ledger(self.sink),
            "spark.databricks.delta.write.txnVersion": str(batch.number),
            "spark.databricks.delta.commitInfo.userMetadata": self.note(batch),
        }
        with isolated_session(spark) as own:
            for name, value in {**transaction, **settings}.items():
                own.conf.set(name, value)
            own.sql(statement).collect()

    def tidy(self, statement: str, batch: Batch, spark: SparkSession) -> None:
        """Run a statement that belongs to a batch which is written already: it is noted as that batch's."""
        with isolated_session(spark) as own, self.lock(spark, batch.job):
            own.conf.set("spark.databricks.delta.commitInfo.userMetadata", self.note(batch))
            own.sql(statement).collect()

    @contextmanager
    def lock(self, spark: SparkSession | None, job: str) -> Iterator[None]:
        """Nobody else commits to a table on a local disk meanwhile; other stores see to that themselves.

        Spark's JVM holds it, as it commits; without a session this process does, and the table's place is known.
        """
        location = self.place.location(lambda: spark) if spark is not None else self.place.known_location
        folder = local_path(location) if location else None
        if folder is None:
            yield
            return
        try:
            with table_lock(folder, spark, patience_seconds=self.patience_seconds):
                yield
        except (TableBusy, LockRefused) as error:
            raise SinkFailed(job, sink=self.sink, reason=str(error)) from error

    def _writer(self, rows: DataFrame, ledger: str, number: int, user_metadata: str) -> DataFrameWriter:
        writer = rows.write.format("delta").option("txnAppId", ledger).option("txnVersion", str(number))
        return writer.option("userMetadata", user_metadata).options(**self.properties)

    def note(self, batch: Batch) -> str:
        """What the commit of a batch says of it."""
        return note(batch.ledger(self.sink), batch.number, batch.digest, job=batch.job, marks=dict(batch.marks))


def _way_of(commit: Commit) -> Way:
    if commit.names_files:
        return "parquet"
    return "arrow" if commit.is_native else "spark"


def _has_table(probe: DeltaProbe | None) -> bool:
    """Whether there is more than a fence."""
    return probe is not None and not probe.has_only_fences()


def _recorded(probe: DeltaProbe, ledger: str) -> Recorded | None:
    number = probe.recorded(ledger)
    if number is None:
        return None
    commit = probe.commit_of(ledger, number)
    if commit is None:
        return Recorded(number)
    return Recorded(number, commit.digest or None, is_fence=commit.digest is None, before=commit.before)


def _no_rows(rows: DataFrame) -> DataFrame:
    """None, with the columns that a target gets."""
    return rows.sparkSession.createDataFrame([], without_own(rows).schema)


@dataclass(frozen=True)
class RestorePoint:
    """A table, its version after a batch, the latest one, and the first in between that changed rows."""

    table: Delta
    table_id: str
    ledger: str
    version: int
    latest: int
    first_change: int | None = None

    @classmethod
    def after(cls, table: Delta, ledger: str, number: int, session: Session) -> RestorePoint:
        """Where the batch left the table.

        Raises ConfigError if the log no longer knows, if others wrote since, or if files are gone that it would need.
        """
        probe = table.target.probe(session)
        commit = probe.commit_upto(ledger, number) if probe else None
        if probe is None or commit is None:
            raise ConfigError(
                f"the log of {table.describe()} does not have batch {number}.",
                hint="choose a later one, or rebuild with --full-refresh",
            )
        later = [each for each in probe.commits(commit.version, probe.latest()) if each.changes_rows]
        _require_own(later, ledger, table)
        _require_files(probe, commit.version, number, table)
        changed = later[0].version if later else None
        return cls(table, probe.table_id(), ledger, commit.version, probe.latest(), changed)

    @property
    def name(self) -> str:
        """What the table is known by, also to those who read it."""
        return str(self.table.target.place)

    def holds(self, version: int) -> bool:
        """Whether the table, once it is put back, has every row that a reader has read up to a version."""
        return self.first_change is None or version < self.first_change

    def is_same(self, version: int) -> bool:
        """Whether a version has the very rows that the table will have."""
        return version >= self.version and self.holds(version)

    def restore(self, spark: SparkSession, number: int, job: str) -> None:
        """In one commit, with the number of this act; done twice it is the same.

        Raises Overtaken if a batch has this number or a higher one: whoever wrote it took this act's place.
        """
        target = self.table.target
        with isolated_session(spark) as own, target.lock(spark, self.ledger):
            own.conf.set("spark.databricks.delta.commitInfo.userMetadata", note(self.ledger, number, None))
            recorded = target.recorded(self.ledger, lambda: spark)
            if recorded and (recorded.number > number or (recorded.number == number and not recorded.is_fence)):
                raise Overtaken(job, sink=self.table.name, number=number)
            own.sql(f"RESTORE TABLE {target.place.sql} TO VERSION AS OF {self.version}").collect()


def _require_own(later: Sequence[Commit], ledger: str, table: Delta) -> None:
    for each in later:
        if each.ledger != ledger:
            raise ConfigError(
                f"version {each.version} of {table.describe()} ({each.operation}) is not of this job,"
                " and would be undone with it.",
                hint="undo it by hand first, or set the mark alone with `floodmark marks set`",
            )


def _require_files(probe: DeltaProbe, version: int, number: int, table: Delta) -> None:
    """RESTORE finds out by itself, but only when other tables may have been put back already."""
    gone = missing_files(probe.where, version, probe.latest())
    if gone == ():
        return
    what = f"{len(gone)} of its files are gone (vacuum), as {gone[0]}" if gone else "its log no longer reaches back"
    raise ConfigError(
        f"{table.describe()} cannot be as batch {number} left it (version {version}): {what}.",
        hint="choose a later one, or rebuild with --full-refresh",
    )

"""The Delta table behind a sink: its ledger, its lock, how it is made and committed to, and how it is put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, SinkFailed
from floodmark.locations import local_path
from floodmark.probes.delta import DeltaProbe, missing_files, note
from floodmark.sinks.contract import Batch, Recorded, Session, without_own
from floodmark.sinks.delta.lock import TableBusy, table_lock
from floodmark.spark.faults import fault_in
from floodmark.spark.session import isolated_session, jvm_pid
from floodmark.spark.tables import DeltaPlace, create_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

    from floodmark.probes.delta import Commit
    from floodmark.sinks.delta import Delta


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
        """The probe after a fresh look, or None if there is no table yet."""
        location = self.place.location(session)
        if location is None:
            return None
        probe = self._probes.setdefault(location, DeltaProbe(location))
        return probe if probe.refresh() else None

    def location(self, spark: SparkSession) -> str:
        """Where it lies. Raises ConfigError for a name that the catalog does not have."""
        location = self.place.location(lambda: spark)
        if location is None:
            raise ConfigError(f"table {self.place} could not be made.", hint="check the catalog and the schema's name")
        return location

    def recorded(self, ledger: str, session: Session) -> Recorded | None:
        """The highest number of the ledger, from the table's transactions; the digest while its commit is known."""
        probe = self.probe(session)
        number = probe.recorded(ledger) if probe else None
        if probe is None or number is None:
            return None
        commit = probe.commit_of(ledger, number)
        return Recorded(number, commit.digest if commit else None)

    def commit_of(self, batch: Batch, spark: SparkSession) -> Commit | None:
        """What the log says about a batch that was written, if it still does."""
        probe = self.probe(lambda: spark)
        return probe.commit_of(batch.ledger(self.sink), batch.number) if probe else None

    def write_once(self, spark: SparkSession, batch: Batch, commit: Callable[[bool], None]) -> None:
        """Let `commit` write the batch unless its number is recorded; it is told whether the table exists.

        A row that the plan itself refused becomes SinkFailed, with the reason alone.
        """
        with self.lock(spark, batch.job):
            probe = self.probe(lambda: spark)
            if probe is not None and (probe.recorded(batch.ledger(self.sink)) or 0) >= batch.number:
                return
            try:
                commit(probe is not None)
            except Exception as error:
                reason = fault_in(error, "sink")
                if reason is None:
                    raise
                raise SinkFailed(batch.job, sink=self.sink, reason=reason) from error

    def fence(self, ledger: str, number: int, session: Session) -> None:
        """An append without rows. A table that does not exist cannot be fenced: a paused run could still make it."""
        if self.probe(session) is None:
            return
        spark = session()
        location = self.location(spark)
        with self.lock(spark, ledger):
            nothing = spark.read.format("delta").load(location).limit(0)
            self._writer(nothing, ledger, number, note(ledger, number, None)).mode("append").save(location)

    def create(self, rows: DataFrame) -> None:
        """An empty table for such rows, where there is none."""
        empty = rows.sparkSession.createDataFrame([], without_own(rows).schema)
        create_table(empty, self.place, self.partition_by, self.cluster_by, self.properties)

    def writer(self, rows: DataFrame, batch: Batch) -> DataFrameWriter:
        """A writer whose commit carries the batch's number, digest and marks."""
        writer = self._writer(rows, batch.ledger(self.sink), batch.number, self._note(batch))
        return writer.partitionBy(*self.partition_by) if self.partition_by else writer

    def run(self, statement: str, batch: Batch, spark: SparkSession, settings: Mapping[str, str]) -> None:
        """MERGE takes its transaction from session settings only, so it gets a session that nobody else uses."""
        transaction = {
            "spark.databricks.delta.write.txnAppId": batch.ledger(self.sink),
            "spark.databricks.delta.write.txnVersion": str(batch.number),
            "spark.databricks.delta.commitInfo.userMetadata": self._note(batch),
        }
        own = isolated_session(spark)
        for name, value in {**transaction, **settings}.items():
            own.conf.set(name, value)
        own.sql(statement).collect()

    @contextmanager
    def lock(self, spark: SparkSession, job: str) -> Iterator[None]:
        """Nobody else commits to a table on a local disk meanwhile; other stores see to that themselves."""
        location = self.place.location(lambda: spark)
        folder = local_path(location) if location else None
        pid = jvm_pid(spark)
        if folder is None or pid is None:
            yield
            return
        try:
            with table_lock(folder, pid, patience_seconds=self.patience_seconds):
                yield
        except TableBusy as error:
            raise SinkFailed(job, sink=self.sink, reason=str(error)) from error

    def _writer(self, rows: DataFrame, ledger: str, number: int, user_metadata: str) -> DataFrameWriter:
        writer = rows.write.format("delta").option("txnAppId", ledger).option("txnVersion", str(number))
        return writer.option("userMetadata", user_metadata).options(**self.properties)

    def _note(self, batch: Batch) -> str:
        return note(batch.ledger(self.sink), batch.number, batch.digest, job=batch.job, marks=dict(batch.marks))


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

    def restore(self, spark: SparkSession, number: int) -> None:
        """In one commit, with the number of this act; done twice it is the same."""
        own, target = isolated_session(spark), self.table.target
        own.conf.set("spark.databricks.delta.commitInfo.userMetadata", note(self.ledger, number, None))
        with target.lock(spark, self.ledger):
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

"""A Delta table as a sink: data, batch number and digest go into one commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from floodmark.errors import ConfigError, SinkFailed
from floodmark.locations import local_path
from floodmark.probes.delta import FEED, DeltaProbe, files_gone, note
from floodmark.sinks.contract import (
    Atomic,
    Batch,
    Recorded,
    Session,
    check_modes,
    column_names,
    without_own,
    written_columns,
)
from floodmark.sinks.delta.lock import TableBusy, table_lock
from floodmark.sinks.delta.merge import DELETE, GONE, handed_over, merge_statement, newest_per_key, replace_statement
from floodmark.spark.faults import refusal_in
from floodmark.spark.session import isolated
from floodmark.spark.tables import DeltaPlace, cluster_table, create_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.types import StructType

    from floodmark.probes.delta import Commit


# Rows that a Delta table has already, left out before an append: a source may give some of them again.
def unknown(rows: DataFrame, location: str, by: tuple[str, ...]) -> DataFrame:
    """The rows that the table has not, by these columns; all of them if there are none to tell by."""
    if not by:
        return rows
    missing = [name for name in by if name not in rows.columns]
    if missing:
        raise ConfigError(
            f"rows may come again (safety: lag) and are known by {', '.join(missing)}, which the transform left out.",
            hint=f"let the transform keep {', '.join(by)}, or use mode: merge",
        )
    known = rows.sparkSession.read.format("delta").load(location).select(*by)
    return rows.join(known, list(by), "left_anti")


PATIENCE_SECONDS = 600.0


@dataclass(frozen=True)
class Delta(Atomic):
    """Rows in a Delta table; the first batch makes it.

    `merge` keeps the newest row per `key`: by `sequence`, else by the source's position; with `delete_when`, a row for
    which it holds deletes its key. `replace` exchanges the rows with the batch's values of `by`, or without `by` all.
    A table that is made with `change_feed` tells its readers what changed.
    """

    path: str | None = None
    table: str | None = None
    mode: Literal["append", "merge", "replace"] = "append"
    key: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    sequence: tuple[str, ...] = ()
    delete_when: str | None = None
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    name: str = "delta"
    evolve: bool = False
    patience_seconds: float = PATIENCE_SECONDS
    change_feed: bool = False
    _known_by: tuple[str, ...] = field(default=(), repr=False, compare=False)
    _named_by: tuple[str, ...] = field(default=(), repr=False)
    _condition: str | None = field(default=None, repr=False, compare=False)
    _place: DeltaPlace = field(init=False, repr=False, compare=False)
    _probes: dict[str, DeltaProbe] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for columns in ("key", "by", "sequence", "partition_by", "cluster_by"):
            object.__setattr__(self, columns, column_names(getattr(self, columns)))
        object.__setattr__(self, "_place", DeltaPlace(self.path, self.table))
        check_modes(self)
        if self.partition_by and self.cluster_by:
            raise ConfigError(f"sink '{self.name}' has partitions and clusters.", hint="Delta takes one of the two")

    def describe(self) -> str:
        return f"delta table {self._place}"

    def fingerprint(self) -> str:
        parts = {"key": self.key, "by": self.by, "sequence": self.sequence, "delete_when": self.delete_when}
        options = ", ".join(f"{name} {value}" for name, value in parts.items() if value)
        return f"delta {self._place} {self.mode}{f' ({options})' if options else ''}"

    def recorded(self, ledger: str, session: Session) -> Recorded | None:
        probe = self._looked(session)
        number = probe.recorded(ledger) if probe else None
        if probe is None or number is None:
            return None
        commit = probe.commit_of(ledger, number)
        return Recorded(number, commit.digest if commit else None)

    def holds_rows(self, session: Session) -> bool:
        probe = self._looked(session) if self.mode == "append" else None
        return probe is not None and probe.holds_rows()

    def schema(self, session: Session) -> StructType | None:
        from pyspark.sql.types import StructType

        held = self.read(session)
        return StructType(held.schema.fields) if held is not None else None

    def read(self, session: Session) -> DataFrame | None:
        """The table as it is now; None if there is none yet."""
        return session().read.format("delta").load(self._where(session())) if self._looked(session) else None

    def tables(self) -> tuple[Delta, ...]:
        return (self,)

    def needs_position(self) -> bool:
        return self.mode == "merge" and not self.sequence

    def is_secluded(self, batch: Batch, session: Session) -> bool:
        merges = bool(self.by) or (self.mode == "merge" and self._looked(session) is not None)
        return merges and batch.kind != "refresh"

    def write_where(self, rows: DataFrame, batch: Batch, condition: str) -> int | None:
        """As `write` in mode `replace`, but only rows for which the SQL condition holds are exchanged."""
        return replace(self, _condition=condition).write(rows, batch)

    def without_repeats(self, by: tuple[str, ...]) -> Delta | None:
        """A merge takes a row again without harm; an append first looks which rows the table has."""
        if self.mode == "append":
            return replace(self, _known_by=by)
        return self if self.mode == "merge" else None

    def refusing_others(self, named_by: tuple[str, ...]) -> Delta:
        """A merge that stops at a row whose key the table has for another value of these columns."""
        return replace(self, _named_by=named_by)

    def write(self, rows: DataFrame, batch: Batch) -> int | None:
        spark, ledger = rows.sparkSession, batch.ledger(self.name)
        with self.alone(spark, batch.job):
            before = self._looked(lambda: spark)
            if before is None or (before.recorded(ledger) or 0) < batch.number:
                self._commit(rows, batch, exists=before is not None)
        probe = self._looked(lambda: spark)
        commit = probe.commit_of(ledger, batch.number) if probe else None
        if commit is None:
            return None
        return commit.inserted if self.mode == "replace" else commit.rows_written

    def fence(self, ledger: str, number: int, session: Session) -> None:
        """An append without rows. A table that does not exist cannot be fenced: a paused run could still make it."""
        location = self._place.location(session)
        if location is None or self._looked(session) is None:
            return
        spark = session()
        with self.alone(spark, ledger):
            nothing = spark.read.format("delta").load(location).limit(0)
            self._writer(nothing, ledger, number, note(ledger, number, None)).mode("append").save(location)

    def _commit(self, rows: DataFrame, batch: Batch, *, exists: bool) -> None:
        try:
            if batch.kind == "refresh":
                self._refresh(rows, batch, exists=exists)
            elif self.mode == "merge":
                self._merge(rows, batch, exists=exists)
            elif self.mode == "replace" and self.by:
                self._replace_by(rows, batch, exists=exists)
            else:
                self._save(rows, batch, exists=exists)
        except Exception as error:
            reason = refusal_in(error)
            if reason is None:
                raise
            raise SinkFailed(batch.job, sink=self.name, reason=reason) from error

    def _save(self, rows: DataFrame, batch: Batch, *, exists: bool) -> None:
        self._ensure(rows, exists=exists or not (self.table or self.cluster_by))
        new = unknown(rows, self._where(rows.sparkSession), self._known_by) if exists else rows
        writer = self._batch_writer(without_own(new), batch)
        mode = "overwrite" if self.mode == "replace" else "append"
        writer = writer.option("replaceWhere", self._condition) if self._condition else writer
        writer.mode(mode).option("mergeSchema", str(self.evolve).lower()).save(self._where(rows.sparkSession))

    def _refresh(self, rows: DataFrame, batch: Batch, *, exists: bool) -> None:
        """The whole table in one commit, also with other columns than before."""
        self._ensure(rows, exists=exists or not (self.table or self.cluster_by))
        newest = self._newest(rows).where(f"NOT {DELETE}") if self.mode == "merge" else rows
        writer = self._batch_writer(without_own(newest), batch).mode("overwrite").option("overwriteSchema", "true")
        writer.save(self._where(rows.sparkSession))
        # A table that gets another schema loses its clustering; setting it again is a commit of its own.
        cluster_table(rows.sparkSession, self._place, self.cluster_by)

    def _merge(self, rows: DataFrame, batch: Batch, *, exists: bool) -> None:
        if not exists:  # nothing to merge with: the newest rows make the table, in one commit
            self._save(self._newest(rows).where(f"NOT {DELETE}"), batch, exists=False)
            return
        stored = {name.lower() for name in (self.schema(lambda: rows.sparkSession) or rows.schema).names}
        known, named = (
            names if all(name.lower() in stored for name in names) else () for names in (self.sequence, self._named_by)
        )
        newest, columns = self._newest(rows), written_columns(rows)
        with handed_over(newest) as view:
            what = (self._place.sql, view, columns, self.key, known, named)
            self._run(merge_statement(*what, evolve=self.evolve), rows.sparkSession, batch)

    def _replace_by(self, rows: DataFrame, batch: Batch, *, exists: bool) -> None:
        self._ensure(rows, exists=exists)
        columns = written_columns(rows)
        with handed_over(without_own(rows)) as view:
            statement = replace_statement(self._place.sql, view, columns, self.by, evolve=self.evolve)
            self._run(statement, rows.sparkSession, batch)

    def _newest(self, rows: DataFrame) -> DataFrame:
        return newest_per_key(rows, self.key, self.sequence, self.delete_when)

    def _run(self, statement: str, spark: SparkSession, batch: Batch) -> None:
        """MERGE takes its transaction from session settings only, so it gets a session that nobody else uses."""
        from floodmark.spark.session import isolated

        own = isolated(spark)
        for name, value in self._settings(batch, spark).items():
            own.conf.set(name, value)
        own.sql(statement).collect()

    def _settings(self, batch: Batch, spark: SparkSession) -> dict[str, str]:
        return {
            "spark.databricks.delta.write.txnAppId": batch.ledger(self.name),
            "spark.databricks.delta.write.txnVersion": str(batch.number),
            "spark.databricks.delta.commitInfo.userMetadata": self._note(batch),
        }

    def _ensure(self, rows: DataFrame, *, exists: bool) -> None:
        if not exists:
            empty = rows.sparkSession.createDataFrame([], without_own(rows).schema)
            create_table(empty, self._place, self.partition_by, self.cluster_by, self._properties())

    def _batch_writer(self, rows: DataFrame, batch: Batch) -> DataFrameWriter:
        writer = self._writer(rows, batch.ledger(self.name), batch.number, self._note(batch))
        return writer.partitionBy(*self.partition_by) if self.partition_by else writer

    def _writer(self, rows: DataFrame, ledger: str, number: int, user_metadata: str) -> DataFrameWriter:
        writer = rows.write.format("delta").option("txnAppId", ledger).option("txnVersion", str(number))
        return writer.option("userMetadata", user_metadata).options(**self._properties())

    def _properties(self) -> dict[str, str]:
        """What the table is made with; a table that is there keeps its own."""
        return {FEED: "true"} if self.change_feed else {}

    def _note(self, batch: Batch) -> str:
        return note(batch.ledger(self.name), batch.number, batch.digest, job=batch.job, marks=dict(batch.marks))

    @contextmanager
    def alone(self, spark: SparkSession, job: str) -> Iterator[None]:
        """Nobody else commits to a table on a local disk meanwhile; other stores see to that themselves."""
        from floodmark.spark.session import jvm_pid

        location = self._place.location(lambda: spark)
        folder = local_path(location) if location else None
        pid = jvm_pid(spark)
        if folder is None or pid is None:
            yield
            return
        try:
            with table_lock(folder, pid, patience_seconds=self.patience_seconds):
                yield
        except TableBusy as error:
            raise SinkFailed(job, sink=self.name, reason=str(error)) from error

    def _where(self, spark: SparkSession) -> str:
        location = self._place.location(lambda: spark)
        if location is None:
            raise ConfigError(f"table {self.table} could not be made.", hint="check the catalog and the schema's name")
        return location

    def _looked(self, session: Session) -> DeltaProbe | None:
        """The probe after a fresh look, or None if there is no table yet."""
        location = self._place.location(session)
        if location is None:
            return None
        probe = self._probes.setdefault(location, DeltaProbe(location))
        return probe if probe.refresh() else None


def members_table(path: str | None = None, table: str | None = None, *, key: tuple[str, ...], name: str) -> Delta:
    """The table of a dimension: merged by surrogate key, and read on by its change feed."""
    return Delta(path, table, mode="merge", key=key, delete_when=GONE, name=name, change_feed=True)


# Putting a Delta table back to how a batch left it.
@dataclass(frozen=True)
class RestorePoint:
    """A table, its version after a batch, the latest one, and the first in between that changed rows."""

    table: Delta
    table_id: str
    ledger: str
    version: int
    latest: int
    changed: int | None = None

    @classmethod
    def after(cls, table: Delta, ledger: str, number: int, session: Session) -> RestorePoint:
        """Where the batch left the table.

        Raises ConfigError if the log no longer knows, if others wrote since, or if files are gone that it would need.
        """
        location = DeltaPlace(table.path, table.table).location(session)
        probe = DeltaProbe(location or "")
        commit = probe.commit_upto(ledger, number) if location and probe.refresh() else None
        if commit is None:
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
        return str(DeltaPlace(self.table.path, self.table.table))

    def holds(self, version: int) -> bool:
        """Whether the table, once it is put back, has every row that a reader has read up to a version."""
        return self.changed is None or version < self.changed

    def is_same(self, version: int) -> bool:
        """Whether a version has the very rows that the table will have."""
        return version >= self.version and self.holds(version)

    def restore(self, spark: SparkSession, number: int) -> None:
        """In one commit, with the number of this act; done twice it is the same."""
        own, place = isolated(spark), DeltaPlace(self.table.path, self.table.table)
        own.conf.set("spark.databricks.delta.commitInfo.userMetadata", note(self.ledger, number, None))
        with self.table.alone(spark, self.ledger):
            own.sql(f"RESTORE TABLE {place.sql} TO VERSION AS OF {self.version}").collect()


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
    gone = files_gone(probe.where, version, probe.latest())
    if gone == ():
        return
    what = f"{len(gone)} of its files are gone (vacuum), as {gone[0]}" if gone else "its log no longer reaches back"
    raise ConfigError(
        f"{table.describe()} cannot be as batch {number} left it (version {version}): {what}.",
        hint="choose a later one, or rebuild with --full-refresh",
    )

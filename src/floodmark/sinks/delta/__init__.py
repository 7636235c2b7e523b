"""Delta tables as sinks: data, batch number and digest go into one commit. Tables with history are in `sinks.scd`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property, reduce
from operator import and_
from typing import TYPE_CHECKING, Literal

from floodmark.errors import ConfigError
from floodmark.failpoints import reach
from floodmark.fields import ColumnNames
from floodmark.locations import quote
from floodmark.logs import get_logger
from floodmark.probes.delta import FEED
from floodmark.sinks.contract import DELETE, Atomic, Batch, Recorded, Session, without_own, written_columns
from floodmark.sinks.delta.arrow import ArrowWriter
from floodmark.sinks.delta.choice import AnotherWay
from floodmark.sinks.delta.deleted_keys import NOT_KEPT, DeletedKeys
from floodmark.sinks.delta.merge import GONE, merge_statement, newest_per_key, replace_statement, shared_view
from floodmark.sinks.delta.parquet import ParquetWriter
from floodmark.sinks.delta.target import DeltaTarget
from floodmark.sinks.modes import check_modes, mode_fingerprint
from floodmark.sinks.restatement import Restatement, restatement_of
from floodmark.spark.table_files import read_table, table_schema
from floodmark.spark.tables import DeltaPlace, cluster_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from floodmark.probes.delta import Commit

log = get_logger(__name__)
PATIENCE_SECONDS = 600.0
DATES = "floodmark.dates"
"""Under this name the column of the dates carries, in its metadata, the dates that a batch exchanges."""
ALL = "all"
WRITERS = ("auto", "spark")


@dataclass(frozen=True)
class Delta(Atomic):
    """Rows in a Delta table; the first batch makes it.

    `merge` keeps the newest row per `key`: by `sequence`, else by the source's position; with `delete_when`, a row for
    which it holds deletes its key. With both, the deleted keys are kept beside the table (`<table>__deleted`), so that
    an older row that comes later does not bring one back: for the time `keep_deleted`, by default for ever; zero keeps
    none. `replace` exchanges the rows with the batch's values of `by`, or without `by` all.
    With `change_feed` the table tells its readers what changed, from the next batch on if it was made without. A small
    batch, and the files of a large append or first batch, are committed by `deltalake` where that makes the same table
    (see `choice`), any other, and all with `writer` "spark", by Spark's writer.

    >>> Delta("lake/orders", mode="merge", key="id", sequence="updated_at").key
    ('id',)
    """

    path: str | None = None
    table: str | None = None
    mode: Literal["append", "merge", "replace"] = "append"
    key: ColumnNames = ColumnNames()
    by: ColumnNames = ColumnNames()
    sequence: ColumnNames = ColumnNames()
    delete_when: str | None = None
    partition_by: ColumnNames = ColumnNames()
    cluster_by: ColumnNames = ColumnNames()
    name: str = "delta"
    evolve: bool = False
    patience_seconds: float = PATIENCE_SECONDS
    change_feed: bool = False
    keep_deleted: timedelta | None = None
    writer: Literal["auto", "spark"] = "auto"
    _known_by: tuple[str, ...] = field(default=(), repr=False, compare=False)
    _deleted_by: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """The sequence by which a repair remembers what it deletes: it believes its rows, so it has none of its own."""
    _named_by: tuple[str, ...] = field(default=(), repr=False)
    _condition: str | None = field(default=None, repr=False, compare=False)
    _properties: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.target  # noqa: B018 (now: it may be refused, and a relative path is of today's folder)
        check_modes(self)
        if self.writer not in WRITERS:
            raise ConfigError(f"writer: {self.writer!r} is not known.", hint=f"one of: {', '.join(WRITERS)}")
        if self.partition_by and self.cluster_by:
            raise ConfigError(f"sink '{self.name}' has partitions and clusters.", hint="Delta takes one of the two")

    @cached_property
    def target(self) -> DeltaTarget:
        """The table itself."""
        place = DeltaPlace(self.path, self.table)
        properties = {**self._properties, **({FEED: "true"} if self.change_feed else {})}
        return DeltaTarget(self.name, place, self.patience_seconds, self.partition_by, self.cluster_by, properties)

    @cached_property
    def deleted_keys(self) -> DeletedKeys | None:
        """Where a merge keeps the keys that it deleted; None if it keeps none."""
        sequence = self.sequence or self._deleted_by
        is_kept = self.mode == "merge" and sequence and self.delete_when and self.keep_deleted != NOT_KEPT
        return DeletedKeys.beside(self, sequence) if is_kept else None

    def commits_twice(self) -> bool:
        """What was deleted is a second commit, so both have to get the same rows."""
        return self.deleted_keys is not None

    def describe(self) -> str:
        return f"delta table {self.target.place}"

    def fingerprint(self) -> str:
        return f"delta {self.target.place} {mode_fingerprint(self)}"

    def recorded(self, ledger: str, session: Session) -> Recorded | None:
        """Asked for each batch, so a name is looked up again: it may stand for another table by now."""
        self.target.place.location_now(session)
        return self.target.recorded(ledger, session)

    def holds_rows(self, session: Session) -> bool:
        table = self.target.table(session) if self.mode == "append" else None
        return table is not None and table.holds_rows()

    def schema(self, session: Session) -> StructType | None:
        table = self.target.table(session)
        return table_schema(table.schema_json()) if table is not None else None

    def read(self, session: Session) -> DataFrame | None:
        """The table as it is now; None if there is none yet."""
        if self.target.table(session) is None:
            return None
        return read_table(session(), self.target.location(session()))

    def tables(self) -> tuple[Delta, ...]:
        return (self,)

    def needs_position(self) -> bool:
        return self.mode == "merge" and not self.sequence

    def is_secluded(self, batch: Batch, session: Session) -> bool:
        merges = bool(self.by) or (self.mode == "merge" and self.target.table(session) is not None)
        return merges and batch.kind != "refresh"

    def counts_every_row(self) -> bool:
        """The log has the rows of the files that were committed; an append that leaves known rows out writes fewer."""
        return self.mode == "append" and not self._known_by

    def fence(self, ledger: str, number: int, session: Session) -> None:
        self.target.fence(ledger, number, session)
        if self.deleted_keys:
            self.deleted_keys.fence(ledger, number, session)

    def write(self, rows: DataFrame, batch: Batch) -> int | None:
        try:
            commit = self._write_natively(rows, batch)
        except AnotherWay as reason:
            log.debug("the batch goes through Spark's writer", job=batch.job, sink=self.name, reason=str(reason))
            commit = self.target.write_once(rows, batch, lambda exists: self._commit(rows, batch, exists=exists))
        if self.deleted_keys:
            reach("after_merge")
            self.deleted_keys.remember(self._newest(rows), batch, commit)
        if commit is None:
            return None
        return commit.inserted_rows if self.mode == "replace" else commit.rows_written

    def _write_natively(self, rows: DataFrame, batch: Batch) -> Commit | None:
        if self.deleted_keys:
            raise AnotherWay("rows are compared with the keys that were deleted")
        if self._lacks_feed(rows.sparkSession):
            raise AnotherWay("the table gets its change feed first")
        known_by = self._known_by if batch.kind != "refresh" else ()
        try:
            return ArrowWriter(self, rows, batch, self._condition, self._named_by, known_by).write()
        except AnotherWay as reason:
            if known_by:
                raise
            log.debug("the batch does not leave Spark as Arrow", job=batch.job, sink=self.name, reason=str(reason))
        return ParquetWriter(self, rows, batch).write()

    def write_where(self, rows: DataFrame, batch: Batch, condition: str) -> int | None:
        """As `write` in mode `replace`, but only rows for which the SQL condition holds are exchanged."""
        return replace(self, _condition=condition).write(rows, batch)

    def without_repeats(self, by: tuple[str, ...]) -> Delta | None:
        """A merge takes a row again without harm; an append first looks which rows the table has."""
        if self.mode == "append":
            return replace(self, _known_by=by)
        return self if self.mode == "merge" else None

    def restatement(self, rows: Callable[[], DataFrame], expected_rows: int | None) -> Restatement | None:
        """Keys of a merge; of a replacement all rows, or those with the batch's values of `by`."""
        return restatement_of(self, expected_rows)

    def refusing_others(self, named_by: tuple[str, ...]) -> Delta:
        """A merge that stops at a row whose key the table has for another value of these columns."""
        return replace(self, _named_by=named_by)

    def _lacks_feed(self, spark: SparkSession) -> bool:
        """Whether the table is there without the change feed that it should have."""
        table = self.target.table(lambda: spark) if self.change_feed else None
        return table is not None and not table.feed_is_on()

    def _commit(self, rows: DataFrame, batch: Batch, *, exists: bool) -> None:
        if exists and self._lacks_feed(rows.sparkSession):  # a commit of its own, before rows whose changes are wanted
            rows.sparkSession.sql(f"ALTER TABLE {self.target.place.sql} SET TBLPROPERTIES ({FEED} = true)")
        if batch.kind == "refresh":
            self._refresh(rows, batch, exists=exists)
        elif self.mode == "merge" and exists:
            self._merge(rows, batch)
        elif self.mode == "merge":  # nothing to merge with: the newest rows make the table, in one commit
            self._save(self.first_rows(rows), batch, exists=False)
        elif self.mode == "replace" and self.by:
            self._replace_by(rows, batch, exists=exists)
        else:
            self._save(rows, batch, exists=exists)

    def _save(self, rows: DataFrame, batch: Batch, *, exists: bool) -> None:
        if not exists:
            self.target.prepare(rows, batch)
        location = self.target.location(rows.sparkSession)
        new = self.without_known(rows) if exists and self._known_by else rows
        writer = self.target.writer(without_own(new), batch).option("mergeSchema", str(self.evolve).lower())
        writer = writer.option("replaceWhere", self._condition) if self._condition else writer
        writer.mode("overwrite" if self.mode == "replace" else "append").save(location)

    def _refresh(self, rows: DataFrame, batch: Batch, *, exists: bool) -> None:
        """The whole table in one commit, also with other columns than before."""
        if not exists:
            self.target.prepare(rows, batch)
        all_rows = without_own(self.first_rows(rows))
        writer = self.target.writer(all_rows, batch).mode("overwrite").option("overwriteSchema", "true")
        writer.save(self.target.location(rows.sparkSession))
        # A table that gets another schema loses its clustering; setting it again is a commit of its own.
        cluster_table(rows.sparkSession, self.target.place, self.cluster_by)

    def _merge(self, rows: DataFrame, batch: Batch) -> None:
        """Columns that the table does not have yet cannot be compared with what it holds."""
        stored = {name.lower() for name in (self.schema(lambda: rows.sparkSession) or rows.schema).names}
        sequence, named_by = (
            names if all(name.lower() in stored for name in names) else () for names in (self.sequence, self._named_by)
        )
        newest = self._newest(rows)
        if self.deleted_keys and self.sequence:  # a repair believes its rows
            newest = self.deleted_keys.without_older(newest, batch)
        with shared_view(newest) as view:
            parts = (self.target.place.sql, view, written_columns(rows), self.key, sequence, named_by)
            self.target.run(merge_statement(*parts, evolve=self.evolve), batch, rows.sparkSession, {})

    def _replace_by(self, rows: DataFrame, batch: Batch, *, exists: bool) -> None:
        if not exists:
            self.target.create(rows, batch)
        columns = written_columns(rows)
        with shared_view(without_own(rows)) as view:
            statement = replace_statement(self.target.place.sql, view, columns, self.by, evolve=self.evolve)
            self.target.run(statement, batch, rows.sparkSession, {})

    def first_rows(self, rows: DataFrame) -> DataFrame:
        """Those that the table has once the batch has made it, or taken the place of all it had."""
        return self._newest(rows).where(f"NOT {DELETE}") if self.mode == "merge" else rows

    def _newest(self, rows: DataFrame) -> DataFrame:
        return newest_per_key(rows, self.key, self.sequence, self.delete_when)

    def without_known(self, rows: DataFrame, version: int | None = None) -> DataFrame:
        """The rows that the table, now or at a version, has not: a source may give some of them again."""
        missing = [name for name in self._known_by if name not in rows.columns]
        if missing:
            names = ", ".join(missing)
            raise ConfigError(
                f"rows may come again (safety: lag) and are known by {names}, which the transform left out.",
                hint=f"let the transform keep {', '.join(self._known_by)}, or use mode: merge",
            )
        known = read_table(rows.sparkSession, self.target.location(rows.sparkSession), version)
        of_row = reduce(and_, (rows[name].eqNullSafe(known[name]) for name in self._known_by))
        return rows.join(known, of_row, "left_anti")  # a row without a key is known again, too


def members_table(
    path: str | None = None,
    table: str | None = None,
    *,
    key: tuple[str, ...],
    name: str,
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
) -> Delta:
    """The table of a dimension: merged by surrogate key, and read on by its change feed."""
    parted, clustered = tuple(partition_by), tuple(cluster_by)
    merged = Delta(path, table, mode="merge", key=key, delete_when=GONE, name=name, change_feed=True)
    return replace(merged, partition_by=parted, cluster_by=clustered)


@dataclass(frozen=True)
class DeltaDates(Atomic):
    """Facts by date, in a Delta table that is partitioned by it.

    The rows of a batch take the place of all rows with its dates, which it says by `with_dates`; other dates' files
    are not touched.

    >>> DeltaDates("gold/sales", date="date_sk").name
    'facts'
    """

    path: str | None = None
    table: str | None = None
    date: str = "date_sk"
    name: str = "facts"
    evolve: bool = False
    patience_seconds: float = PATIENCE_SECONDS
    change_feed: bool = False
    writer: Literal["auto", "spark"] = "auto"

    def __post_init__(self) -> None:
        self._sink  # noqa: B018 (now: it may be refused, and a relative path is of today's folder)

    @cached_property
    def _sink(self) -> Delta:
        return Delta(
            self.path,
            self.table,
            mode="replace",
            partition_by=self.date,
            name=self.name,
            evolve=self.evolve,
            patience_seconds=self.patience_seconds,
            change_feed=self.change_feed,
            writer=self.writer,
        )

    def describe(self) -> str:
        return self._sink.describe()

    def fingerprint(self) -> str:
        return f"delta dates {self.describe()} by {self.date}"

    def recorded(self, ledger: str, session: Session) -> Recorded | None:
        return self._sink.recorded(ledger, session)

    def holds_rows(self, session: Session) -> bool:
        """Dates are exchanged, so nothing is doubled."""
        return False

    def tables(self) -> tuple[Delta, ...]:
        return (self._sink,)

    def schema(self, session: Session) -> StructType | None:
        return self._sink.schema(session)

    def fence(self, ledger: str, number: int, session: Session) -> None:
        self._sink.fence(ledger, number, session)

    def restatement(self, rows: Callable[[], DataFrame], expected_rows: int | None) -> Restatement | None:
        dated = rows()
        dates = self._dates(dated)
        if dates == ALL or self.schema(lambda: dated.sparkSession) is None:
            return Restatement(self.name, "dates", whole=True)
        named = tuple(sorted(map(int, dates)))
        return Restatement(self.name, "dates", len(named), values=named)

    def write(self, rows: DataFrame, batch: Batch) -> int | None:
        dates = self._dates(rows)
        is_whole = batch.kind == "refresh" or dates == ALL
        batch.notes.restated[self.name] = None if is_whole else tuple(sorted(map(int, dates)))
        plain = rows.withMetadata(self.date, {})  # else it would become a part of the table's schema
        if is_whole or self.schema(lambda: rows.sparkSession) is None:
            return self._sink.write(plain, batch)
        if not dates:
            return replace(self._sink, mode="append").write(plain.limit(0), batch)  # only the number is recorded
        listed = ", ".join(map(str, sorted(dates)))
        return self._sink.write_where(plain, batch, f"{quote(self.date)} IN ({listed})")

    def _dates(self, rows: DataFrame) -> Sequence[int] | str:
        dates = rows.schema[self.date].metadata.get(DATES) if self.date in rows.columns else None
        if dates is None:
            raise ConfigError(
                f"sink '{self.name}' was given rows that do not name their dates.",
                hint="it belongs to a fact of floodmark.medallion",
            )
        return dates  # type: ignore[no-any-return]


def with_dates(rows: DataFrame, column: str, dates: Sequence[int] | None) -> DataFrame:
    """Rows that take the place of everything at these dates, also of those that have no rows; None: of all dates.

    The dates travel with the schema, as a transform gives rows and nothing else, and the spool keeps it: rows that
    named them would be judged by rules, and cost a job to be found.
    """
    from pyspark.sql import functions as F

    numbers = rows.withColumn(column, F.col(quote(column)).cast("int"))
    return numbers.withMetadata(column, {DATES: ALL if dates is None else list(dates)})

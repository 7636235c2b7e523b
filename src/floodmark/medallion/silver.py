"""The three acts of a silver job, as functions: where was I, what came since, remember how far I got.

A task that is a job has the job's record: the functions read and move its mark in there, as runs do.

How far a frame reads travels as metadata of one of its columns: the functions have the signatures of the migration
guide, which hands over a plain DataFrame, so there is no other place for it. `upto` is the one way to read it.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from floodmark import stores
from floodmark.errors import ConfigError
from floodmark.hwm import ColumnDateTimeHWM, Json, VersionHWM
from floodmark.jobs.table_readers import is_same_table
from floodmark.locations import quote
from floodmark.sources.contract import Request
from floodmark.sources.delta import Delta
from floodmark.spark.table_files import CHANGE, TIME, VERSION
from floodmark.spark.tables import DeltaPlace
from floodmark.stores.hwm_access import is_of_a_job, with_mark_moved
from floodmark.stores.lease import change_record
from floodmark.stores.opening import DEFAULT_STORE
from floodmark.stores.record import JobRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from floodmark.stores.contract import MarkStore


STORE = "FLOODMARK_STORE"
SOURCE, UPTO, LATEST = "bronze", "floodmark.upto", "_latest"
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Processed(datetime):
    """How far a task got: the time of a table's commit, and the commit itself. Two commits may share their time.

    `source` tells the very table from another that bears its name later.

    >>> reached = Processed.at(datetime(2026, 1, 3, tzinfo=timezone.utc), table="bronze.orders", version=7)
    >>> reached.isoformat(), reached.version
    ('2026-01-03T00:00:00+00:00', 7)
    """

    table: str
    version: int
    source: str

    @classmethod
    def at(cls, time: datetime, table: str, version: int, source: str = "") -> Processed:
        utc = time.astimezone(timezone.utc)
        moment = cls(utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second, utc.microsecond, timezone.utc)
        moment.table, moment.version, moment.source = table, version, source
        return moment


def get_last_processed_timestamp(spark: SparkSession, task: str, *, store: MarkStore | None = None) -> datetime | None:
    """How far the task got, or None if it never ran. Each task has a mark of its own, whatever else reads the table.

    >>> get_last_processed_timestamp(spark, "silver_orders", store=fm.stores.open("memory")) is None
    True
    """
    record = _store(store).read(task)
    if record is not None and is_of_a_job(record) and SOURCE not in record.marks:
        return _last_of_job(spark, record)
    mark = record.marks.get(SOURCE) if record else None
    if record is None or mark is None:
        return None
    commit = record.extras.part(SOURCE)
    if not commit:
        return mark.value  # type: ignore[no-any-return]
    return Processed.at(mark.value, str(commit["table"]), int(str(commit["version"])), record.sources.get(SOURCE, ""))


def read_bronze_since_timestamp(spark: SparkSession, table: str, since: datetime | None) -> DataFrame:
    """Rows that were added since, up to the table's version of now; None: all that are there.

    A plain time stands for the last commit at or before it. A view `<table>_latest` is read through its table.
    `upto(df)` tells how far this reads. Raises SourceRewritten if rows were changed or removed.

    >>> spark.range(3).write.format("delta").save(f"{folder}/bronze")
    >>> read_bronze_since_timestamp(spark, f"{folder}/bronze", None).count()
    3
    """
    source = _source_of(_changed_table(spark, table))
    known = _commit_at(spark, source, since) if since is not None else None
    sight = source.look(VersionHWM(source.name, known) if known is not None else None, Request(), lambda: spark)
    if sight.span is None:
        return _with_upto(_no_rows(spark, source), since if isinstance(since, Processed) else None)
    end = int(sight.span.upto.value)
    time, fingerprint = _time_of(spark, source, end), source.fingerprint(lambda: spark)
    return _with_upto(source.read(spark, sight.span).rows, Processed.at(time, _name_of(source), end, fingerprint))


def upto(rows: DataFrame) -> Processed | None:
    """How far `read_bronze_since_timestamp` read, to be committed once its rows are processed; None: no further.

    >>> spark.range(3).write.format("delta").save(f"{folder}/bronze")
    >>> rows = read_bronze_since_timestamp(spark, f"{folder}/bronze", None)
    >>> upto(rows).version
    0
    """
    text = rows.schema[TIME].metadata.get(UPTO) if TIME in rows.columns else None
    if text is None:
        raise ConfigError("these rows do not say how far they go.", hint="ask the frame that was read, unchanged")
    reached = json.loads(text)
    if reached is None:
        return None
    return Processed.at(
        datetime.fromisoformat(reached["time"]), reached["table"], reached["version"], reached["source"]
    )


def commit_processing_state(
    spark: SparkSession, task: str, reached: datetime, *, store: MarkStore | None = None
) -> datetime:
    """Remember how far the task got, and never less than before; returns what is remembered.

    Of a task that is a job, the job's own mark is moved: its next run reads on from there. Raises LeaseHeld or
    MarkMoved if another run of the task is under way, ConfigError if a batch of the job is open, or its mark is not
    one of this table.

    >>> spark.range(3).write.format("delta").save(f"{folder}/bronze")
    >>> store = fm.stores.open("memory")
    >>> since = get_last_processed_timestamp(spark, "silver", store=store)
    >>> rows = read_bronze_since_timestamp(spark, f"{folder}/bronze", since)  # transform and write them, and then:
    >>> commit_processing_state(spark, "silver", upto(rows), store=store).version
    0
    """
    opened = _store(store)
    change_record(opened, task, lambda record: _moved(spark, record, reached))
    return get_last_processed_timestamp(spark, task, store=opened) or reached


def _moved(spark: SparkSession, record: JobRecord, reached: datetime) -> JobRecord:
    """The record with its mark moved up; runs keep other marks than these functions do."""
    if is_of_a_job(record) and SOURCE not in record.marks:
        return _with_job_advanced(spark, record, reached)
    return _advance(record, reached)


def _last_of_job(spark: SparkSession, record: JobRecord) -> Processed | None:
    """How far a job got in the one Delta table that it reads; None before its first run."""
    found = _table_of_job(record)
    if found is None:
        return None
    source, mark, version = found
    time = _time_of(spark, _source_of(str(mark.entity)), version)
    return Processed.at(time, str(mark.entity), version, record.sources[source])


def _with_job_advanced(spark: SparkSession, record: JobRecord, reached: datetime) -> JobRecord:
    found = _table_of_job(record)
    if found is None:
        raise ConfigError(
            f"job '{record.job}' has no mark yet, which its first run makes.",
            hint=f"floodmark run --select {record.job}",
        )
    source, mark, known = found
    if isinstance(reached, Processed) and not is_same_table(reached.source, record.sources[source]):
        raise ConfigError(
            f"job '{record.job}' reads {mark.entity}, and what was reached is of {reached.table}.",
            hint="read the table of the job, and commit what `upto` says of it",
        )
    version = _version_of(spark, mark, reached)
    return record if version is None or version <= known else with_mark_moved(record, mark.set_value(version))


def _version_of(spark: SparkSession, mark: VersionHWM, reached: datetime) -> int | None:
    """The commit that was reached; a plain time stands for the last one at or before it."""
    if isinstance(reached, Processed):
        return reached.version
    return _commit_at(spark, _source_of(str(mark.entity)), reached)


def _table_of_job(record: JobRecord) -> tuple[str, VersionHWM, int] | None:
    """The source, the mark and the version of a job that reads one Delta table. Raises ConfigError for any other."""
    versions = [(source, mark) for source, mark in record.marks.items() if isinstance(mark, VersionHWM)]
    marks = [(source, mark, mark.value) for source, mark in versions if mark.value is not None]
    if not record.marks:
        return None
    if len(record.marks) != 1 or not marks:
        kinds = ", ".join(mark.kind for mark in record.marks.values())
        raise ConfigError(
            f"'{record.job}' is a job whose marks ({kinds}) are not versions of one Delta table.",
            hint=f"floodmark marks show {record.job}",
        )
    return marks[0]


def _advance(record: JobRecord, reached: datetime) -> JobRecord:
    """The record with the mark moved up; the very same one if it is there already, or further."""
    mark, known = record.marks.get(SOURCE), record.extras.part(SOURCE)
    commit: Json = {"table": reached.table, "version": reached.version} if isinstance(reached, Processed) else None
    if mark is not None and not _is_further(mark.value, known, reached):
        return record
    fresh = ColumnDateTimeHWM(SOURCE, reached.astimezone(timezone.utc))
    extras = record.extras.with_part(SOURCE, commit)
    # By this the upkeep of the table finds its readers, and keeps what they have not read.
    sources = {SOURCE: reached.source} if isinstance(reached, Processed) else record.sources
    return replace(record, marks={SOURCE: fresh}, sources=sources, extras=extras)


def _is_further(stood: datetime, known: Mapping[str, Any] | None, reached: datetime) -> bool:
    """By commit where both name one of the same table, since times may tie; else by time."""
    if known and isinstance(reached, Processed) and known.get("table") == reached.table:
        return reached.version > int(str(known["version"]))
    return reached > stood


def _changed_table(spark: SparkSession, table: str) -> str:
    """The table behind a view of its latest rows; every other name is a table's own."""
    base = table.removesuffix(LATEST)
    return base if base != table and spark.catalog.tableExists(base) else table


def _source_of(table: str) -> Delta:
    """The table of a name, or at a path."""
    return Delta(path=table) if "/" in table else Delta(table=table)


def _name_of(source: Delta) -> str:
    return str(source.table or source.path)


def _commit_at(spark: SparkSession, source: Delta, since: datetime) -> int | None:
    """The version that a moment stands for; None if it lies before the first."""
    if isinstance(since, Processed) and since.table == _name_of(source):
        return since.version
    if isinstance(since, Processed) and is_same_table(since.source, source.fingerprint(lambda: spark)):
        return since.version  # the job calls it by its path
    if since.tzinfo is None:
        raise ConfigError(f"the time {since} has no zone.", hint="give one that has, such as UTC")
    # By Spark's own history: it tells the same times as the change feed does.
    milliseconds = int((since - EPOCH) / timedelta(milliseconds=1))
    before = _history(spark, source).where(f"unix_millis(timestamp) <= {milliseconds}")
    return before.agg({"version": "max"}).collect()[0][0]  # type: ignore[no-any-return]


def _time_of(spark: SparkSession, source: Delta, version: int) -> datetime:
    commit = _history(spark, source).where(f"version = {version}").selectExpr("unix_millis(timestamp)").collect()
    return EPOCH + timedelta(milliseconds=commit[0][0])


def _history(spark: SparkSession, source: Delta) -> DataFrame:
    return spark.sql(f"DESCRIBE HISTORY {DeltaPlace(source.path, source.table).sql}")


def _no_rows(spark: SparkSession, source: Delta) -> DataFrame:
    """The columns of a read that has nothing to give."""
    from pyspark.sql import functions as F

    added = {VERSION: F.lit(None).cast("long"), TIME: F.lit(None).cast("timestamp"), CHANGE: F.lit("insert")}
    place = DeltaPlace(source.path, source.table)
    return spark.sql(f"SELECT * FROM {place.sql}").limit(0).withColumns(added)


def _with_upto(rows: DataFrame, reached: Processed | None) -> DataFrame:
    """The rows, with how far they go in the metadata of the column of their commit's time."""
    from pyspark.sql import functions as F

    facts = ("table", "version", "source")
    commit = {name: getattr(reached, name) for name in facts} | {"time": reached.isoformat()} if reached else None
    columns = [F.col(quote(name)) for name in rows.columns if name not in (CHANGE, TIME)]
    return rows.select(*columns, F.col(TIME).alias(TIME, metadata={UPTO: json.dumps(commit)}))


def _store(store: MarkStore | None) -> MarkStore:
    return store or stores.open(os.environ.get(STORE) or DEFAULT_STORE)

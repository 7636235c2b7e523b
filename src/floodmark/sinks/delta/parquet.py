"""Large appends, and the large batches that make a table: Spark writes Parquet, and `deltalake` commits it by number.

Delta's own writer builds the whole state of a table to learn a transaction number of it, and again after its commit:
three Spark jobs beside the one that writes. Here the log is read by the probe, and nothing is built.

The files are written into a folder of the attempt, which is hidden from readers and from VACUUM, and moved beside the
table's others under its lock. What a killed attempt leaves there goes with the next commit of the same ledger; what it
had moved already is in no commit, and goes with VACUUM, as after Delta's own writer.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from floodmark.failpoints import reach
from floodmark.locations import literal_path, local_path, quote
from floodmark.sinks.contract import without_own
from floodmark.sinks.delta.choice import AnotherWay
from floodmark.sinks.delta.file_statistics import FileStatistics, indexed_columns, statistics_of
from floodmark.sinks.delta.native import NativeWriter, tidy_log
from floodmark.spark.session import runs_here
from floodmark.spark.table_files import table_schema

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

    from floodmark.probes.delta import Commit, DeltaProbe

STAGING = "_floodmark"
"""The folder in a table's folder where attempts write their files."""
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
NO_MARKER = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
TIMES = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
"""Of the other kind, which Spark writes unless it is told so, a file does not have the lowest and highest."""
LAYOUTS = ("spark.databricks.delta.optimizeWrite.enabled", "spark.databricks.delta.autoCompact.enabled")
"""Settings of a session under which Delta's writer lays out its files otherwise."""


@dataclass(frozen=True)
class ParquetWriter(NativeWriter):
    """One batch that is appended, or makes the table, and whose files Spark writes."""

    def write_new(self, probe: DeltaProbe | None) -> Commit | None:
        if probe is not None and not self.is_append:
            raise AnotherWay("it takes the place of rows")
        self.require_plain_settings()
        self.require_fitting(probe)
        folder = self.table_folder / STAGING / f"{self.name_of_ledger}-{self.batch.number}-{uuid.uuid4().hex}"
        try:
            files = self.write_files(folder, probe)
            return self.commit_once(folder, files, is_first=probe is None)
        finally:
            tidy_staging(folder)

    def require_plain_settings(self) -> None:
        """Tasks see the table's disk, and Delta's writer would lay the files out like this."""
        spark = self.session()
        if not runs_here(spark):
            raise AnotherWay("executors are elsewhere")
        if spark.conf.get(TIMES[0], "") != TIMES[1]:
            raise AnotherWay(f"the session does not have {TIMES[0]}: {TIMES[1]}")
        if any(str(spark.conf.get(name, None)).lower() not in ("none", "false") for name in LAYOUTS):
            raise AnotherWay("the session asks Delta's writer for another layout")

    def write_files(self, folder: Path, probe: DeltaProbe | None) -> list[DataFile]:
        """The rows as Parquet in this folder, by one Spark job; what was written, by the files' own footers."""
        rows, schema, properties = self.sink.first_rows(self.rows), self.columns, self.sink.target.properties
        partitions: Sequence[str] = self.sink.partition_by
        if probe is not None:
            rows, schema, properties = self.rows, table_schema(probe.schema_json()), probe.properties()
            partitions = probe.partitions()
        columns = indexed_columns(schema, properties)
        try:
            rows_in(rows, schema).write.options(**NO_MARKER).partitionBy(*partitions).parquet(literal_path(str(folder)))
        except Exception as error:
            self.sink.target.explain(error, self.batch, self.session)
            raise
        parts = sorted(folder.rglob("part-*.parquet"))
        return [DataFile(part.relative_to(folder), statistics_of(part, columns)) for part in parts]

    def commit_once(self, folder: Path, files: Sequence[DataFile], *, is_first: bool) -> Commit | None:
        """Unless the batch was committed meanwhile; rows that take another way after all are read once more."""

        def commit(found: DeltaProbe | None) -> None:
            if (found is None) != is_first:
                raise AnotherWay("the table was made, or is gone, since the files were written for it")
            self.commit(folder, files, found)

        try:
            return self.sink.target.write_natively(self.batch, commit, self.session)
        except AnotherWay:
            self.batch.notes.is_partly_observed = True
            raise

    def commit(self, folder: Path, files: Sequence[DataFile], probe: DeltaProbe | None) -> None:
        """Commit on top of the very look that found the number free, and under the lock."""
        from deltalake.exceptions import DeltaError

        self.require_fitting(probe)
        held = [file for file in files if file.statistics.rows]
        if probe and any(set(file.partition) != set(probe.partitions()) for file in held):
            raise AnotherWay("the table is partitioned otherwise than when the files were written")
        for file in held:
            move(folder / file.path, self.table_folder / file.path)
        reach("after_files")
        try:
            if probe is None:
                self.make_table(held)
            else:
                probe.commit(lambda table: self.commit_files(table, held))
        except DeltaError as error:
            raise AnotherWay(f"deltalake refused it: {error}") from error
        self.remove_earlier_attempts()

    def make_table(self, files: Sequence[DataFile]) -> None:
        """The first rows make the table, in one commit."""
        from deltalake import Schema
        from deltalake.transaction import create_table_with_add_actions

        added = [file.action(self.table_folder) for file in files]
        create_table_with_add_actions(
            str(self.table_folder),
            Schema.from_json(as_nullable(self.columns).json()),
            added,
            mode="error",  # one that came since is another's, and nobody has asked it for our number
            partition_by=list(self.sink.partition_by),
            configuration=dict(self.sink.target.properties),
            **self.options(files, added),
        )

    def commit_files(self, table: DeltaTable, files: Sequence[DataFile]) -> None:
        """In one commit."""
        added = [file.action(self.table_folder) for file in files]
        partitions = table.metadata().partition_columns
        table.create_write_transaction([*added], "append", table.schema(), partitions, **self.options(files, added))
        table.update_incremental()  # the handle still stands before the commit
        tidy_log(table, table.metadata().configuration)

    def options(self, files: Sequence[DataFile], added: Sequence[AddAction]) -> dict[str, Any]:
        """What the commit is made with; it says of itself what one of Spark's says."""
        metrics = {
            "numFiles": str(len(added)),
            "numOutputRows": str(sum(file.statistics.rows for file in files)),
            "numOutputBytes": str(sum(action.size for action in added)),
        }
        return self.commit_options(is_append=True, operationMetrics=metrics)

    @property
    def table_folder(self) -> Path:
        folder = local_path(self.sink.target.location(self.session()))
        if folder is None:
            raise AnotherWay("the table is not on a local disk")
        return folder

    @property
    def name_of_ledger(self) -> str:
        """How the folders of all attempts of this ledger begin; a ledger's own name may be no folder's."""
        return sha256(self.ledger.encode()).hexdigest()[:16]

    def remove_earlier_attempts(self) -> None:
        """What killed attempts at this number or a lower one left: none of them can be committed any more.

        Those at a higher number are of whoever came after this run, if it was paused.
        """
        for folder in (self.table_folder / STAGING).glob(f"{self.name_of_ledger}-*"):
            number = folder.name.split("-")[1]
            if number.isdigit() and int(number) <= self.batch.number:
                shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class DataFile:
    """A file of rows on its way into the table: its path below the folder, and what is known of its rows."""

    path: Path
    statistics: FileStatistics

    @property
    def partition(self) -> dict[str, str | None]:
        """The values that its folders name; Spark escapes what no folder may be called."""
        pairs = (folder.partition("=") for folder in self.path.parent.parts)
        return {unquote(name): None if value == NULL_FOLDER else unquote(value) for name, _, value in pairs}

    def action(self, table: Path) -> AddAction:
        """How the log names it; it writes paths escaped, as a URI has them."""
        from deltalake.transaction import AddAction

        found = (table / self.path).stat()
        moment, told = found.st_mtime_ns // 1_000_000, json.dumps(self.statistics.as_delta_has_them())
        return AddAction(str(self.path), found.st_size, self.partition, moment, data_change=True, stats=told)


def as_nullable(kind: DataType) -> DataType:
    """A type as Delta's own writer notes it in a new table: every part may be NULL, and nothing is noted of it."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if isinstance(kind, StructType):
        return StructType([StructField(each.name, as_nullable(each.dataType)) for each in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(as_nullable(kind.elementType))
    return MapType(as_nullable(kind.keyType), as_nullable(kind.valueType)) if isinstance(kind, MapType) else kind


def rows_in(rows: DataFrame, table: StructType) -> DataFrame:
    """The rows with their columns named as the table has them; those that they lack are in no file, and so NULL."""
    from pyspark.sql import functions as F

    names = {column.name.lower(): column.name for column in table.fields}
    own = without_own(rows)
    return own.select([F.col(quote(name)).alias(names.get(name.lower(), name)) for name in own.columns])


def move(file: Path, target: Path) -> None:
    """With the checksums that Spark put beside it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    file.replace(target)
    with suppress(FileNotFoundError):
        file.with_name(f".{file.name}.crc").replace(target.with_name(f".{target.name}.crc"))


def tidy_staging(folder: Path) -> None:
    """What a committed batch left of its own folder: names and empty files, or all of it if it was not committed."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()  # only if no other attempt is in it

"""Delta tables that Spark reads by the files which their log names, with the table's columns.

Delta's own reader builds the state of the whole table by four Spark jobs before it gives a row: for a small table that
is ten times the work of reading it. Rows, types and names are those that it gives. What only the log knows (the values
of partitions, the version) is put beside the rows by the name of their file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING
from urllib.parse import unquote

from floodmark.locations import is_url, local_path, quote, spark_path
from floodmark.probes.delta.files import files_at, files_of_changes

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from floodmark.probes.delta import DeltaProbe
    from floodmark.probes.delta.commits import RowFile


CHANGE, VERSION, TIME = "_change_type", "_commit_version", "_commit_timestamp"
"""The columns that a change feed has beside the table's."""
FILE, FACTS = "_fm_file", "_fm_facts"
MOST_LITERALS = 32
"""Files whose facts stand in the query; those of more are joined to the rows."""
UNSPLIT_BYTES = 4 * 1024 * 1024
"""One file of this size is read by one task anyway."""
FEW_BYTES = 64 * 1024
"""Of several files: reading them costs less than a second task."""


def read_table(spark: SparkSession, location: str, version: int | None = None) -> DataFrame:
    """The rows of a table at a version, or now: by their files if these are few, else by Delta's own reader."""
    few = files_at(location, version)
    if few is None:
        reader = spark.read.format("delta")
        return (reader if version is None else reader.option("versionAsOf", str(version))).load(location)
    return FileRows(spark, location, table_schema(few.schema_json), few.files).rows()


def read_changes(spark: SparkSession, location: str, probe: DeltaProbe, first: int, last: int) -> DataFrame:
    """What the change feed has for these versions: by the files of the changes if few, else by Delta's own reader.

    The probe of the table was just refreshed.
    """
    few = files_of_changes(probe, first, last)
    if few is None:
        feed = spark.read.format("delta").option("readChangeFeed", "true")
        return feed.options(startingVersion=str(first), endingVersion=str(last)).load(location)
    return FileRows(spark, location, table_schema(few.schema_json), few.files).changes()


def table_schema(schema_json: str) -> StructType:
    """The columns of a table by its log; Spark would load the table to tell them."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(schema_json))


def in_one_task(rows: DataFrame, files: int, size: int) -> DataFrame:
    """Rows of so many files and bytes; few of them as one partition, and the plan knows that it is one.

    What sums them up, sorts, joins or numbers them then needs no shuffle: one Spark job instead of two or three.
    """
    return rows.coalesce(1) if size <= (UNSPLIT_BYTES if files == 1 else FEW_BYTES) else rows


@dataclass(frozen=True)
class FileRows:
    """Rows of files as the table with this schema has them."""

    spark: SparkSession
    location: str
    schema: StructType
    files: Sequence[RowFile]

    def rows(self) -> DataFrame:
        """The table's columns."""
        read = self._with_facts(self._parquet(self.schema))
        return self._in_one_task(read.select(*self._columns()))

    def changes(self) -> DataFrame:
        """The table's columns and those of a change feed."""
        kinds = dict.fromkeys(each.change for each in self.files) or {"insert": None}
        parts = (replace(self, files=[each for each in self.files if each.change == kind]) for kind in kinds)
        frames = [part._changes(kind) for part, kind in zip(parts, kinds, strict=True)]
        return self._in_one_task(reduce(lambda one, other: one.unionByName(other), frames))

    def _in_one_task(self, rows: DataFrame) -> DataFrame:
        return in_one_task(rows, len(self.files), sum(each.size_bytes for each in self.files))

    def _changes(self, kind: str | None) -> DataFrame:
        """Changes of one kind; None: each row has its own."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        own = [StructField(CHANGE, StringType())] if kind is None else []
        read = self._with_facts(self._parquet(StructType([*self.schema.fields, *own])))
        change = F.col(CHANGE) if kind is None else F.lit(kind).alias(CHANGE)
        moment = F.timestamp_millis(self._fact(TIME).cast("long")).alias(TIME)
        return read.select(*self._columns(), change, self._fact(VERSION).cast("long").alias(VERSION), moment)

    @cached_property
    def _partitions(self) -> frozenset[str]:
        return frozenset(name for each in self.files for name in each.partition)

    @cached_property
    def _facts(self) -> Mapping[str, Mapping[str, str | None]]:
        """What the log says of the files: by the name of the fact, then by that of the file."""
        facts = {name: {each.name: each.partition.get(name) for each in self.files} for name in self._partitions}
        commits = {each.name: (str(each.version), str(each.timestamp_ms)) for each in self.files}
        versions, moments = ({name: pair[at] for name, pair in commits.items()} for at in (0, 1))
        return {**facts, VERSION: versions, TIME: moments}

    def _parquet(self, columns: StructType) -> DataFrame:
        from pyspark.sql.types import StructType

        stored = StructType([field for field in columns.fields if field.name not in self._partitions])
        if not self.files:
            return self.spark.createDataFrame([], stored)
        reader = self.spark.read.format("parquet").schema(stored)
        reader = reader.options(recursiveFileLookup="true", ignoreMissingFiles="false", ignoreCorruptFiles="false")
        return reader.load([spark_path(self._path(each)) for each in self.files])

    def _path(self, file: RowFile) -> str:
        if is_url(file.path):  # of a shallow clone
            return str(local_path(file.path) or unquote(file.path))
        return f"{local_path(self.location) or self.location.rstrip('/')}/{unquote(file.path)}"

    def _with_facts(self, read: DataFrame) -> DataFrame:
        """The rows with the name of their file, if a fact is not the same for all; of many files, the facts too."""
        from pyspark.sql import functions as F

        if all(len(set(values.values())) <= 1 for values in self._facts.values()):
            return read
        named = read.withColumn(FILE, read.metadataColumn("_metadata")["file_name"])
        if len(self.files) <= MOST_LITERALS:
            return named
        facts = [(each.name, {name: values[each.name] for name, values in self._facts.items()}) for each in self.files]
        joined = self.spark.createDataFrame(facts, f"{FILE} string, {FACTS} map<string, string>")
        return named.join(F.broadcast(joined), FILE)

    def _fact(self, name: str) -> Column:
        """What the log says of the file of a row."""
        from pyspark.sql import functions as F

        values = self._facts[name]
        if len(set(values.values())) <= 1:
            return F.lit(next(iter(values.values()), None))
        if len(self.files) > MOST_LITERALS:
            return F.element_at(FACTS, F.lit(name))
        return F.element_at(F.create_map(*(F.lit(each) for pair in values.items() for each in pair)), F.col(FILE))

    def _columns(self) -> Iterator[Column]:
        """Those of the files, and the values of partitions; an empty one is NULL, unless it is of a text."""
        from pyspark.sql import functions as F

        for column in self.schema.fields:
            if column.name not in self._partitions:
                yield F.col(quote(column.name))
            else:
                value = self._fact(column.name).try_cast(column.dataType)
                yield value.alias(column.name, metadata=column.metadata)

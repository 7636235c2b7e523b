"""The rows of files that commits added, for a table without a change feed.

Of a commit that only added files the log tells all that a feed would: every row of them is an insert of that version.
Spark reads the files as Parquet, with the table's columns; what only the log knows (the values of partitions, the
version) is joined to the rows by the name of their file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from floodmark.locations import is_url, local_path, quote, spark_path
from floodmark.probes.delta import DeltaProbe
from floodmark.probes.delta.commits import AddedFile

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


MAPPING = "delta.columnMapping.mode"
PLAIN_NAME = re.compile(r"[A-Za-z0-9._=-]+")
"""Spark gives the name of any other file in another spelling."""
FILE, FILE_VERSION, FILE_MOMENT, VALUES = "_fm_file", "_fm_version", "_fm_moment", "_fm_values"


def why_not(probe: DeltaProbe) -> str | None:
    """Why the files of a table do not tell its rows; None if they do."""
    if probe.properties().get(MAPPING, "none").lower() != "none":
        return "with column mapping its files have other columns than the table"
    return None


def why_not_these(files: Sequence[AddedFile]) -> str | None:
    """Why rows cannot be told by the names of their files; None if they can. Writers put a UUID into them."""
    odd = next((each.path for each in files if not PLAIN_NAME.fullmatch(each.name)), None)
    if odd is not None:
        return f"the name of a file has an unusual character: {odd}"
    name, count = max(Counter(each.name for each in files).items(), key=lambda pair: pair[1], default=("", 0))
    return f"{count} files are named {name}" if count > 1 else None


@dataclass(frozen=True)
class AddedRows:
    """Rows of added files as the table at `schema` has them, with the columns of a change feed beside them."""

    spark: SparkSession
    location: str
    schema: StructType
    files: Sequence[AddedFile]

    def frame(self, kind: str, version: str, moment: str) -> DataFrame:
        """The rows; the three names are those of the feed's columns."""
        from pyspark.sql import functions as F

        read = self._parquet()
        facts = self._facts_of_files()
        rows = read.withColumn(FILE, read.metadataColumn("_metadata")["file_name"]).join(F.broadcast(facts), FILE)
        return rows.select(
            *(self._column(name) for name in self.schema.names),
            F.lit("insert").alias(kind),
            F.col(FILE_VERSION).alias(version),
            F.timestamp_millis(FILE_MOMENT).alias(moment),
        )

    @property
    def _partitions(self) -> frozenset[str]:
        return frozenset(name for each in self.files for name in each.partition)

    def _parquet(self) -> DataFrame:
        from pyspark.sql.types import StructType

        stored = StructType([field for field in self.schema.fields if field.name not in self._partitions])
        reader = self.spark.read.format("parquet").schema(stored)
        reader = reader.options(recursiveFileLookup="true", ignoreMissingFiles="false", ignoreCorruptFiles="false")
        return reader.load([spark_path(self._path(each)) for each in self.files])

    def _path(self, file: AddedFile) -> str:
        if is_url(file.path):  # of a shallow clone
            return str(local_path(file.path) or unquote(file.path))
        return f"{local_path(self.location) or self.location.rstrip('/')}/{unquote(file.path)}"

    def _facts_of_files(self) -> DataFrame:
        """What the log says of each file."""
        facts = [(each.name, each.version, each.timestamp_ms, dict(each.partition)) for each in self.files]
        columns = f"{FILE} string, {FILE_VERSION} long, {FILE_MOMENT} long, {VALUES} map<string, string>"
        return self.spark.createDataFrame(facts, columns)

    def _column(self, name: str) -> Column:
        """A column of the file, or the value of its partition: Delta writes both null and '' as one that is empty."""
        from pyspark.sql import functions as F

        if name not in self._partitions:
            return F.col(quote(name))
        value = F.nullif(F.element_at(VALUES, F.lit(name)), F.lit(""))
        return value.try_cast(self.schema[name].dataType).alias(name)

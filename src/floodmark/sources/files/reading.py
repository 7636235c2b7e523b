"""Reading exactly these files with Spark, so that a malformed record is seen and never becomes a row of nulls.

Spark judges a record only by the columns that a plan needs, and by the filters pushed into its parser. So the reason
of a malformed record is built from every column: whatever the transform drops, the same records are malformed.
One thing its parser does not see: what follows a complete JSON value on its line (or, for `json`, in its file).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from floodmark.probes.files import is_remote
from floodmark.sources.contract import Reading

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

Format = Literal["json", "jsonl", "csv", "parquet"]
Malformed = Literal["fail", "dead_letter"]

CORRUPT = "_fm_corrupt"
FILLER = "_fm_filler"
MARKER = "floodmark: malformed record"
GLOB_SIGNS = frozenset("{}[]*?\\")
READABLE_PART_CHARACTERS = 200

SPARK_FORMATS: Mapping[str, str] = {"json": "json", "jsonl": "json", "csv": "csv", "parquet": "parquet"}
SPARK_SCHEMES: Mapping[str, str] = {"s3": "s3a", "gcs": "gs"}
DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "json": {"multiLine": "true"},
    "jsonl": {},
    # Spark's own default takes columns by position and believes no header: files with another order would be scrambled.
    "csv": {"header": "true", "enforceSchema": "false"},
    "parquet": {"mergeSchema": "true"},
}
ALWAYS: Mapping[str, str] = {
    "recursiveFileLookup": "true",  # a folder named batch=7 is a folder and no column
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}


@dataclass(frozen=True)
class FileReading:
    """Some files of one format, on their way into Spark."""

    spark: SparkSession
    paths: tuple[str, ...]
    format: Format
    schema: str | StructType | None
    options: Mapping[str, str]
    told_by_time: bool = False
    """Whether no two files have one modification time: then rows need not carry their paths, which are long."""

    def reading(self, malformed: Malformed) -> Reading:
        """The rows; malformed records make them fail, or are told apart by the reading's `reason`."""
        if self.format == "parquet":
            rows = self.loaded
            return Reading(rows, position=self._position(rows))
        if malformed == "fail":
            rows = self.or_fail()
            return Reading(rows, position=self._position(rows))
        rows = self.loaded
        return Reading(rows, self.reason(), self.hidden, self._position(rows), self.dead)

    def _position(self, rows: DataFrame) -> Column:
        return position(rows, with_path=not self.told_by_time)

    @cached_property
    def loaded(self) -> DataFrame:
        """Every record; what could not be parsed has its text in the column CORRUPT."""
        if self.format == "parquet":
            return self._load(self._reader.schema(self.schema) if self.schema is not None else self._reader)
        return self._load(self._reader.schema(self._with_corrupt()))

    def or_fail(self) -> DataFrame:
        """The records, and an error when the first malformed one is met."""
        from pyspark.sql import functions as sf

        # A filter that is not deterministic stays below the user's: theirs could drop a malformed record unseen.
        barrier = sf.spark_partition_id() >= 0
        fine = sf.when(self._is_corrupt(), sf.raise_error(sf.concat(sf.lit(f"{MARKER}: "), self._judged()))).isNull()
        return self.loaded.where(barrier & fine).drop(*self.hidden)

    @property
    def hidden(self) -> tuple[str, ...]:
        """Columns that are ours and not the user's."""
        return (CORRUPT, FILLER)

    def reason(self) -> Column:
        """Why a record is malformed; null for the others."""
        from pyspark.sql import functions as sf

        return sf.when(self._is_corrupt(), self._judged())

    def dead(self) -> DataFrame:
        """The malformed records as (file, line, text, reason), one for each line, or file, that holds one.

        A line of JSON can be parsed again by itself; one of CSV would need the header of its file.
        """
        from pyspark.sql import functions as sf

        from floodmark.sources.file_lines import with_lines

        bad = _malformed_records(self)
        if not self.has_lines:
            return bad.select("file", _null_line(), "text", "reason")
        found = with_lines(self, bad)
        return found.withColumn("record", sf.struct("text")) if self.format == "jsonl" else found

    @property
    def has_lines(self) -> bool:
        """Whether a record is a line."""
        return self.format == "jsonl" or (self.format == "csv" and not self.is_on("multiLine"))

    def is_on(self, option: str) -> bool:
        """Whether an option of Spark's reader is true."""
        return self.all_options.get(option.lower(), "").lower() == "true"

    @cached_property
    def all_options(self) -> dict[str, str]:
        """The user's options over ours, by their names in lower case: Spark makes no difference."""
        return {name.lower(): value for name, value in {**DEFAULTS[self.format], **self.options}.items()}

    @property
    def _reader(self) -> DataFrameReader:
        parsing = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        options = {**self.all_options, **ALWAYS, **(parsing if self.format != "parquet" else {})}
        return self.spark.read.format(SPARK_FORMATS[self.format]).options(**options)

    def _load(self, reader: DataFrameReader) -> DataFrame:
        return reader.load([spark_path(path) for path in self.paths])

    def _with_corrupt(self) -> str | StructType:
        """The schema, declared or found in these files, and the column that keeps what does not fit it."""
        from pyspark.sql.types import StringType, StructField, StructType

        if isinstance(self.schema, str):
            return f"{self.schema.strip().rstrip(',')}, {CORRUPT} STRING"
        found = self.schema if self.schema is not None else self._load(self._reader).schema
        fields = [field for field in found.fields if field.name != CORRUPT]
        # Spark refuses a plan that needs CORRUPT alone, as it would for files without one good record.
        columns = fields or [StructField(FILLER, StringType())]
        return StructType([*columns, StructField(CORRUPT, StringType())])

    def _is_corrupt(self) -> Column:
        from pyspark.sql import functions as sf

        return sf.col(CORRUPT).isNotNull()

    def _judged(self) -> Column:
        """What could be read of the record. It names every column, or Spark would leave some out and not judge them."""
        from pyspark.sql import functions as sf

        columns = [sf.col(_quoted(name)) for name in self.loaded.columns if name != CORRUPT]
        readable = sf.substring(sf.to_json(sf.struct(*columns)), 1, READABLE_PART_CHARACTERS)
        return sf.concat(sf.lit(f"not a {self.format} record of this schema; readable part: "), readable)


def _malformed_records(files: FileReading) -> DataFrame:
    from pyspark.sql import functions as sf

    rows = files.loaded
    path = rows.metadataColumn("_metadata")["file_path"]
    bad = rows.where(files.reason().isNotNull())
    return bad.select(
        path.alias("at"), _plain_path(path).alias("file"), sf.col(CORRUPT).alias("text"), files.reason().alias("reason")
    ).dropDuplicates(["at", "text"])


def _null_line() -> Column:
    from pyspark.sql import functions as sf

    return sf.lit(None).cast("long").alias("line")


def position(rows: DataFrame, *, with_path: bool) -> Column:
    """Orders rows as the files were written, and within a file as it reads."""
    from pyspark.sql import functions as sf

    file, path = rows.metadataColumn("_metadata"), ["file_path"] if with_path else []
    places = [file[name].alias(name) for name in ("file_modification_time", *path, "file_block_start")]
    return sf.struct(*places, sf.monotonically_increasing_id().alias("row"))


def _plain_path(path: Column) -> Column:
    """Spark's file URI as the path that people wrote."""
    from pyspark.sql import functions as sf

    decoded = sf.url_decode(sf.replace(path, sf.lit("+"), sf.lit("%2B")))
    return sf.regexp_replace(decoded, "^file:/+", "/")


def spark_path(path: str) -> str:
    """The path for Spark's reader, which would otherwise take `[1]` for a pattern and `/in` for a path on HDFS."""
    literal = "".join(f"\\{sign}" if sign in GLOB_SIGNS else sign for sign in path)
    if not is_remote(path):
        return f"file://{literal}"
    scheme, _, rest = literal.partition("://")
    return f"{SPARK_SCHEMES.get(scheme, scheme)}://{rest}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"

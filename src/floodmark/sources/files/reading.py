"""Reading exactly these files with Spark, so that a malformed record is seen and never becomes a row of nulls.

Spark judges a record only by the columns that a plan needs, and by the filters pushed into its parser. So the reason
of a malformed record is built from every column: whatever the transform drops, the same records are malformed.
Its JSON reader does not see what follows a complete value. So lines, and whole files of `json`, are read as text and
parsed as messages of Kafka are.
Its CSV reader puts U+FFFD in the place of bytes that are no UTF-8. So a record that has one is malformed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

from floodmark.errors import RecordMalformed, SourceUnreadable
from floodmark.locations import SPARK_SCHEMES, is_url, literal_path, local_path, quote
from floodmark.sources.contract import LETTER, Reading
from floodmark.sources.values import (
    CORRUPT,
    KEY,
    PARSED,
    REASON,
    TEXT,
    Json,
    is_no_list,
    is_no_object,
    is_surely_whole,
    object_in,
    objects_in,
    readable_text,
)
from floodmark.spark.faults import fault_in, raise_in_plan
from floodmark.spark.gateway import is_connect
from floodmark.spark.session import runs_here, tasks_for

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType


Format = Literal["json", "jsonl", "csv", "parquet"]
Malformed = Literal["fail", "dead_letter"]

FILLER = "_fm_filler"
WHITESPACE = " \t\r\n"
BYTE_ORDER_MARK, REPLACEMENT = "\ufeff", "\ufffd"
READABLE_PART_CHARACTERS = 200
BYTES_PER_TASK = 32 * 2**20
MANY_BYTES = 4 * 2**20
NO_JSON = "!"
PARSING = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}

SPARK_FORMATS: Mapping[str, str] = {"json": "json", "jsonl": "json", "csv": "csv", "parquet": "parquet"}
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
CSV_HEADER = re.compile(
    r"(?:CSV header does not conform to the schema|Number of column in CSV header).*?"
    r"Header(?: length)?: (?P<header>[^\n]*)\n.*?CSV file: (?P<file>[^\n]*)",
    re.DOTALL,
)
"""What Spark says of a header that it did not expect."""
NOT_THERE = re.compile(r"PATH_NOT_FOUND|FILE_NOT_EXIST|FileNotFoundException")
"""What it says of a file that the driver, or a task, did not find."""


@dataclass(frozen=True)
class FileReading:
    """Some files of one format, on their way into Spark."""

    spark: SparkSession
    paths: tuple[str, ...]
    format: Format
    schema: str | StructType | None
    options: Mapping[str, str]
    times_differ: bool = False
    """Whether no two files have one modification time: then rows need not carry their paths, which are long."""
    size: int | None = None
    """The bytes of all files, where they are known."""

    def reading(self, malformed: Malformed) -> Reading:
        """The rows; malformed records make them fail, or are told apart by the reading's `reason`."""
        if self.format != "parquet" and malformed == "dead_letter":
            unplaced = self._unplaced_lines if self.is_worth_less_parsing() else None
            return Reading(self.rows, self.reason(), self.hidden, self._position(self.rows), self.dead, unplaced)
        rows = self.rows if self.format == "parquet" else self._failing(self.rows)
        unplaced = (lambda: self._failing(self._unplaced_lines())) if self.is_worth_less_parsing() else None
        return Reading(rows, position=self._position(rows), unplaced=unplaced)

    @cached_property
    def rows(self) -> DataFrame:
        """Every record; what could not be parsed has its text in the column CORRUPT."""
        if self.format == "parquet":
            return self._load(self._reader.schema(self.schema) if self.schema is not None else self._reader)
        if self.format == "csv":
            return self._csv_records()
        return self._json_files() if self.is_on("multiLine") else self._json_lines()

    def _json_files(self) -> DataFrame:
        """The objects of every file that is not blank; the text of one that holds anything else is in CORRUPT."""
        from pyspark.sql import functions as F

        text = F.ltrim(self._line(), F.lit(f"{BYTE_ORDER_MARK}{WHITESPACE}"))
        options = {**self.all_options, **ALWAYS, "wholetext": "true"}
        whole = self._load(self.spark.read.format("text").options(**options)).where(text != "")
        json = Json(self.schema if self.schema is not None else self._found_schema)
        parsed = whole.select(json.parse_list(text, self.options).alias(PARSED), self._line().alias(TEXT))
        corrupt = F.when(is_no_list(F.col(PARSED)) | ~F.is_valid_utf8(TEXT), F.col(TEXT))
        listed = parsed.select(objects_in(F.col(PARSED)).alias(PARSED), corrupt.alias(CORRUPT))
        objects = F.explode_outer(F.when(F.col(CORRUPT).isNull(), F.col(PARSED))).alias(PARSED)
        # A list without an object has none either; that is no corrupt one.
        every = listed.select(objects, CORRUPT).where(F.col(PARSED).isNotNull() | F.col(CORRUPT).isNotNull())
        return every.select(f"{PARSED}.*", CORRUPT)

    def _csv_records(self) -> DataFrame:
        """Every record; one whose text Spark could not decode is corrupt, unless the encoding was chosen."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType

        rows = self._load(self._reader.schema(self._with_corrupt()))
        own = [field for field in rows.schema.fields if field.name != CORRUPT]
        texts = [F.col(quote(field.name)) for field in own if isinstance(field.dataType, StringType)]
        if not texts or {"encoding", "charset"} & self.all_options.keys():
            return rows
        is_changed = reduce(or_, (F.coalesce(text.contains(REPLACEMENT), F.lit(False)) for text in texts))
        record = F.when(is_changed, F.to_csv(F.struct(*(quote(field.name) for field in own))))
        return rows.withColumn(CORRUPT, F.coalesce(F.col(CORRUPT), record))

    def _json_lines(self) -> DataFrame:
        """One object for each line that is not blank; the text of any other line is in the column CORRUPT."""
        from pyspark.sql import functions as F

        text = self._line()
        lines = self._load(self.spark.read.format("text").options(**{**self.all_options, **ALWAYS}))
        lines = lines.where(F.ltrim(text, F.lit(WHITESPACE)) != "")
        json = Json(self.schema if self.schema is not None else self._found_schema)
        parsed = json.parse(text, self.options)
        names = lines.select(object_in(parsed).alias(PARSED)).select(f"{PARSED}.*").drop(KEY).columns
        corrupt = F.when(is_no_object(text, parsed) | ~F.is_valid_utf8(text), text)
        # All in one select: Spark parses a line once for all of it, and keeps no copy of what it has parsed.
        return lines.select(*(object_in(parsed)[name].alias(name) for name in names), corrupt.alias(CORRUPT))

    def _unplaced_lines(self) -> DataFrame:
        """The same rows by Spark's reader of JSON texts, which parses one in half the time that its function takes.

        The reader sees nothing behind an object. So a text that may have something there goes through the function too,
        without its columns; CORRUPT has no text here.
        """
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType

        text = F.col("value")
        lines = self._load(self.spark.read.format("text").options(**{**self.all_options, **ALWAYS}))
        is_blank = F.ltrim(text, F.lit(WHITESPACE)) == ""  # no record for the reader either
        is_object = ~is_no_object(text, Json(StructType()).parse(text, self.options)) & F.is_valid_utf8(text)
        # One after the other: of conditions that are joined by OR, Spark would work out the costly part for every text.
        judged = F.when(is_surely_whole(text), text).when(is_blank, text).when(is_object, text).otherwise(NO_JSON)
        reader = self.spark.read.schema(self._with_corrupt()).options(**{**self.options, **PARSING})
        return reader.json(lines.select(judged.alias(TEXT)))

    def is_worth_less_parsing(self) -> bool:
        """Whether these are lines of JSON, and so many that it costs less to plan a second query over their texts."""
        is_lines = self.format == "jsonl" and not self.is_on("multiLine") and self._is_utf8()
        return is_lines and (self.size or 0) >= MANY_BYTES and not is_connect(self.spark)

    def _line(self) -> Column:
        """A line as text, from whatever encoding Spark's reader was told of."""
        from pyspark.sql import functions as F

        return F.col("value") if self._is_utf8() else F.decode(F.col("value").cast("binary"), self._encoding)

    @property
    def _encoding(self) -> str:
        return self.all_options.get("encoding", self.all_options.get("charset", "UTF-8"))

    def _is_utf8(self) -> bool:
        return self._encoding.upper() in ("UTF-8", "UTF8")

    def _failing(self, rows: DataFrame) -> DataFrame:
        """The records, and an error when the first malformed one is met."""
        from pyspark.sql import functions as F

        # A filter that is not deterministic stays below the user's: theirs could drop a malformed record unseen.
        barrier = F.spark_partition_id() >= 0
        fine = F.when(F.col(CORRUPT).isNotNull(), raise_in_plan("malformed", self._readable_part())).isNull()
        return rows.where(barrier & fine).drop(*self.hidden)

    @property
    def hidden(self) -> tuple[str, ...]:
        """Columns that are ours and not the user's."""
        return (CORRUPT, FILLER)

    def reason(self) -> Column:
        """Why a record is malformed; null for the others."""
        from pyspark.sql import functions as F

        return F.when(F.col(CORRUPT).isNotNull(), self._readable_part())

    def dead(self) -> DataFrame:
        """The malformed records as (file, line, text, reason), one for each line, or file, that holds one.

        A line of JSON can be parsed again by itself; one of CSV would need the header of its file.
        """
        from pyspark.sql import functions as F

        bad = _malformed_records(self)
        if not self.has_lines:
            text = readable_text(F.col("text")).alias("text")
            return bad.select("file", F.lit(None).cast("long").alias("line"), text, "reason")
        found = with_lines(self, bad).withColumn("text", readable_text(F.col("text")))
        return found.withColumn("record", F.struct("text")) if self.format == "jsonl" else found

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
        options = {**self.all_options, **ALWAYS, **(PARSING if self.format != "parquet" else {})}
        return self.spark.read.format(SPARK_FORMATS[self.format]).options(**options)

    def _load(self, reader: DataFrameReader) -> DataFrame:
        """In no more tasks than are worth it: Spark counts every file as 4 MB at least, however small it is."""
        rows = reader.load([spark_path(path) for path in self.paths])
        tasks = None if self.size is None else tasks_for(self.spark, len(self.paths), self.size, BYTES_PER_TASK)
        return rows if tasks is None else rows.coalesce(tasks)

    def _with_corrupt(self) -> str | StructType:
        """The schema, declared or found in these files, and the column that keeps what does not fit it."""
        from pyspark.sql.types import StringType, StructField, StructType

        if isinstance(self.schema, str):
            return f"{self.schema.strip().rstrip(',')}, {CORRUPT} STRING"
        found = self.schema if self.schema is not None else self._found_schema
        return StructType([*found.fields, StructField(CORRUPT, StringType())])

    @cached_property
    def _found_schema(self) -> StructType:
        """What Spark finds in these files; a pass over them of its own."""
        from pyspark.sql.types import StringType, StructField, StructType

        fields = [field for field in self._load(self._reader).schema.fields if field.name != CORRUPT]
        # Spark refuses a plan that needs CORRUPT alone, as it would for files without one good record.
        return StructType(fields or [StructField(FILLER, StringType())])

    def _position(self, rows: DataFrame) -> Column:
        """Orders rows as the files were written, and within a file as it reads."""
        from pyspark.sql import functions as F

        file, path = rows.metadataColumn("_metadata"), [] if self.times_differ else ["file_path"]
        places = [file[name].alias(name) for name in ("file_modification_time", *path, "file_block_start")]
        return F.struct(*places, F.monotonically_increasing_id().alias("row"))

    def _readable_part(self) -> Column:
        """What could be read of the record. It names every column, or Spark would leave some out and not judge them."""
        from pyspark.sql import functions as F

        columns = [F.col(quote(name)) for name in self.rows.columns if name != CORRUPT]
        readable = F.substring(F.to_json(F.struct(*columns)), 1, READABLE_PART_CHARACTERS)
        return F.concat(F.lit(f"not a {self.format} record of this schema; readable part: "), readable)


def _malformed_records(files: FileReading) -> DataFrame:
    from pyspark.sql import functions as F

    rows = files.rows
    path = rows.metadataColumn("_metadata")["file_path"]
    bad = rows.where(files.reason().isNotNull())
    return bad.select(
        path.alias("at"),
        _plain_path(path).alias("file"),
        F.col(CORRUPT).alias("text"),
        files.reason().alias("reason"),
    ).dropDuplicates(["at", "text"])


def _plain_path(path: Column) -> Column:
    """Spark's file URI as the path that people wrote."""
    from pyspark.sql import functions as F

    decoded = F.url_decode(F.replace(path, F.lit("+"), F.lit("%2B")))
    return F.regexp_replace(decoded, "^file:/+", "/")


def spark_path(path: str) -> str:
    """The path for Spark's reader, which would otherwise take `[1]` for a pattern and `/in` for a path on HDFS."""
    literal = literal_path(path)
    if not is_url(path):
        return f"file://{literal}"
    scheme, _, rest = literal.partition(":")
    return f"{SPARK_SCHEMES.get(scheme, scheme)}:{rest}"


def with_lines(files: FileReading, bad: DataFrame) -> DataFrame:
    """`bad` with the line of each record; a text that stands on several lines of a file is malformed on all of them.

    The texts are joined, never collected: a file may hold more malformed lines than fit into the driver.
    """
    affected = [row.file for row in bad.select("file").distinct().collect()]
    if not affected:
        return bad.selectExpr("file", "cast(null as long) as line", "text", "reason")
    lines = _numbered_lines(files, affected)
    data = lines.where("line > 1") if files.is_on("header") else lines
    found = data.join(bad.select("at", "text"), ["at", "text"], "left_semi")
    return bad.join(found, ["at", "text"], "left").select("file", "line", "text", "reason")


def _numbered_lines(files: FileReading, paths: list[str]) -> DataFrame:
    """Every line of the files as (at, text, line).

    Spark cuts large files into blocks that different tasks read; within a block the ids of a task are consecutive, so a
    line's number is its place within its block and the lines of all blocks before.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    lines = _text_lines(files, paths)
    blocks = lines.groupBy("at", "block").agg(F.count(F.lit(1)).alias("lines"), F.min("id").alias("first_id"))
    earlier = Window.partitionBy("at").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    starts = blocks.select(
        "at", "block", "first_id", F.coalesce(F.sum("lines").over(earlier), F.lit(0)).alias("before")
    )
    line = F.col("before") + F.col("id") - F.col("first_id") + 1
    return lines.join(F.broadcast(starts), ["at", "block"]).select("at", "text", line.alias("line"))


def _text_lines(files: FileReading, paths: list[str]) -> DataFrame:
    from pyspark.sql import functions as F

    separator = {name: value for name, value in files.options.items() if name.lower() == "linesep"}
    text = files.spark.read.options(**separator, recursiveFileLookup="true").format("text")
    rows = text.load([spark_path(path) for path in paths])
    file = rows.metadataColumn("_metadata")
    return rows.select(
        file["file_path"].alias("at"),
        file["file_block_start"].alias("block"),
        F.monotonically_increasing_id().alias("id"),
        F.col("value").alias("text"),
    )


def first_malformed(error: Exception, files: FileReading, *, source: str) -> RecordMalformed | None:
    """The first malformed record of these files, if that is what the error is about."""
    text = str(error)
    header = CSV_HEADER.search(text)
    if header:
        file = unquote(header["file"]).removeprefix("file://")
        return RecordMalformed(source, file=file, line=1, text=header["header"].strip())
    if fault_in(error, "malformed") is None:
        return None
    first = files.dead().orderBy("file", "line").limit(1).collect()
    return RecordMalformed(source, file=first[0].file, line=first[0].line, text=first[0].text) if first else None


def first_unseen(error: Exception, files: FileReading, *, source: str) -> SourceUnreadable | None:
    """The first of these files that is on this machine, and not where Spark runs, if the error is about that."""
    text = str(error)
    if not NOT_THERE.search(text) or runs_here(files.spark):
        return None
    here = [place for path in files.paths if (place := local_path(path)) and place.is_file() and place.name in text]
    if not here:
        return None
    reason = f"Spark runs on a machine that does not see {here[0]}, a file of this one. Nothing was written"
    hint = "put the files on a disk that this machine and all of Spark's share, or into an object store"
    return SourceUnreadable(source, reason=reason, hint=hint)


def saved_lines(saved: DataFrame, schema: str | StructType, options: Mapping[str, str]) -> Reading:
    """Lines of JSON that were saved as dead letters, parsed again; one that is none of this schema has a reason."""
    from pyspark.sql import functions as F

    lines = saved.select(LETTER, F.col("text").alias(TEXT))
    parsed = lines.withColumn(PARSED, Json(schema).parse(F.col(TEXT), options))
    reason = F.when(is_no_object(F.col(TEXT), F.col(PARSED)), "not a jsonl record of this schema").alias(REASON)
    rows = parsed.select(object_in(F.col(PARSED)).alias(PARSED), reason, LETTER).select(f"{PARSED}.*", REASON, LETTER)
    return Reading(rows, F.col(REASON), hidden=(REASON, KEY))

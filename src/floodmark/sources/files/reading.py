"""Reading exactly these files with Spark, so that a malformed record is seen and never becomes a row of nulls.

Spark judges a record only by the columns that a plan needs, and by the filters pushed into its parser. So the reason
of a malformed record is built from every column: whatever the transform drops, the same records are malformed.
Its JSON reader does not see what follows a complete value. So lines, and whole files of `json`, are read as text and
parsed as messages of Kafka are.
Its CSV reader puts U+FFFD in the place of bytes that are no UTF-8. So a record that has one is malformed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING, Literal

from floodmark.locations import quote, spark_path
from floodmark.sources.contract import LETTER, Reading
from floodmark.sources.files.malformed import malformed_records, with_lines
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
from floodmark.spark.faults import raise_in_plan
from floodmark.spark.gateway import is_connect
from floodmark.spark.session import tasks_for
from floodmark.spark.table_files import in_one_task

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
        if self.is_worth_less_parsing():
            return replace(self._judged(self._unplaced_lines(), malformed), placed=lambda: self._placed(malformed))
        return self._placed(malformed)

    def _placed(self, malformed: Malformed) -> Reading:
        judged = self._judged(self.rows, malformed)
        return replace(judged, position=self._position(judged.rows))

    def _judged(self, rows: DataFrame, malformed: Malformed) -> Reading:
        if self.format == "parquet":
            return Reading(rows)
        if malformed == "fail":
            return Reading(self._failing(rows))
        return Reading(rows, self.reason(rows), self.hidden, dead=self.dead)

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
        fine = F.when(F.col(CORRUPT).isNotNull(), raise_in_plan("malformed", self._readable_part(rows))).isNull()
        return rows.where(barrier & fine).drop(*self.hidden)

    @property
    def hidden(self) -> tuple[str, ...]:
        """Columns that are ours and not the user's."""
        return (CORRUPT, FILLER)

    def reason(self, rows: DataFrame) -> Column:
        """Why a record of these is malformed; null for the others."""
        from pyspark.sql import functions as F

        return F.when(F.col(CORRUPT).isNotNull(), self._readable_part(rows))

    def dead(self) -> DataFrame:
        """The malformed records as (file, line, text, reason), one for each line, or file, that holds one.

        A line of JSON can be parsed again by itself; one of CSV would need the header of its file.
        """
        from pyspark.sql import functions as F

        bad = malformed_records(self)
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
        if self.size is None:
            return rows
        tasks = tasks_for(self.spark, len(self.paths), self.size, BYTES_PER_TASK)
        return in_one_task(rows if tasks is None else rows.coalesce(tasks), len(self.paths), self.size)

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

    def _readable_part(self, rows: DataFrame) -> Column:
        """What could be read of the record. It names every column, or Spark would leave some out and not judge them."""
        from pyspark.sql import functions as F

        columns = [F.col(quote(name)) for name in rows.columns if name != CORRUPT]
        readable = F.substring(F.to_json(F.struct(*columns)), 1, READABLE_PART_CHARACTERS)
        return F.concat(F.lit(f"not a {self.format} record of this schema; readable part: "), readable)


def saved_lines(saved: DataFrame, schema: str | StructType, options: Mapping[str, str]) -> Reading:
    """Lines of JSON that were saved as dead letters, parsed again; one that is none of this schema has a reason."""
    from pyspark.sql import functions as F

    lines = saved.select(LETTER, F.col("text").alias(TEXT))
    parsed = lines.withColumn(PARSED, Json(schema).parse(F.col(TEXT), options))
    reason = F.when(is_no_object(F.col(TEXT), F.col(PARSED)), "not a jsonl record of this schema").alias(REASON)
    rows = parsed.select(object_in(F.col(PARSED)).alias(PARSED), reason, LETTER).select(f"{PARSED}.*", REASON, LETTER)
    return Reading(rows, F.col(REASON), hidden=(REASON, KEY))

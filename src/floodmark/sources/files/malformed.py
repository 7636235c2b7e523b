"""Malformed records of files: which they are, the line that each stands on, and what a failed read really met."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from floodmark.errors import RecordMalformed, SourceUnreadable
from floodmark.locations import local_path, spark_path
from floodmark.sources.values import CORRUPT
from floodmark.spark.faults import fault_in
from floodmark.spark.session import runs_here

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

    from floodmark.sources.files.reading import FileReading


CSV_HEADER = re.compile(
    r"(?:CSV header does not conform to the schema|Number of column in CSV header).*?"
    r"Header: (?P<header>[^\n]*)\n.*?Schema: (?P<schema>[^\n]*)\n.*?CSV file: (?P<file>[^\n]*)",
    re.DOTALL,
)
CSV_WIDTH = re.compile(
    r"Header length: (?P<header>\d+), schema size: (?P<schema>\d+)\s*CSV file: (?P<file>[^\n]*)", re.DOTALL
)
"""What Spark says of a header that it did not expect, and of one that has more columns, or fewer."""
NOT_THERE = re.compile(r"PATH_NOT_FOUND|FILE_NOT_EXIST|FileNotFoundException")
"""What it says of a file that the driver, or a task, did not find."""


def malformed_records(files: FileReading) -> DataFrame:
    """As (at, file, text, reason), each text once for each file; `at` is the file as Spark names it."""
    from pyspark.sql import functions as F

    rows = files.rows
    path = rows.metadataColumn("_metadata")["file_path"]
    bad = rows.where(files.reason(rows).isNotNull())
    return bad.select(
        path.alias("at"),
        _plain_path(path).alias("file"),
        F.col(CORRUPT).alias("text"),
        files.reason(rows).alias("reason"),
    ).dropDuplicates(["at", "text"])


def _plain_path(path: Column) -> Column:
    """Spark's file URI as the path that people wrote."""
    from pyspark.sql import functions as F

    decoded = F.url_decode(F.replace(path, F.lit("+"), F.lit("%2B")))
    return F.regexp_replace(decoded, "^file:/+", "/")


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
    header = CSV_HEADER.search(text) or CSV_WIDTH.search(text)
    if header:
        return _header_unfit(header, source)
    if fault_in(error, "malformed") is None:
        return None
    first = files.dead().orderBy("file", "line").limit(1).collect()
    return _malformed(first[0], files, source) if first else None


def _header_unfit(header: re.Match[str], source: str) -> RecordMalformed:
    """A header that is not the schema's."""
    file, (found, declared) = unquote(header["file"]).removeprefix("file://"), (header["header"], header["schema"])
    if header.re is CSV_WIDTH:
        text, reason = f"a header of {found} column{'s' * (found != '1')}", f"the schema has {declared}"
        hint = "fix the header or `schema:`; for columns between semicolons, `options: {sep: ';'}`"
    else:
        text, reason = found.strip(), f"the header, where the schema has {declared.strip()}"
        hint = "fix the names, or their order, in the header or in `schema:`"
    return RecordMalformed(source, file=file, line=1, text=text, reason=reason, hint=hint)


def _malformed(first: Row, files: FileReading, source: str) -> RecordMalformed:
    """The record, with what the format has to do with it where the text tells."""
    text, hint = str(first.text), ""
    if (files.format == "jsonl" and text.strip()[:1] == "[") or text.strip() == "{":
        hint = "a file that is one JSON value, or a list of them, is `format: json`; jsonl has an object in each line"
    elif (unfit := unfit_fields(text, str(first.reason))) != "":
        hint = f"`schema:` does not fit {unfit}: fix the type or the record, or add `dead_letters: {{path: …}}`"
    return RecordMalformed(source, file=first.file, line=first.line, text=text, hint=hint)


def unfit_fields(text: str, reason: str) -> str:
    """The fields of a JSON object of which nothing could be read; empty where that is not known."""
    readable = reason.partition("readable part: ")[2]
    try:
        given, read = json.loads(text), json.loads(readable)
    except ValueError:
        return ""
    if not isinstance(given, dict) or not isinstance(read, dict):
        return ""
    return ", ".join(name for name, value in given.items() if value is not None and name not in read)


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

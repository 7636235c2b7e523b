"""The line numbers of malformed records, found by one more look at only the files that hold one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.sources.file_reading import spark_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from floodmark.sources.file_reading import FileReading


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
    from pyspark.sql import functions as sf

    lines = _text_lines(files, paths)
    blocks = lines.groupBy("at", "block").agg(sf.count(sf.lit(1)).alias("lines"), sf.min("id").alias("first_id"))
    earlier = Window.partitionBy("at").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    starts = blocks.select(
        "at", "block", "first_id", sf.coalesce(sf.sum("lines").over(earlier), sf.lit(0)).alias("before")
    )
    line = sf.col("before") + sf.col("id") - sf.col("first_id") + 1
    return lines.join(sf.broadcast(starts), ["at", "block"]).select("at", "text", line.alias("line"))


def _text_lines(files: FileReading, paths: list[str]) -> DataFrame:
    from pyspark.sql import functions as sf

    separator = {name: value for name, value in files.options.items() if name.lower() == "linesep"}
    text = files.spark.read.options(**separator, recursiveFileLookup="true").format("text")
    rows = text.load([spark_path(path) for path in paths])
    file = rows.metadataColumn("_metadata")
    return rows.select(
        file["file_path"].alias("at"),
        file["file_block_start"].alias("block"),
        sf.monotonically_increasing_id().alias("id"),
        sf.col("value").alias("text"),
    )

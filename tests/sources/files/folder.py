"""What the tests of the files source share: files of a known age, and what was read from them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from floodmark.sources import Files
from floodmark.sources.contract import Request

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from floodmark.errors import RecordMalformed
    from floodmark.hwm import Span
    from floodmark.sources.contract import Reading

NOW = 1_800_000_000
SCHEMA = "id long, v string"


def put(path: Path, text: str, *, age: int = 3600) -> Path:
    """A file that was modified so many seconds before NOW."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (NOW - age, NOW - age))
    return path


def files(folder: Path, **options: Any) -> Files:  # noqa: ANN401 (passed on)
    """The source, at NOW."""
    return Files(folder, now=lambda: float(NOW), **options)


def span_of(source: Files, spark: SparkSession) -> Span:
    """What the first look finds."""
    span = source.look(None, Request(), lambda: spark).span
    assert span is not None
    return span


def read(source: Files, spark: SparkSession) -> Reading:
    """What the first look finds, read."""
    return source.read(spark, span_of(source, spark))


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The rows, sorted."""
    return sorted(tuple(row) for row in frame.collect())


def dead_letters(source: Files, spark: SparkSession) -> list[tuple[Any, ...]]:
    """The dead letters as (line, text)."""
    reading = read(source, spark)
    assert reading.dead is not None
    return sorted(((row.line, row.text) for row in reading.dead().collect()), key=str)


def good_rows(reading: Reading) -> DataFrame:
    """What the step gives to the transform."""
    assert reading.reason is not None
    return reading.rows.where(reading.reason.isNull()).drop(*reading.hidden)


def explanation(source: Files, spark: SparkSession, error: Exception) -> RecordMalformed:
    """What the source says about a failed write."""
    found = source.explain(error, spark, span_of(source, spark))
    assert found is not None
    return found

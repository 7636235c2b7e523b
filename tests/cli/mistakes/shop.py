"""Transforms with a mistake each; a module of the suite, since workers of its session can import that."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def share(x: int) -> int:
    """Divides by nothing."""
    return 1 // (x - x)


def divides(rows: DataFrame) -> DataFrame:
    """By a function that runs in a worker."""
    from pyspark.sql.functions import udf
    from pyspark.sql.types import LongType

    return rows.withColumn("id", udf(share, LongType())("id"))


def selects(rows: DataFrame) -> DataFrame:
    """A column that is not there."""
    return rows.select("idd")


def counts(rows: DataFrame) -> int:
    """Rows, and gives no rows back."""
    return rows.count()


def fill(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """As a disk that is full answers."""
    for _ in batches:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/scratch/part-1")
    yield from ()


def fills(rows: DataFrame) -> DataFrame:
    """The disk of a worker."""
    return rows.mapInArrow(fill, rows.schema)


def parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """With a package that nobody has installed."""
    import no_such_package  # type: ignore[import-not-found]

    yield from map(no_such_package.parse, batches)


def parses(rows: DataFrame) -> DataFrame:
    """In a worker."""
    return rows.mapInArrow(parse, rows.schema)

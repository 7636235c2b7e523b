"""Batches and rows for the tests of sinks."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from floodmark.sinks.contract import Batch, BatchSize

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ID_V = "id long, v string"
UNKNOWN = BatchSize()
SMALL = BatchSize(10, is_bound=True)
NOON = datetime(2024, 5, 1, 12, 0, tzinfo=timezone.utc)


def batch(
    number: int,
    *,
    kind: Literal["batch", "refresh"] = "batch",
    digest: str = "d",
    attempt: str = "a1",
    size: BatchSize = UNKNOWN,
) -> Batch:
    return Batch("prod", "orders", number, attempt, f"{digest}{number}", kind, NOON, {"src": number}, size=size)


class BatchMaker(Protocol):
    """Makes batches of which one thing is known: whether they are small, and so take the way through Arrow."""

    def __call__(
        self,
        number: int,
        *,
        kind: Literal["batch", "refresh"] = "batch",
        digest: str = "d",
        attempt: str = "a1",
    ) -> Batch: ...


def no_session() -> SparkSession:
    raise AssertionError("this needs no Spark")


def frame(spark: SparkSession, schema: str, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), schema)


def delta_rows(spark: SparkSession, folder: Path) -> list[tuple[Any, ...]]:
    """As Spark reads them; where that is not the question, `tests.tables` reads them for a hundredth of the time."""
    return sorted(tuple(row) for row in spark.read.format("delta").load(str(folder)).collect())


def on_disk(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}

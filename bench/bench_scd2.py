"""A table of versions at two sizes: a second batch costs what its keys cost, however large the table is.

First 10 events on each of many keys, then 10,000 events on 1,000 of them. Bytes are those of data files, change files
and deletion vectors. What grows with the table is the scan for the keys, of the log and of the table: timed apart.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from run import Result
from timing import seconds

import floodmark as fm
from floodmark.sinks.contract import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS, TOUCHED, EACH = 100_000, 1_000, 10
"""The table has KEYS keys with EACH events on every one, and a quarter of that in its small form."""
NOON = datetime(2026, 11, 15, 12, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Measured:
    """One size: what the first batch cost, what the second, and what of it was the scan."""

    first_bytes: int
    second_bytes: int
    first_seconds: float
    second_seconds: float
    scan_seconds: float


def events(spark: SparkSession, keys: int, begin: int, *, apart: int = 1) -> DataFrame:
    """EACH events on every key; the keys are so far apart."""
    return spark.range(keys * EACH).selectExpr(
        f"(id % {keys}) * {apart} AS k",
        f"timestamp_seconds({begin} + id) AS at",
        "concat('value-', pmod(hash(id), 7)) AS v",
        "concat('some text that is carried along with every event ', id) AS note",
    )


def batch(number: int) -> Batch:
    return Batch("bench", "scd2", number, f"a{number}", f"d{number}", "batch", NOON)


def bytes_in(folder: Path) -> int:
    files = [
        path for path in folder.rglob("*") if path.suffix in (".parquet", ".bin") and "_delta_log" not in path.parts
    ]
    return sum(path.stat().st_size for path in files)


def spooled(rows: DataFrame, folder: Path) -> DataFrame:
    """As a job hands them to the sink."""
    rows.write.parquet(str(folder))
    return rows.sparkSession.read.parquet(str(folder))


def measured(spark: SparkSession, home: Path, keys: int) -> Measured:
    sink = fm.sinks.Scd2(str(home / "t"), key=("k",), sequence=("at",), track=("v",))
    first = spooled(events(spark, keys, 0), home / "first")
    second = spooled(events(spark, TOUCHED, 100_000_000, apart=keys // TOUCHED), home / "second")
    tables = [home / "t", home / "t__events"]
    first_seconds = seconds(lambda: sink.write(first, batch(1)))
    before = sum(map(bytes_in, tables))
    scan_seconds = seconds(lambda: scan(spark, tables, second))
    second_seconds = seconds(lambda: sink.write(second, batch(2)))
    return Measured(before, sum(map(bytes_in, tables)) - before, first_seconds, second_seconds, scan_seconds)


def scan(spark: SparkSession, tables: list[Path], second: DataFrame) -> None:
    """Reading all rows of the touched keys once from the log, and as often as a merge does from the table."""
    from pyspark.sql import functions as F

    keys = F.broadcast(second.select("k").distinct())
    for folder in (*tables, tables[0], tables[0]):
        spark.read.format("delta").load(str(folder)).join(keys, "k", "left_semi").write.format("noop").mode(
            "overwrite"
        ).save()


def run(keys: int = KEYS) -> list[Result]:
    spark = fm.spark_session({"spark.master": "local[2]"})
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        measured(spark, home / "warm", TOUCHED)
        small, large = measured(spark, home / "small", keys // 4), measured(spark, home / "large", keys)
    own = [each.second_seconds - each.scan_seconds for each in (small, large)]
    share = large.second_bytes / (large.first_bytes * TOUCHED / keys)
    sizes = f"{TOUCHED * EACH:,} events on {TOUCHED:,} of {keys // 4:,} and of {keys:,} keys"
    return [
        Result(
            "SCD2, bytes of a second batch, large table against small",
            large.second_bytes / small.second_bytes,
            1.25,
            f"{sizes}: {small.second_bytes:,} and {large.second_bytes:,} bytes",
        ),
        Result(
            "SCD2, bytes per touched key, second batch against first",
            share,
            4.0,
            f"the first wrote {large.first_bytes:,} bytes for {keys:,} keys; versions are closed, moved and fed on",
        ),
        Result(
            "SCD2, time of a second batch without its scan, large table against small",
            own[1] / own[0],
            1.5,
            f"{sizes}: {small.second_seconds:.2f} s (scan {small.scan_seconds:.2f} s) and "
            f"{large.second_seconds:.2f} s (scan {large.scan_seconds:.2f} s); the first batch of "
            f"{keys * EACH:,} events took {large.first_seconds:.2f} s",
        ),
    ]

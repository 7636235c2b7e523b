"""A table with history and a fact over it, to be killed. Run it as a program: python clusters.py FOLDER JOB."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import floodmark as fm
from floodmark.medallion.fact import fact
from floodmark.medallion.fact_inputs import FactRows
from tests.crash.shop import SETTINGS, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "k int, date_sk int, at int, v string"


def deliver(spark: SparkSession, home: Path, *rows: tuple[int, int, int, str]) -> None:
    writer = spark.createDataFrame(list(rows), SCHEMA).write.format("delta").mode("append")
    writer.option("delta.enableChangeDataFeed", "true").save(str(home / "bronze"))


def silver(home: Path) -> fm.Job:
    sink = fm.sinks.Scd2(str(home / "silver"), key=("k",), sequence=("at",), track=("v",), delete_when="v = 'D'")
    return fm.Job("silver", fm.sources.Delta(str(home / "bronze")), [sink])


def gold(home: Path) -> fm.Job:
    build = "SELECT date_sk, CAST(count(*) AS int) AS n FROM source GROUP BY date_sk"
    return fact("gold", rows=FactRows("silver", str(home / "silver")), build=build, path=str(home / "gold"))


def main() -> None:
    home, name = Path(sys.argv[1]), sys.argv[2]
    job = {"silver": silver, "gold": gold}[name](home)
    job.run(fm.spark_session(SETTINGS), open_store(home))


if __name__ == "__main__":
    main()

"""A job as one of several hosts runs it: source, marks and sinks lie on a disk that all share, the spool on its own.

python hosts.py SHARED OWN [finish]      one run; prints "number rows-in-lake rows-in-out", or the error's class
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import floodmark as fm
from floodmark.errors import FloodmarkError
from tests.crash import shop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def as_it_is(rows: DataFrame) -> DataFrame:
    """Of a Python function nobody knows whether it gives the same rows again: the batch is frozen."""
    return rows


def job_of(shared: Path, own: Path) -> fm.Job:
    return fm.Job(
        name="shop",
        source=fm.sources.Files(str(shared / "in"), format="jsonl", schema=shop.SCHEMA, settle=0),
        sinks=[
            fm.sinks.Delta(str(shared / "lake"), name="lake"),
            fm.sinks.Files(str(shared / "out"), name="out", format="jsonl"),
        ],
        transform=as_it_is,
        spool=str(own / "spool"),
    )


def main(shared: Path, own: Path, *words: str) -> int:
    store, spark = shop.open_store(shared), fm.spark_session(shop.SETTINGS)
    try:
        receipt = job_of(shared, own).run(spark, store, finish="finish" in words)
    except FloodmarkError as error:
        print(type(error).__name__, flush=True)
        return error.exit_code
    print(receipt.number, *receipt.rows_written.values(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:3]), *sys.argv[3:]))

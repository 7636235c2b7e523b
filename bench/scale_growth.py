"""10,000 batches in one process: what the JVM and Python keep after the last ones, against after the first thousand.

Each is ten rows of a SQLite table, appended to one Delta table by one job and merged into another by a second one.
What is compared is what is left after a full collection, so that nothing but what is held counts.
"""

from __future__ import annotations

import gc
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from run import Result

import floodmark as fm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES, SAMPLES, ROWS, KEYS = 10_000, 10, 10, 500
MOST = {
    "JVM heap": 1.3,
    "JVM metaspace": 1.1,
    "JVM code": 1.3,
    "JVM classes": 1.1,
    "JVM threads": 1.3,
    "Python memory": 1.3,
    "Python threads": 1.0,
    "seconds of a batch": 1.5,
}
"""What may be kept at the end, as a multiple of what is kept after the first tenth."""


def run(batches: int = BATCHES) -> list[Result]:
    """In a process of its own, whose memory no other benchmark has used."""
    words = [sys.executable, __file__, str(batches)]
    answer = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True).stdout
    samples = [json.loads(line) for line in answer.splitlines() if line.startswith("{")]
    first, last = samples[0], samples[-1]
    of = f"after {last['batches']:,} batches against after {first['batches']:,}"
    return [
        Result(f"{what}, kept", last[what] / first[what], most, f"{of}: {last[what]:,.2f} and {first[what]:,.2f}")
        for what, most in MOST.items()
    ]


def loop(batches: int) -> None:
    """Print a sample after each tenth."""
    spark = fm.spark_session({"spark.master": "local[2]", "spark.driver.memory": "1g"})
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        database = sqlite3.connect(home / "shop.db")
        database.execute("create table orders (id integer primary key, customer integer, amount real)")
        source = fm.sources.Sqlite(str(home / "shop.db"), table="orders", cursor="id")
        store = fm.stores.open("sqlite:///marks.db", folder=home)
        append = fm.Job("append", source, [fm.sinks.Delta(str(home / "log"))])
        merge = fm.Job("merge", source, [fm.sinks.Delta(str(home / "latest"), mode="merge", key="customer")])
        begun, each = time.monotonic(), max(1, batches // SAMPLES)
        for number in range(batches // 2):
            rows = [(number * ROWS + n, (number * 7 + n) % KEYS, n / 10) for n in range(1, ROWS + 1)]
            with database:
                database.executemany("insert into orders values (?, ?, ?)", rows)
            for job in (append, merge):
                receipt = job.run(spark, store)
                assert receipt.rows_read == ROWS, receipt
            if (number + 1) * 2 % each == 0:
                seconds = (time.monotonic() - begun) / each
                print(
                    json.dumps({"batches": (number + 1) * 2, **kept(spark), "seconds of a batch": seconds}), flush=True
                )
                begun = time.monotonic()


def kept(spark: SparkSession) -> dict[str, float]:
    """In MB, or a number of them."""
    gc.collect()
    java = spark.sparkContext._jvm.java.lang  # type: ignore[union-attr]
    java.System.gc()
    beans = java.management.ManagementFactory
    pools = {pool.getName(): pool.getUsage().getUsed() / 2**20 for pool in beans.getMemoryPoolMXBeans()}
    return {
        "JVM heap": beans.getMemoryMXBean().getHeapMemoryUsage().getUsed() / 2**20,
        "JVM metaspace": pools["Metaspace"],
        "JVM code": sum(used for name, used in pools.items() if "CodeHeap" in name or name == "CodeCache"),
        "JVM classes": beans.getClassLoadingMXBean().getLoadedClassCount(),
        "JVM threads": beans.getThreadMXBean().getThreadCount(),
        "Python memory": resident_mb(),
        "Python threads": threading.active_count(),
    }


def resident_mb() -> float:
    [line] = [line for line in Path(f"/proc/{os.getpid()}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    loop(int(sys.argv[1]))

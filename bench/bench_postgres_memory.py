"""5,000,000 rows through a driver of 2 GB: what the driver's JVM and its Python hold at most, in GB."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
from run import Result

import floodmark as fm
from floodmark.spark.session import jvm_pid
from floodmark.testing.servers import postgres_server

ROWS = 5_000_000
ORDERS = "select id, 'customer ' || id % 5000 as customer, (id % 9973) / 100.0 as amount, now() as placed_at"
MOST_GB = 2.5
"""2 GB of heap, and what a JVM needs beside it."""
MOST_PYTHON_GB = 0.3


def run() -> list[Result]:
    """In a process of its own, whose memory no other benchmark has used."""
    told = subprocess.run([sys.executable, __file__], stdout=subprocess.PIPE, check=True, text=True).stdout
    jvm, python = json.loads(told.splitlines()[-1])
    detail = f"{ROWS:,} rows from PostgreSQL to Delta and PostgreSQL, spark.driver.memory=2g, most that was resident"
    return [
        Result("driver's JVM, GB", jvm, MOST_GB, detail),
        Result("driver's Python, GB", python, MOST_PYTHON_GB, detail),
    ]


def measured() -> tuple[float, float]:
    spark = fm.spark_session({"spark.master": "local[2]", "spark.driver.memory": "2g"})
    with tempfile.TemporaryDirectory() as name, postgres_server(Path(name) / "pg") as postgres:
        home, database = Path(name), postgres.create_database()
        with psycopg.connect(database) as connection:
            connection.execute(f"create table orders as {ORDERS} from generate_series(1, {ROWS}) as id")
            connection.execute("alter table orders alter amount type numeric(10,2), add primary key (id)")
        job = fm.Job(
            name="large",
            source=fm.sources.Postgres(database, table="orders", cursor="id"),
            sinks=[fm.sinks.Delta(str(home / "lake")), fm.sinks.Postgres(database, "copies")],
            spool=str(home / "spool"),
        )
        receipt = job.run(spark, fm.stores.open("sqlite:///marks.db", folder=home))
        assert receipt.rows_written == {"delta": ROWS, "postgres": ROWS}, receipt
    return peak_gb(jvm_pid(spark)), peak_gb(os.getpid())


def peak_gb(pid: int | None) -> float:
    """The most that was resident, as Linux tells it."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024**2


if __name__ == "__main__":
    print(json.dumps(measured()))

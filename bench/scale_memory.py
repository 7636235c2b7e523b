"""10,000,000 rows through every sink: what the driver's JVM and its Python hold at most, in GB.

In local mode the driver's JVM runs the tasks as well; its heap is 1 GB here, and what a JVM needs beside it counts.
"""

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
from floodmark.testing.servers import kafka_broker, postgres_server

ROWS, MOST_GB = 10_000_000, 2.0
ORDERS = "select id, 'customer ' || id % 5000 as customer, (id % 9973) / 100.0 as amount, now() as placed_at"


def run(rows: int = ROWS) -> list[Result]:
    """In a process of its own, whose memory no other benchmark has used."""
    answer = subprocess.run([sys.executable, __file__, str(rows)], stdout=subprocess.PIPE, check=True, text=True).stdout
    jvm, python = json.loads(answer.splitlines()[-1])
    detail = (
        f"{rows:,} rows from PostgreSQL to Delta, files, Kafka and PostgreSQL, spark.driver.memory=1g, most that was "
        f"resident: JVM {jvm:.2f}, Python {python:.2f}"
    )
    return [Result("memory of the driver, JVM and Python, GB", jvm + python, MOST_GB, detail)]


def measured(rows: int) -> tuple[float, float]:
    spark = fm.spark_session({"spark.master": "local[2]", "spark.driver.memory": "1g"})
    with tempfile.TemporaryDirectory() as name, postgres_server(Path(name) / "pg") as postgres:
        home, database = Path(name), postgres.create_database()
        with psycopg.connect(database) as connection:
            connection.execute(f"create table orders as {ORDERS} from generate_series(1, {rows}) as id")
            connection.execute("alter table orders alter amount type numeric(10,2), add primary key (id)")
        with kafka_broker(home / "kafka") as kafka:
            kafka.create_topic("orders", 4)
            job = fm.Job(
                name="large",
                source=fm.sources.Postgres(database, table="orders", cursor="id"),
                sinks=[
                    fm.sinks.Delta(str(home / "lake")),
                    fm.sinks.Files(str(home / "files")),
                    fm.sinks.Kafka(kafka.bootstrap, "orders", key="id"),
                    fm.sinks.Postgres(database, "copies"),
                ],
                spool=str(home / "spool"),
            )
            receipt = job.run(spark, fm.stores.open("sqlite:///marks.db", folder=home))
        assert set(receipt.rows_written.values()) == {rows}, receipt
    return peak_gb(jvm_pid(spark)), peak_gb(os.getpid())


def peak_gb(pid: int | None) -> float:
    """The most that was resident, as Linux tells it."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024**2


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1]))))

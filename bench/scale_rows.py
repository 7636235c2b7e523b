"""PostgreSQL → Delta with more and more rows, on one core and on two, against plain PySpark JDBC."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import psycopg
from bench_postgres import jdbc
from run import Result
from timing import compare

import floodmark as fm
from floodmark.testing.servers import postgres_server

SIZES, CORES, MOST, ROUNDS = (100_000, 1_000_000, 10_000_000), (1, 2), 10_000_000, 3
ORDERS = "select id, 'customer ' || id % 5000 as customer, (id % 9973) / 100.0 as amount, now() as placed_at"


def run(most: int = MOST, rounds: int = ROUNDS) -> list[Result]:
    """A session has its cores for life, so each number of them is a process."""
    with tempfile.TemporaryDirectory() as name, postgres_server(Path(name) / "pg") as postgres:
        database, sizes = postgres.create_database(), [size for size in SIZES if size <= most]
        for size in sizes:
            make_table(database, size)
        return [point for cores in CORES for point in points(database, cores, sizes, rounds)]


def make_table(database: str, rows: int) -> None:
    with psycopg.connect(database) as connection:
        connection.execute(f"create table orders_{rows} as {ORDERS} from generate_series(1, {rows}) as id")
        connection.execute(f"alter table orders_{rows} alter amount type numeric(10,2), add primary key (id)")


def points(database: str, cores: int, sizes: list[int], rounds: int) -> list[Result]:
    command = [sys.executable, __file__, database, str(cores), str(rounds), *map(str, sizes)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return [Result(**each) for each in json.loads(answer.splitlines()[-1])]


def measured(database: str, cores: int, rounds: int, sizes: list[int]) -> list[Result]:
    fm.spark_session({"spark.master": f"local[{cores}]", "spark.driver.memory": "3g"})
    with tempfile.TemporaryDirectory() as name:
        return [point(Path(name), database, cores, size, rounds) for size in sizes]


def point(home: Path, database: str, cores: int, rows: int, rounds: int) -> Result:
    bounds = {"partitionColumn": "id", "lowerBound": "0", "upperBound": str(rows), "numPartitions": str(cores)}

    def plain(_turn: int) -> None:
        options = {**jdbc(database), **bounds, "dbtable": f"orders_{rows}", "fetchsize": "10000"}
        read = fm.spark_session().read.format("jdbc").options(**options).load()
        read.write.format("delta").save(f"{home}/{uuid.uuid4().hex}")

    def ours(_turn: int) -> None:
        name = uuid.uuid4().hex
        source = fm.sources.Postgres(database, table=f"orders_{rows}", cursor="id")
        job = fm.Job(name=name, source=source, sinks=[fm.sinks.Delta(f"{home}/{name}")])
        receipt = job.run(fm.spark_session(), fm.stores.open(f"sqlite:///{name}.db", folder=home))
        assert receipt.rows_written == {"delta": rows}, receipt

    found = compare(
        f"PostgreSQL to Delta, {rows:,} rows on {cores} cores",
        plain,
        ours,
        at_most=1.0,
        rounds=rounds,
        of=f"JDBC in {cores} partitions",
    )
    return Result(**{**vars(found), "series": f"{cores} cores", "at": rows})


if __name__ == "__main__":
    url, *numbers = sys.argv[1:]
    used, turns, *counts = map(int, numbers)
    print(json.dumps([vars(each) for each in measured(url, used, turns, counts)]))

"""PostgreSQL → Delta, 1,000,000 rows and then 10 more, beside onETL's incremental strategy, both warm.

onETL runs on its own PySpark of our version with our jars; it reads by JDBC, in as many partitions as we do.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import uuid
from pathlib import Path

import psycopg
import pyspark
from environments import python_with
from run import NotInstalled, Result
from timing import seconds

import floodmark as fm
from floodmark.spark.connectors import connectors
from floodmark.spark.java import find_java
from floodmark.testing.servers import postgres_server

ROWS, FEW, ROUNDS = 1_000_000, 10, 3
THEIRS = Path(__file__).with_name("onetl_reference.py")
ORDERS = "select id, 'customer ' || id % 5000 as customer, (id % 9973) / 100.0 as amount, now() as placed_at"


def run(rows: int = ROWS, rounds: int = ROUNDS) -> list[Result]:
    theirs = python_with("onetl", "onetl==0.17.0", f"pyspark=={pyspark.__version__}")
    fm.spark_session({"spark.master": "local[2]", "spark.driver.memory": "3g"})
    with tempfile.TemporaryDirectory() as name, postgres_server(Path(name) / "pg") as postgres:
        home, database = Path(name), postgres.create_database()
        with psycopg.connect(database) as connection:
            connection.execute(f"create table orders as {ORDERS} from generate_series(1, {rows}) as id")
            connection.execute("alter table orders alter amount type numeric(10,2), add primary key (id)")
        plain = loads(theirs, database, home, rounds)
        own = ours(home, database, rounds)
    return [
        result(f"PostgreSQL to Delta, {rows:,} rows, against onETL", plain["many"], own["many"]),
        result(f"PostgreSQL to Delta, {FEW} rows more, against onETL", plain["few"], own["few"]),
    ]


def result(case: str, plain: list[float], own: list[float]) -> Result:
    ratio = statistics.median(own) / statistics.median(plain)
    detail = f"onETL {statistics.median(plain):.2f} s, Floodmark {statistics.median(own):.2f} s, medians"
    return Result(case, ratio, 1.0, detail, ours=tuple(own), reference=tuple(plain))


def ours(home: Path, database: str, rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {"many": [], "few": []}
    for _ in range(rounds + 1):
        name = uuid.uuid4().hex
        source = fm.sources.Postgres(database, table="orders", cursor="id")
        job = fm.Job(name=name, source=source, sinks=[fm.sinks.Delta(f"{home}/{name}")])
        store = fm.stores.open(f"sqlite:///{name}.db", folder=home)
        times["many"].append(seconds(lambda j=job, s=store: j.run(fm.spark_session(), s)))  # type: ignore[misc]
        more(database)
        times["few"].append(seconds(lambda j=job, s=store: j.run(fm.spark_session(), s)))  # type: ignore[misc]
    return {kind: each[1:] for kind, each in times.items()}


def more(database: str) -> None:
    highest = "(select max(id) from orders)"
    series = f"generate_series({highest} + 1, {highest} + {FEW})"
    with psycopg.connect(database) as connection:
        connection.execute(f"insert into orders {ORDERS} from {series} as id")


def loads(theirs: Path, database: str, home: Path, rounds: int) -> dict[str, list[float]]:
    """Raises NotInstalled where it does not run with this PySpark."""
    jars = ",".join(map(str, connectors()))
    environment = {**os.environ, "JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": str(theirs)}
    environment.pop("PYTHONPATH", None)
    command = [str(theirs), str(THEIRS), database, str(home / "onetl"), jars, str(rounds), ORDERS]
    done = subprocess.run(command, capture_output=True, text=True, cwd=home, env=environment, check=False)
    if done.returncode:
        raise NotInstalled(f"onetl: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
    answer: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return answer

"""PostgreSQL → Delta, 1,000,000 rows, beside dlt (connectorx → delta) at its quickest, both warm.

dlt runs in one process that loads twice as often as it is timed: its first load pays for imports and is not counted.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import uuid
from pathlib import Path

import psycopg
from environments import python_with
from run import Result
from timing import seconds

import floodmark as fm
from floodmark.testing.servers import postgres_server

ROWS, ROUNDS = 1_000_000, 3
THEIRS = Path(__file__).with_name("dlt_reference.py")
PACKAGES = ("dlt[deltalake]==1.31.0", "connectorx==0.4.6", "sqlalchemy>=2", "psycopg2-binary", "pyarrow")
ORDERS = "select id, 'customer ' || id % 5000 as customer, (id % 9973) / 100.0 as amount, now() as placed_at"


def run(rows: int = ROWS, rounds: int = ROUNDS) -> list[Result]:
    theirs = python_with("dlt", *PACKAGES)
    fm.spark_session({"spark.master": "local[2]", "spark.driver.memory": "4g"})
    with tempfile.TemporaryDirectory() as name, postgres_server(Path(name) / "pg") as postgres:
        home, database = Path(name), postgres.create_database()
        with psycopg.connect(database) as connection:
            connection.execute(f"create table orders as {ORDERS} from generate_series(1, {rows}) as id")
            connection.execute("alter table orders alter amount type numeric(10,2), add primary key (id)")
        ours(home, database, rows)
        half = (rounds + 1) // 2
        own = [seconds(lambda: ours(home, database, rows)) for _ in range(half)]
        plain = loads(theirs, database, home, rows, rounds)
        own += [seconds(lambda: ours(home, database, rows)) for _ in range(rounds - half)]
    ratio = statistics.median(own) / statistics.median(plain)
    detail = f"dlt {statistics.median(plain):.2f} s, Floodmark {statistics.median(own):.2f} s, medians of {rounds}"
    case = "PostgreSQL to Delta, against dlt (connectorx)"
    return [Result(case, ratio, 0.5, detail, ours=tuple(own), reference=tuple(plain))]


def ours(home: Path, database: str, rows: int) -> None:
    name = uuid.uuid4().hex
    source = fm.sources.Postgres(database, table="orders", cursor="id")
    job = fm.Job(name=name, source=source, sinks=[fm.sinks.Delta(f"{home}/{name}")])
    receipt = job.run(fm.spark_session(), fm.stores.open(f"sqlite:///{name}.db", folder=home))
    assert receipt.rows_written == {"delta": rows}, receipt


def loads(theirs: Path, database: str, home: Path, rows: int, rounds: int) -> list[float]:
    command = [str(theirs), str(THEIRS), database, str(home / "dlt"), str(rows), str(rounds)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, cwd=home).stdout
    return [float(each) for each in json.loads(answer.splitlines()[-1])]

"""PostgreSQL, both ways, on 1,000,000 rows, each against Spark's own JDBC reader and writer in the same session."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from timing import compare

import floodmark as fm
from floodmark.testing.servers import postgres_server

if TYPE_CHECKING:
    from run import Result

    from floodmark.sinks.contract import Sink
    from floodmark.sources.contract import Source

ROWS = 1_000_000
COLUMNS = [
    "id",
    "concat('customer ', id % 5000) as customer",
    "cast(id % 9973 / 100 as decimal(10,2)) as amount",
    "timestamp'2026-11-15 12:00:00' as placed_at",
]
DEFINED = "id bigint, customer text, amount numeric(10,2), placed_at timestamptz"


def run() -> list[Result]:
    spark = fm.spark_session({"spark.master": "local[2]", "spark.driver.memory": "4g"})
    with tempfile.TemporaryDirectory() as name, postgres_server(Path(name) / "pg") as postgres:
        home, database = Path(name), postgres.create_database()
        spark.range(0, ROWS, 1, 2).selectExpr(*COLUMNS).write.parquet(f"{home}/in")
        return [
            against_defaults(home, database),
            to_new_tables(home, database),
            to_tables_that_exist(home, database),
            with_the_mark(home, database),
            from_postgres(home, database),
        ]


def run_job(source: Source, sink: Sink, home: Path, store: str | None = None) -> None:
    job = fm.Job(name=f"bench-{uuid.uuid4().hex}", source=source, sinks=[sink])
    receipt = job.run(fm.spark_session(), fm.stores.open(store or f"sqlite:///{uuid.uuid4().hex}.db", folder=home))
    assert list(receipt.rows_written.values()) == [ROWS], receipt


def jdbc(database: str, *, rewrites: bool = True) -> dict[str, str]:
    """The same database as Spark's JDBC options name it; `rewrites` is the driver's quickest way of inserting."""
    from psycopg.conninfo import conninfo_to_dict

    facts, option = conninfo_to_dict(database), "?reWriteBatchedInserts=true" if rewrites else ""
    url = f"jdbc:postgresql://{facts['host']}:{facts['port']}/{facts['dbname']}{option}"
    login = {"user": str(facts["user"]), "password": str(facts.get("password", ""))}
    return {"url": url, "driver": "org.postgresql.Driver", **login}


def write_plain(home: Path, database: str, table: str, *, rewrites: bool = True) -> None:
    rows = fm.spark_session().read.parquet(f"{home}/in").coalesce(2)
    rows.write.format("jdbc").mode("append").options(**jdbc(database, rewrites=rewrites), dbtable=table).save()


def write_ours(home: Path, database: str, table: str, store: str | None = None) -> None:
    source = fm.sources.Files(f"{home}/in", format="parquet", settle=0)
    run_job(source, fm.sinks.Postgres(database, table), home, store)


def against_defaults(home: Path, database: str) -> Result:
    return compare(
        "to PostgreSQL, a new table, against JDBC's defaults",
        lambda turn: write_plain(home, database, f"plain_default_{turn}", rewrites=False),
        lambda turn: write_ours(home, database, f"ours_default_{turn}"),
        at_most=0.25,
        rounds=3,
        of=f"{ROWS:,} rows, JDBC writer at its defaults",
    )


def to_new_tables(home: Path, database: str) -> Result:
    return compare(
        "to PostgreSQL, a new table",
        lambda turn: write_plain(home, database, f"plain_{turn}"),
        lambda turn: write_ours(home, database, f"ours_{turn}"),
        at_most=0.50,
        rounds=3,
        of=f"{ROWS:,} rows, JDBC writer with reWriteBatchedInserts=true",
    )


def to_tables_that_exist(home: Path, database: str) -> Result:
    make_tables(database, "there")
    return compare(
        "to PostgreSQL, a table that exists",
        lambda turn: write_plain(home, database, f"plain_there_{turn}"),
        lambda turn: write_ours(home, database, f"ours_there_{turn}"),
        at_most=0.50,
        rounds=3,
        of=f"{ROWS:,} rows, JDBC writer with reWriteBatchedInserts=true",
    )


def with_the_mark(home: Path, database: str) -> Result:
    make_tables(database, "joined")
    return compare(
        "to PostgreSQL, a table that exists, the mark in the same transaction",
        lambda turn: write_plain(home, database, f"plain_joined_{turn}"),
        lambda turn: write_ours(home, database, f"ours_joined_{turn}", database),
        at_most=0.50,
        rounds=3,
        of=f"{ROWS:,} rows, JDBC writer with reWriteBatchedInserts=true",
    )


def make_tables(database: str, kind: str) -> None:
    """Without rows: a job without a mark is not let into a table that has some."""
    with psycopg.connect(database) as connection:
        for turn in range(4):
            for whose in ("plain", "ours"):
                connection.execute(f"create table {whose}_{kind}_{turn} ({DEFINED})".encode())


def from_postgres(home: Path, database: str) -> Result:
    """By a primary key, as a cursor should be: without an index every look at the table reads all of it."""
    with psycopg.connect(database) as connection:
        connection.execute("alter table plain_0 add primary key (id)")
    bounds = {"partitionColumn": "id", "lowerBound": "0", "upperBound": str(ROWS), "numPartitions": "2"}

    def plain(turn: int) -> None:
        options = {**jdbc(database), **bounds, "dbtable": "plain_0", "fetchsize": "10000"}
        rows = fm.spark_session().read.format("jdbc").options(**options).load()
        rows.write.format("delta").save(f"{home}/plain-{turn}")

    def ours(turn: int) -> None:
        source = fm.sources.Postgres(database, table="public.plain_0", cursor="id")
        run_job(source, fm.sinks.Delta(f"{home}/ours-{turn}"), home)

    return compare("PostgreSQL to Delta", plain, ours, at_most=0.70, rounds=5, of="JDBC in two partitions")

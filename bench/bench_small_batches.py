"""What a small batch costs: its Spark jobs, and its time against the plain read and write of the same rows.

One job runs over and over in one session, as a loop does; the reference reads and writes the same rows without marks.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from bench_postgres import jdbc
from run import Result
from timing import compare

import floodmark as fm
from floodmark.testing.servers import kafka_broker, postgres_server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.sinks.contract import Sink
    from floodmark.stores.record import Receipt
    from floodmark.testing.servers import Broker

FEW, MANY, FEW_ROUNDS = 10, 100_000, 3
INSERT = (
    "insert into {0} select i, 'customer ' || i %% 50, i / 100.0, now()"
    " from generate_series((select coalesce(max(id), 0) from {0}) + 1,"
    " (select coalesce(max(id), 0) from {0}) + %s) as i"
)
FILE_MEGABYTES = 128
LATEST = fm.sources.Cursor("id", start="latest")
DEFINED = "id bigint primary key, customer text, amount numeric(10,2), placed_at timestamptz"


def run(rounds: int = 7, megabytes: int = 1024) -> list[Result]:
    """Without `megabytes`, the table of large files is left out."""
    spark = fm.spark_session({"spark.master": "local[2]", "spark.driver.memory": "4g"})
    with tempfile.TemporaryDirectory() as name, postgres_server(Path(name) / "pg") as postgres:
        bench = Bench(spark, Path(name), postgres.create_database(), rounds)
        with kafka_broker(Path(name) / "kafka") as kafka:
            results = [*bench.jobs_of_a_batch(), *bench.few_rows(), bench.many_rows(), *bench.to_servers(kafka)]
        return [*results, *([bench.into_a_large_table(megabytes)] if megabytes else [])]


class Bench:
    """One session, one folder, one database; everybody who reads has a table of his own, which grows before it."""

    def __init__(self, spark: SparkSession, home: Path, database: str, rounds: int) -> None:
        self.spark, self.home, self.database, self.rounds = spark, home, database, rounds

    def table(self) -> str:
        """A new table with a few rows."""
        name = f"orders_{uuid.uuid4().hex}"
        with psycopg.connect(self.database) as connection:
            connection.execute(f"create table {name} ({DEFINED})")
            connection.execute(INSERT.format(name), [FEW])
        return name

    def grow(self, table: str, rows: int) -> int:
        """Add rows; the highest id before."""
        with psycopg.connect(self.database) as connection:
            [(before,)] = connection.execute(f"select coalesce(max(id), 0) from {table}").fetchall()
            connection.execute(INSERT.format(table), [rows])
        return int(before)

    def rows_after(self, table: str, before: int) -> DataFrame:
        """As a job without marks reads them."""
        query = f"(select * from {table} where id > {before}) as new"
        return self.spark.read.format("jdbc").options(**jdbc(self.database), dbtable=query).load()

    def ticks(self, sink: Sink, rows: int, transform: str | None = None) -> Callable[[int], None]:
        """A job into the sink, whose every turn finds so many rows more; it and its store are kept, as in a loop."""
        table, name = self.table(), f"bench-{uuid.uuid4().hex}"
        source = fm.sources.Postgres(self.database, table=table, cursor=LATEST)
        job = fm.Job(name=name, source=source, sinks=[sink], transform=transform, spool=str(self.home / "spool"))
        store = fm.stores.open(f"sqlite:///{name}.db", folder=self.home)
        job.run(self.spark, store)

        def tick(_turn: int) -> None:
            self.grow(table, rows)
            self.timed(lambda: job.run(self.spark, store), rows)

        return tick

    def timed(self, run: Callable[[], Receipt], rows: int) -> None:
        receipt = run()
        assert receipt.rows_read == rows, receipt

    def plain(self, rows: int, write: Callable[[DataFrame], object]) -> Callable[[int], None]:
        """The reference: it adds the same rows, reads them by JDBC, and writes them."""
        table = self.table()

        def turn(_turn: int) -> None:
            write(self.rows_after(table, self.grow(table, rows)))

        return turn

    def jobs_of_a_batch(self) -> list[Result]:
        """Counted, so a busy machine does not matter."""
        sinks = {"append": fm.sinks.Delta(self.path()), "merge": fm.sinks.Delta(self.path(), mode="merge", key="id")}
        return [self.count_jobs(mode, self.ticks(sink, FEW)) for mode, sink in sinks.items()]

    def count_jobs(self, mode: str, tick: Callable[[int], None]) -> Result:
        tick(0)
        group, context = f"counted {mode}", self.spark.sparkContext
        context.setJobGroup(group, group)
        tick(1)
        jobs = len(context.statusTracker().getJobIdsForGroup(group))
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        return Result(f"Spark jobs of a warm batch of {FEW} rows, {mode}", jobs, 1, "PostgreSQL to Delta")

    def few_rows(self) -> list[Result]:
        plain, merged = self.path(), self.path()
        self.rows_after(self.table(), 0).write.format("delta").save(merged)
        append = self.plain(FEW, lambda rows: rows.write.format("delta").mode("append").save(plain))
        merge = self.plain(FEW, lambda rows: self.merge_into(merged, rows))
        of = f"{FEW} rows from PostgreSQL, plain JDBC read and Delta write as reference"
        ours = self.ticks(fm.sinks.Delta(self.path()), FEW)
        ours_merged = self.ticks(fm.sinks.Delta(self.path(), mode="merge", key="id"), FEW)
        history = fm.sinks.Scd2(self.path(), key="customer", sequence="placed_at", track=["amount"])
        changes = self.ticks(history, FEW, "select customer, amount, placed_at from source")
        of_changes = f"{FEW} changes of {FEW} of 50 keys, plain JDBC read and MERGE of {FEW} rows as reference"
        return [
            compare("small batch to Delta, append", append, ours, at_most=0.5, rounds=self.rounds, of=of),
            compare("small batch to Delta, merge", merge, ours_merged, at_most=0.2, rounds=self.rounds, of=of),
            compare("small batch to Delta, scd2", merge, changes, at_most=0.6, rounds=self.rounds, of=of_changes),
        ]

    def merge_into(self, table: str, rows: DataFrame) -> None:
        rows.createOrReplaceTempView("arrived")
        self.spark.sql(
            f"MERGE INTO delta.`{table}` AS t USING arrived AS s ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()

    def many_rows(self) -> Result:
        """More than leaves Spark as Arrow: Spark writes the files, and the number is in their commit."""
        plain = self.path()
        append = self.plain(MANY, lambda rows: rows.write.format("delta").mode("append").save(plain))
        ours = self.ticks(fm.sinks.Delta(self.path()), MANY)
        of = f"{MANY:,} rows from PostgreSQL, plain JDBC read and Delta append as reference"
        return compare("large batch to Delta, append", append, ours, at_most=1.1, rounds=FEW_ROUNDS, of=of)

    def to_servers(self, kafka: Broker) -> list[Result]:
        """Into PostgreSQL and Kafka, both against Spark's JDBC writer at its defaults."""
        options = {**jdbc(self.database), "dbtable": "copied"}
        append = self.plain(FEW, lambda rows: rows.write.format("jdbc").options(**options).mode("append").save())
        into = fm.sinks.Postgres(self.database, "ours")
        topic = fm.sinks.Kafka(kafka.bootstrap, "orders", key="id", create={"partitions": 1})
        of = f"{FEW} rows from PostgreSQL, plain JDBC read and JDBC append as reference"
        return [
            compare("small batch to PostgreSQL", append, self.ticks(into, FEW), at_most=1.2, rounds=self.rounds, of=of),
            compare("small batch to Kafka", append, self.ticks(topic, FEW), at_most=1.2, rounds=self.rounds, of=of),
        ]

    def into_a_large_table(self, megabytes: int) -> Result:
        """Rows whose keys may lie in any of some large files, which `deltalake` would write anew."""
        plain, merged = self.large_table(megabytes), self.large_table(megabytes)
        merge = self.plain(FEW, lambda rows: self.merge_into(plain, rows.selectExpr("id", "id AS v")))
        ours = self.ticks(fm.sinks.Delta(merged, mode="merge", key="id"), FEW, "select id, id as v from source")
        of = f"{FEW} rows into {megabytes:,} MB, plain MERGE as reference"
        return compare("small batch into large files, merge", merge, ours, at_most=1.2, rounds=FEW_ROUNDS, of=of)

    def large_table(self, megabytes: int) -> str:
        """Files of 128 MB of noise, in each of which any key may lie."""
        import numpy as np
        import pyarrow as pa
        from deltalake import write_deltalake

        path, noise = self.path(), np.random.default_rng(1)
        for _ in range(-(-megabytes // FILE_MEGABYTES)):
            columns = {name: noise.integers(0, 2**62, FILE_MEGABYTES * 65_536) for name in ("id", "v")}
            write_deltalake(path, pa.table(columns), mode="append")
        return path

    def path(self) -> str:
        return str(self.home / uuid.uuid4().hex)

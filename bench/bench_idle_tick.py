"""Idle ticks of a loop, in milliseconds of CPU of this process: any source, many files, and 500 jobs in one loop.

Every tick is run without a session, so that it could start no Spark job if it wanted to.
"""

from __future__ import annotations

import json
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from confluent_kafka import Producer
from run import Result
from timing import seconds

import floodmark as fm
from floodmark.jobs.running import Runner
from floodmark.probes.files import list_files
from floodmark.stores.lease import hold
from floodmark.testing.servers import Broker, kafka_broker, postgres_server

if TYPE_CHECKING:
    from floodmark.sources.contract import Source

FILES, TICKS, ROUNDS, JOBS = 10_000, 50, 5, 500
ROWS = 1_000


def run(files: int = FILES, jobs: int = JOBS) -> list[Result]:
    fm.spark_session({"spark.master": "local[2]"})
    with tempfile.TemporaryDirectory() as name, postgres_server(Path(name) / "pg") as postgres:
        home = Path(name)
        with kafka_broker(home / "kafka") as kafka:
            sources = dict(every_source(home, kafka, postgres.create_database()))
            results = [tick_of(kind, source, home) for kind, source in sources.items()]
        return [*results, many_files(home, files), many_jobs(home, jobs)]


def every_source(home: Path, kafka: Broker, database: str) -> Iterator[tuple[str, Source]]:
    """The same rows in each."""
    lines = [json.dumps({"id": number}) for number in range(ROWS)]
    (home / "in").mkdir()
    (home / "in" / "rows.jsonl").write_text("\n".join(lines))
    yield "files", fm.sources.Files(str(home / "in"), schema="id long", settle=0)
    fm.spark_session().range(ROWS).write.format("delta").save(f"{home}/table")
    yield "Delta", fm.sources.Delta(f"{home}/table")
    with sqlite3.connect(home / "rows.db") as connection:
        connection.execute("create table rows (id integer primary key)")
        connection.executemany("insert into rows values (?)", [(number,) for number in range(ROWS)])
    yield "SQLite", fm.sources.Sqlite(str(home / "rows.db"), table="rows", cursor="id")
    with psycopg.connect(database) as pg:
        pg.execute(f"create table rows as select generate_series(1, {ROWS}) as id")
        pg.execute("alter table rows add primary key (id)")
    yield "PostgreSQL", fm.sources.Postgres(database, table="rows", cursor="id")
    kafka.create_topic("rows", 4)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for line in lines:
        producer.produce("rows", line)
    producer.flush(60)
    yield "Kafka", fm.sources.Kafka(kafka.bootstrap, "rows", value={"format": "json", "schema": "id long"})


def tick_of(kind: str, source: Source, home: Path) -> Result:
    job = fm.Job(name=f"idle-{kind}", source=source, sinks=[fm.sinks.Delta(f"{home}/lake-{kind}")])
    store = fm.stores.open("sqlite:///marks.db", folder=home)
    job.run(fm.spark_session(), store)
    took = sorted(milliseconds(lambda: idle(job, store)) for _ in range(ROUNDS))
    detail = (
        f"CPU of a tick, median of {ROUNDS} means of {TICKS}; {took[0]:.2f} to {took[-1]:.2f} ms; without a session"
    )
    return Result(f"idle tick of a source in {kind}, ms of CPU", statistics.median(took), 2.0, detail)


def idle(job: fm.Job, store: fm.stores.MarkStore) -> None:
    receipt = job.run(None, store)
    assert receipt.status == "nothing_new", receipt


def milliseconds(act: Callable[[], object]) -> float:
    begun = time.process_time()
    for _ in range(TICKS):
        act()
    return (time.process_time() - begun) * 1000 / TICKS


def many_files(home: Path, files: int) -> Result:
    """What is left of a tick without the listing that every look needs."""
    folder = home / "many"
    folder.mkdir()
    for number in range(files):
        (folder / f"{number}.jsonl").write_text(f'{{"id": {number}}}\n')
    source = fm.sources.Files(str(folder), schema="id long", settle=0)
    job = fm.Job(name="many", source=source, sinks=[fm.sinks.Delta(f"{home}/many-lake")])
    store = fm.stores.open("sqlite:///many.db", folder=home)
    job.run(fm.spark_session(), store)
    listing = milliseconds(lambda: list_files(os.fspath(folder), recursive=True, glob=None))
    tick = milliseconds(lambda: idle(job, store))
    detail = f"tick {tick:.1f} ms, of which listing {files:,} files {listing:.1f} ms (CPU, mean of {TICKS})"
    return Result("idle tick beyond listing many files, ms of CPU", tick - listing, 50.0, detail)


def many_jobs(home: Path, jobs: int) -> Result:
    times = tuple(times_of_a_tick(home, jobs))
    detail = f"{jobs} jobs over files, one SQLite store, looks noted as a loop does; median of {len(times)} ticks"
    return Result(f"a tick of a loop over {jobs} idle jobs, s", statistics.median(times), 1.0, detail, ours=times)


def times_of_a_tick(home: Path, jobs: int) -> list[float]:
    """One job is run; the others get its mark, as `marks copy` would give it to them."""
    source = fm.sources.Files(str(home / "in"), schema="id long", settle=0)
    store = fm.stores.open(f"sqlite:///loop-{jobs}.db", folder=home)
    many = [
        fm.Job(name=f"job-{number}", source=source, sinks=[fm.sinks.Delta(f"{home}/loop-{jobs}")])
        for number in range(jobs)
    ]
    many[0].run(fm.spark_session(), store)
    record = store.read(many[0].name)
    assert record is not None
    for job in many[1:]:
        with hold(store, job.name) as lease:
            own = replace(record, job=job.name, number=0)
            lease.save(own, after=own)
    runner = Runner(store, fm.spark_session, notes_looks=True)

    def tick() -> None:
        for job in many:
            outcome = runner.run(job)
            assert outcome.receipt.status == "nothing_new", outcome

    tick()
    return [seconds(tick) for _ in range(ROUNDS)]

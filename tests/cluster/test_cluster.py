"""A real cluster: two workers that see one folder of the driver's, and have a Python without this package."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable, QueryBuilder

from floodmark.testing.servers import Broker, Server
from tests.cluster.standalone import Cluster, run_floodmark
from tests.proofs import Prove

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PROJECT = """\
store: sqlite:///marks.db
spark:
  master: {master}
  executor.memory: 512m
  cores.max: 2
  sql.shuffle.partitions: 2
{settings}jobs:
  - name: orders
    source: {{type: files, path: "{shared}/in", format: jsonl, schema: "id int"}}
    transform: {{python: "steps:shape"}}
    sinks:
{sinks}
    spool: "{spool}"
"""
STEPS = '''
"""Modules of the user's, which no worker has."""
from pathlib import Path
from pyspark import TaskContext
from helper import doubled

def shape(rows):
    def each(batches):
        for batch in batches:
            for count in range({pauses} if {slow_id} is None or {slow_id} in set(batch["id"]) else 0):
                import time
                Path("{shared}", "started").touch()
                Path("{shared}", f"try-{{TaskContext.get().taskAttemptId()}}").touch()
                time.sleep(0.1)
            yield doubled(batch)

    return rows.mapInPandas(each, "id int, twice int")
'''
HELPER = "def doubled(batch):\n    return batch.assign(twice=batch['id'] * 2).astype('int32')\n"
ROWS = list(range(400))


@pytest.fixture
def project(cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Path]:
    """Writes a project into a folder that the driver has alone, with rows in eight files that all can see."""

    def write(
        *sinks: str, spool: Path | None = None, pauses: int = 0, slow_id: int | None = None, settings: str = ""
    ) -> Path:
        home, shared = cluster.private / tmp_path.name, cluster.shared / tmp_path.name
        home.mkdir()
        (shared / "in").mkdir(parents=True)
        for part in range(8):
            rows = "".join(json.dumps({"id": number}) + "\n" for number in ROWS[part::8])
            (shared / "in" / f"{part}.jsonl").write_text(rows)
        text = "\n".join(f"      - {sink.format(shared=shared, private=home)}" for sink in sinks)
        fields = {"master": cluster.master, "shared": shared, "sinks": text, "spool": spool or shared / "spool"}
        (home / "floodmark.yaml").write_text(PROJECT.format(**fields, settings=settings))
        (home / "steps.py").write_text(STEPS.format(shared=shared, pauses=pauses, slow_id=slow_id))
        (home / "helper.py").write_text(HELPER)
        return home

    return write


SPECULATION = """\
  speculation: "true"
  speculation.interval: 100ms
  speculation.multiplier: "1.1"
  speculation.quantile: "0.2"
  speculation.minTaskRuntime: 500ms
  sql.files.openCostInBytes: "0"
  sql.files.maxPartitionBytes: "300"
"""
"""A copy of every task that takes longer than others, as soon as may be; and a task for every file."""
DELTA = '{{type: delta, path: "{shared}/lake"}}'
FILES = '{{type: files, path: "{shared}/out", format: jsonl}}'


def ids_in_lake(home: Path, cluster: Cluster) -> list[int]:
    table = DeltaTable(str(cluster.shared / home.name / "lake"))
    found = QueryBuilder().register("t", table).execute("select id from t order by id").read_all()
    return [each.as_py() for each in found.column(0)]


def ids_in_files(home: Path, cluster: Cluster) -> list[int]:
    parts = (cluster.shared / home.name / "out").glob("batch=*/part-*")
    return sorted(json.loads(line)["id"] for part in parts for line in part.read_text().splitlines())


def ids_in_table(database: str) -> list[int]:
    import psycopg

    with psycopg.connect(database) as connection:
        return [number for (number,) in connection.execute("select id from orders order by id")]


def ids_in_topic(kafka: Broker, topic: str) -> list[int]:
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": False})
    consumer.subscribe([topic])
    found, until = [], time.monotonic() + 60
    while time.monotonic() < until and len(found) <= len(ROWS):
        messages = consumer.consume(1000, timeout=5)
        if not messages and found:
            break
        found += [json.loads(message.value())["id"] for message in messages if message.error() is None]
    consumer.close()
    return sorted(found)


def test_rows_reach_four_sinks_once_through_executors_that_have_nothing_of_ours(
    cluster: Cluster,
    project: Callable[..., Path],
    kafka: Broker,
    postgres: Server,
    topic: Callable[..., str],
    database: str,
) -> None:
    """This package, the user's modules and the connectors go along by themselves."""
    name = topic(partitions=3)
    table = f'{{{{type: postgres, url: "{database}", table: orders}}}}'
    messages = f'{{{{type: kafka, bootstrap: "{kafka.bootstrap}", topic: {name}, key: id}}}}'
    home = project(DELTA, FILES, table, messages)
    driver = run_floodmark(cluster, home, "run")
    output, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0, output
    assert ids_in_lake(home, cluster) == ROWS
    assert ids_in_files(home, cluster) == ROWS
    assert ids_in_table(database) == ROWS
    assert ids_in_topic(kafka, name) == ROWS


@pytest.mark.faults
def test_an_executor_that_is_killed_within_its_task_doubles_nothing(
    cluster: Cluster, project: Callable[..., Path], prove: Prove
) -> None:
    """Its task is begun again on another one, and what the first had written is not published."""
    home = project(DELTA, FILES, pauses=20)
    driver = run_floodmark(cluster, home, "run")
    started, until = cluster.shared / home.name / "started", time.monotonic() + 120
    while not started.exists() and driver.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    cluster.kill_an_executor()
    output, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0, output
    assert ids_in_lake(home, cluster) == ROWS
    assert ids_in_files(home, cluster) == ROWS
    prove("an executor is killed within a task", "nothing: Spark begins its task again", "every row once in both sinks")


@pytest.mark.parametrize("kind", ["delta", "files", "postgres"])
def test_a_second_copy_of_a_slow_task_doubles_nothing(
    cluster: Cluster, project: Callable[..., Path], kind: str, database: str, prove: Prove
) -> None:
    """Spark begins it beside the first, and takes the result of whichever ends first: the sink counts one of them."""
    sinks = {"delta": DELTA, "files": FILES, "postgres": f'{{{{type: postgres, url: "{database}", table: orders}}}}'}
    home = project(sinks[kind], pauses=60, slow_id=7, settings=SPECULATION)
    driver = run_floodmark(cluster, home, "run")
    output, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0, output
    copies = list((cluster.shared / home.name).glob("try-*"))
    read = {
        "delta": lambda: ids_in_lake(home, cluster),
        "files": lambda: ids_in_files(home, cluster),
        "postgres": lambda: ids_in_table(database),
    }
    assert read[kind]() == ROWS
    assert len(copies) > 1, "Spark has begun no second copy"
    prove("speculation: a slow task has a second copy", "", "every row once in Delta, files and PostgreSQL")


@pytest.mark.parametrize(
    "sink",
    [
        pytest.param('{{type: delta, path: "{private}/lake"}}', id="delta"),
        pytest.param('{{type: files, path: "{private}/out", format: jsonl}}', id="files"),
    ],
)
def test_a_disk_that_the_workers_do_not_share_is_refused(
    cluster: Cluster, project: Callable[..., Path], sink: str
) -> None:
    """Before a row is written: what a task leaves on its own disk, nobody finds again."""
    home = project(sink)
    driver = run_floodmark(cluster, home, "run")
    output, _ = driver.communicate(timeout=300)
    assert driver.returncode == 1, output
    assert "does not see" in output
    assert "Nothing was written" in output
    assert not list(home.glob("*/part-*"))
    assert not list(home.glob("*/batch=*"))


def test_a_spool_that_the_workers_do_not_share_is_refused(cluster: Cluster, project: Callable[..., Path]) -> None:
    """It is on the way to every sink."""
    home = project(DELTA, FILES, spool=cluster.private / "spool")
    driver = run_floodmark(cluster, home, "run")
    output, _ = driver.communicate(timeout=300)
    assert driver.returncode == 1, output
    assert "does not see" in output

"""A real cluster: two workers that see one folder of the driver's, and have a Python without this package."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable, QueryBuilder

from floodmark.testing.servers import Broker
from tests.cluster.standalone import Cluster, run_floodmark, wait_until
from tests.faults.orders import ids_in_table, ids_in_topic
from tests.proofs import Prove

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PROJECT = """\
store: sqlite:///marks.db
spark:
  master: {master}
  executor.memory: 512m
  cores.max: 2
  sql.shuffle.partitions: 2
  databricks.delta.snapshotPartitions: 2
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
import os
import time
from pathlib import Path
from pyspark import TaskContext
from helper import doubled

NOTES, HELD = Path("{shared}"), {held}

def wait_for_a_second_try():
    (NOTES / f"try-{{TaskContext.get().attemptNumber()}}-{{os.getpid()}}").touch()
    until = time.monotonic() + 60
    while not list(NOTES.glob("try-1-*")) and time.monotonic() < until:
        time.sleep(0.05)

def shape(rows):
    def each(batches):
        for batch in batches:
            if HELD is not None and HELD in set(batch["id"]):
                wait_for_a_second_try()
            yield doubled(batch)

    return rows.mapInPandas(each, "id int, twice int")
'''
"""The first try of the task that gets the row HELD waits until Spark has begun a second one."""
HELPER = "def doubled(batch):\n    return batch[['id']].assign(twice=batch['id'] * 2).astype('int32')\n"
ROWS = list(range(400))
WIDTH = 200
"""Of a line, so that the files are more than would be read as one task."""


@pytest.fixture
def project(cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Path]:
    """Writes a project into a folder that the driver has alone, with rows in eight files that all can see."""

    def write(
        *sinks: str,
        spool: Path | None = None,
        held: int | None = None,
        settings: str = "",
        database: str = "",
        ids: Sequence[int] = ROWS,
    ) -> Path:
        home, shared = cluster.private / tmp_path.name, cluster.shared / tmp_path.name
        home.mkdir()
        (shared / "in").mkdir(parents=True)
        for part in range(8):
            rows = "".join(json.dumps({"id": number}).ljust(WIDTH) + "\n" for number in ids[part::8])
            (shared / "in" / f"{part}.jsonl").write_text(rows)
        text = "\n".join(f"      - {sink.format(shared=shared, private=home, database=database)}" for sink in sinks)
        fields = {"master": cluster.master, "shared": shared, "sinks": text, "spool": spool or shared / "spool"}
        (home / "floodmark.yaml").write_text(PROJECT.format(**fields, settings=settings))
        (home / "steps.py").write_text(STEPS.format(shared=shared, held=held))
        (home / "helper.py").write_text(HELPER)
        return home

    return write


SPECULATION = """\
  speculation: "true"
  speculation.interval: 100ms
  speculation.multiplier: "1.1"
  speculation.quantile: "0.2"
  speculation.minTaskRuntime: 500ms
"""
"""A copy of every task that takes longer than others, as soon as may be."""
LATE_SPECULATION = SPECULATION.replace("500ms", "45s")
"""A copy only of a task that takes far longer than it needs."""
SMALL_CHUNKS = '  sql.execution.arrow.maxRecordsPerBatch: "20"\n'
"""So that a task has written rows when it comes to the one where it waits."""
DELTA = '{{type: delta, path: "{shared}/lake"}}'
FILES = '{{type: files, path: "{shared}/out", format: jsonl}}'
TABLE = '{{type: postgres, url: "{database}", table: orders}}'
SINKS = {"delta": DELTA, "files": FILES, "postgres": TABLE}


def tries(home: Path, cluster: Cluster, number: int) -> list[int]:
    """The Python processes that came to the row HELD in this try of its task."""
    return [int(note.name.split("-")[2]) for note in (cluster.shared / home.name).glob(f"try-{number}-*")]


def ids_in_lake(home: Path, cluster: Cluster) -> list[int]:
    table = DeltaTable(str(cluster.shared / home.name / "lake"))
    found = QueryBuilder().register("t", table).execute("select id from t order by id").read_all()
    return [each.as_py() for each in found.column(0)]


def ids_in_files(home: Path, cluster: Cluster) -> list[int]:
    parts = (cluster.shared / home.name / "out").glob("batch=*/part-*")
    return sorted(json.loads(line)["id"] for part in parts for line in part.read_text().splitlines())


def ids_in(kind: str, home: Path, cluster: Cluster, database: str) -> list[int]:
    """What a reader of a sink of this kind sees."""
    read = {
        "delta": lambda: ids_in_lake(home, cluster),
        "files": lambda: ids_in_files(home, cluster),
        "postgres": lambda: ids_in_table(database),
    }
    return read[kind]()


def test_rows_reach_four_sinks_once_through_executors_that_have_nothing_of_ours(
    cluster: Cluster,
    project: Callable[..., Path],
    kafka: Broker,
    topic: Callable[..., str],
    database: str,
    prove: Prove,
) -> None:
    """This package, the user's modules and the connectors go along by themselves."""
    name = topic(partitions=3)
    messages = f'{{{{type: kafka, bootstrap: "{kafka.bootstrap}", topic: {name}, key: id}}}}'
    home = project(DELTA, FILES, TABLE, messages, database=database)
    driver = run_floodmark(cluster, home, "run")
    output, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0, output
    assert ids_in_lake(home, cluster) == ROWS
    assert ids_in_files(home, cluster) == ROWS
    assert ids_in_table(database) == ROWS
    assert ids_in_topic(kafka.bootstrap, name) == ROWS
    prove(
        "a cluster whose workers have neither this package, nor the user's modules, nor connectors",
        "",
        "every row once in Delta, files, PostgreSQL and Kafka",
    )


@pytest.mark.faults
@pytest.mark.parametrize("kinds", [("delta",), ("files",), ("postgres",), ("delta", "files")], ids="+".join)
def test_an_executor_that_is_killed_within_its_task_doubles_nothing(
    cluster: Cluster, project: Callable[..., Path], kinds: tuple[str, ...], database: str, prove: Prove
) -> None:
    """Its task is begun again on another one, and what the first had written is not published; by one sink or two,
    which get their rows from the spool."""
    home = project(*(SINKS[kind] for kind in kinds), held=150, settings=SMALL_CHUNKS, database=database)
    driver = run_floodmark(cluster, home, "run")
    wait_until(lambda: bool(tries(home, cluster, 0)), driver)
    cluster.kill_executor_of(tries(home, cluster, 0)[0])
    output, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0, output
    assert tries(home, cluster, 1), "Spark has not begun the task again"
    assert [ids_in(kind, home, cluster, database) for kind in kinds] == [ROWS] * len(kinds)
    prove(
        "an executor is killed within a task",
        "nothing: Spark begins its task again",
        "every row once in Delta, files and PostgreSQL",
    )


@pytest.mark.parametrize("kind", ["delta", "files", "postgres"])
def test_a_second_copy_of_a_slow_task_doubles_nothing(
    cluster: Cluster, project: Callable[..., Path], kind: str, database: str, prove: Prove
) -> None:
    """Spark begins it beside the first, and takes the result of whichever ends first: the sink counts one of them."""
    home = project(SINKS[kind], held=150, settings=SPECULATION + SMALL_CHUNKS, database=database)
    driver = run_floodmark(cluster, home, "run")
    output, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0, output
    assert tries(home, cluster, 1), "Spark has begun no second copy"
    assert ids_in(kind, home, cluster, database) == ROWS
    prove("speculation: a slow task has a second copy", "", "every row once in Delta, files and PostgreSQL")


MESSAGES = '{{{{type: kafka, bootstrap: "{bootstrap}", topic: {topic}, key: id}}}}'
MANY = range(400_000)
"""Some seconds for the two tasks that send them, in several transactions."""


class SentMessages:
    """How many messages and ends of transactions a topic has, committed or not."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex})
        self.partitions = list(self.consumer.list_topics(topic, 20).topics[topic].partitions)

    def count(self) -> int:
        places = [TopicPartition(self.topic, partition) for partition in self.partitions]
        return sum(self.consumer.get_watermark_offsets(place, timeout=20)[1] for place in places)


@pytest.mark.faults
def test_an_executor_that_is_killed_while_it_sends_doubles_no_message(
    cluster: Cluster, project: Callable[..., Path], kafka: Broker, topic: Callable[..., str], prove: Prove
) -> None:
    """Its task is begun again, shuts the first one out, and goes on behind what that had committed."""
    name = topic(partitions=2)
    home = project(MESSAGES.format(bootstrap=kafka.bootstrap, topic=name), ids=MANY)
    sent, driver = SentMessages(kafka.bootstrap, name), run_floodmark(cluster, home, "run")
    wait_until(lambda: sent.count() > 1000, driver)
    os.kill(cluster.executors()[0], signal.SIGKILL)
    before = sent.count()
    output, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0, output
    assert before < len(MANY), "all was sent before the executor was killed"
    assert ids_in_topic(kafka.bootstrap, name) == list(MANY)
    prove("an executor is killed while it sends to Kafka", "nothing: Spark begins its task again", "every message once")


def test_a_second_copy_of_a_task_that_sends_doubles_no_message(
    cluster: Cluster, project: Callable[..., Path], kafka: Broker, topic: Callable[..., str], prove: Prove
) -> None:
    """One of two tasks stands still; its copy shuts it out and goes on, and then the first one wakes up beside it."""
    name = topic(partitions=2)
    messages = MESSAGES.format(bootstrap=kafka.bootstrap, topic=name)
    home = project(messages, ids=MANY, settings=LATE_SPECULATION)
    sent, driver = SentMessages(kafka.bootstrap, name), run_floodmark(cluster, home, "run")
    wait_until(lambda: sent.count() > 1000, driver)
    stopped = cluster.python_of(cluster.executors()[0])
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: stands_still(sent, seconds=3), driver)
    before = sent.count()
    wait_until(lambda: sent.count() > before, driver)  # by the copy
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    output, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0, output
    assert ids_in_topic(kafka.bootstrap, name) == list(MANY)
    prove("speculation: a task that sends to Kafka has a second copy", "", "every message once")


def stands_still(sent: SentMessages, seconds: float) -> bool:
    before = sent.count()
    time.sleep(seconds)
    return sent.count() == before


@pytest.mark.parametrize(
    "sink",
    [
        pytest.param('{{type: delta, path: "{private}/lake"}}', id="delta"),
        pytest.param('{{type: files, path: "{private}/out", format: jsonl}}', id="files"),
    ],
)
def test_a_disk_that_the_workers_do_not_share_is_refused(
    cluster: Cluster, project: Callable[..., Path], sink: str, prove: Prove
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
    prove("a path of the driver's that the workers do not see", line_with("does not see", output), "not a row")


def test_a_spool_that_the_workers_do_not_share_is_refused(
    cluster: Cluster, project: Callable[..., Path], prove: Prove
) -> None:
    """It is on the way to every sink."""
    home = project(DELTA, FILES, spool=cluster.private / "spool")
    driver = run_floodmark(cluster, home, "run")
    output, _ = driver.communicate(timeout=300)
    assert driver.returncode == 1, output
    assert "does not see" in output
    assert not (cluster.shared / home.name / "lake").exists()
    assert not (cluster.shared / home.name / "out").exists()
    prove("a spool that the workers do not see", line_with("does not see", output), "not a row")


def test_files_that_the_workers_do_not_share_are_refused(
    cluster: Cluster, project: Callable[..., Path], prove: Prove
) -> None:
    """The driver finds them, and no worker does."""
    home = project(DELTA)
    shared, text = cluster.shared / home.name / "in", (home / "floodmark.yaml").read_text()
    shared.rename(shared.with_name("moved"))
    shutil.copytree(shared.with_name("moved"), home / "in")
    (home / "floodmark.yaml").write_text(text.replace(str(shared), str(home / "in")))
    driver = run_floodmark(cluster, home, "run")
    output, _ = driver.communicate(timeout=300)
    assert driver.returncode == 1, output
    assert "does not see" in output, output
    assert not list((cluster.shared / home.name / "lake").glob("_delta_log/*.json"))
    prove("files of the driver's that the workers do not see", line_with("does not see", output), "not a row")


def line_with(words: str, output: str) -> str:
    return next(line for line in output.splitlines() if words in line)

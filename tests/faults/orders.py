"""A project that is broken on purpose: orders from files or a table into some sinks, run as a process of its own.

Its transform can be told, by files in the project's folder, to wait inside a task, or to ask for more memory than there
is: so a test meets a run in the middle of its work, wherever that happens to be.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = """\
store: {store}
spark:
  master: local[2]
  driver.memory: 1g
  sql.shuffle.partitions: 2
jobs:
  - name: orders
    source: {source}
    transform: {{python: "flow:shape"}}
    sinks:
{sinks}
    spool: {spool}
    retries: {{attempts: {attempts}, backoff: 1s}}
    every: 1s
"""
FILES_SOURCE = '{type: files, path: in, format: jsonl, schema: "id long", settle: 0s}'
FLOW = '''
"""What a test can make of a batch: `hold` makes its tasks wait, `greedy` and `hungry` make them ask for too much."""
import os
import signal
import time
from pathlib import Path

HOME = Path(__file__).parent


def as_told(batches):
    for batch in batches:
        (HOME / "inside").touch()
        while (HOME / "hold").exists():
            time.sleep(0.05)
        if (HOME / "hungry").exists():
            bytearray(1 << 60)
        if (HOME / "killed").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch


def shape(rows):
    if (HOME / "greedy").exists():
        rows = rows.selectExpr("id + 0 * size(sequence(0L, 400000000L + id)) as id")
    return rows.mapInArrow(as_told, "id long")
'''
DELTA = "{type: delta, name: lake, path: lake}"
FILES = "{type: files, name: out, path: out, format: jsonl}"
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Run:
    """How a run ended, and all that it said."""

    exit_code: int
    output: str

    @property
    def message(self) -> str:
        """Its error, or the last line that a person reads."""
        lines = [line for line in self.output.splitlines() if line.strip()]
        errors = [line for line in lines if re.match(r"\s*Error: ", line)]
        return (errors or lines or [""])[-1].strip().removeprefix("Error: ")


@dataclass
class Orders:
    """The project in a folder."""

    home: Path
    sinks: Sequence[str] = (DELTA,)
    store: str = "sqlite:///marks.db"
    source: str = FILES_SOURCE
    spool: str = "spool"
    attempts: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    module: str = "floodmark"
    """What Python runs: versions of long ago had another one."""

    def __post_init__(self) -> None:
        self.home.mkdir(exist_ok=True)
        sinks = "\n".join(f"      - {sink}" for sink in self.sinks)
        text = PROJECT.format(
            store=self.store, source=self.source, sinks=sinks, spool=self.spool, attempts=self.attempts
        )
        (self.home / "floodmark.yaml").write_text(text)
        (self.home / "flow.py").write_text(FLOW)
        (self.home / "in").mkdir(exist_ok=True)

    def deliver(self, ids: range) -> None:
        """A file of orders that is there at once."""
        arriving = self.home / f".{ids.start}.jsonl"
        arriving.write_text("".join(f'{{"id": {number}}}\n' for number in ids))
        arriving.rename(self.home / "in" / f"{ids.start:08d}.jsonl")

    def start(self, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        """Begin a run in a process group of its own; what it says goes into a file."""
        with (self.home / "run.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", self.module, "run", *words],
                cwd=self.home,
                env={**os.environ, **self.environment, **environment},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def end_of(self, process: subprocess.Popen[bytes], seconds: float = 120) -> Run:
        """Wait for the run; one that does not end is killed, and fails the test."""
        try:
            code = process.wait(seconds)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        return Run(code, (self.home / "run.log").read_text(errors="replace"))

    def run(self, *words: str, **environment: str) -> Run:
        """One run from its begin to its end."""
        return self.end_of(self.start(*words, **environment))

    def tell(self, *words: str) -> None:
        """Make the next tasks do something."""
        for word in words:
            (self.home / word).touch()

    def let(self, *words: str) -> None:
        """No longer."""
        for word in words:
            (self.home / word).unlink(missing_ok=True)

    def await_task(self, process: subprocess.Popen[bytes]) -> None:
        """Until a task has a batch in its hands."""
        await_that((self.home / "inside").exists, process, self.home / "run.log")

    def ids_in_lake(self, table: str = "lake") -> list[int]:
        """What a reader of the Delta table sees."""
        from deltalake import DeltaTable, QueryBuilder

        found = QueryBuilder().register("t", DeltaTable(str(self.home / table))).execute("select id from t order by id")
        return [each.as_py() for each in found.read_all().column(0)]

    def ids_in_files(self, folder: str = "out") -> list[int]:
        """What is published in the folder of the files sink."""
        parts = (self.home / folder).glob("batch=*/part-*")
        return sorted(json.loads(line)["id"] for part in parts for line in part.read_text().splitlines())


def ids_in_table(database: str, table: str = "orders") -> list[int]:
    """What everybody sees of a table in PostgreSQL; nothing where it is not there."""
    import psycopg

    with psycopg.connect(database) as connection:
        there = connection.execute("select to_regclass(%s)", [table]).fetchone()
        if there is None or there[0] is None:
            return []
        return [number for (number,) in connection.execute(f"select id from {table} order by id").fetchall()]


def ids_in_topic(bootstrap: str, topic: str, seconds: float = 60) -> list[int]:
    """What consumers of committed messages get, from the first to the last stable offset of each partition."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "auto.offset.reset": "earliest"})
    partitions = consumer.list_topics(topic, 20).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found: list[int] = []
    ended: set[int] = set()
    until = time.monotonic() + seconds
    while len(ended) < len(partitions) and time.monotonic() < until:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is None:
            found.append(json.loads(message.value())["id"])
        elif message.partition() >= 0:
            ended.add(message.partition())
    consumer.close()
    assert len(ended) == len(partitions), "the topic could not be read to its end"
    return sorted(found)


def await_that(
    is_so: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, seconds: float = PATIENCE_SECONDS
) -> None:
    """Until it is so. Fails with the run's log if the run ends before, or time is over."""
    until = time.monotonic() + seconds
    while not is_so():
        if process.poll() is not None or time.monotonic() > until:
            raise AssertionError(f"it did not come to it:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.05)


def chosen(first: object, *others: object) -> list[object]:
    """The cases of a matrix: the first in `make faults`, all of them in `make faults-all`."""
    return [first, *others] if os.environ.get("FLOODMARK_FAULTS") == "all" else [first]

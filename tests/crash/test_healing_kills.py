"""kill -9 of a stream, its JVM and its workers at random moments, while records and partitions keep coming."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from floodmark import stores
from floodmark.errors import RecordsFailed
from tests.crash import killable_stream
from tests.crash.healing_book import Book, calls_in, durable
from tests.crash.killable_stream import GROUP, StreamRun
from tests.sources.kafka.topics import add_partitions, open_transaction, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.testing.servers import Broker

FATES = ("done", "done", "done", "dropped", "failed done", "failed dropped", "failed failed done")
MOST_PARTITIONS = 5


@dataclass
class KilledStream:
    """One topic and one stream, under random conditions."""

    broker: Broker
    topic: str
    home: Path
    draw: random.Random
    partitions: int = 2
    runs: int = 0
    book: Book = field(default_factory=Book)
    killed: dict[int, int] = field(default_factory=dict)

    def put_records(self, records: int) -> None:
        """New records in random partitions, perhaps a new partition, perhaps a transaction that is aborted."""
        if self.partitions < MOST_PARTITIONS and self.draw.random() < 0.5:
            self.partitions += 1
            add_partitions(self.broker, self.topic, self.partitions)
        for partition in range(self.partitions):
            fates = self.draw.choices(FATES, k=self.draw.randint(0, records))
            put(self.broker, self.topic, *fates, partition=partition)
            self.book.put(partition, fates)
        with open_transaction(self.broker, self.topic, "never", partition=0) as producer:
            producer.abort_transaction(10)
        self.book.skip(0, 2)  # what was aborted, and the marker behind it

    def run_and_kill(self) -> None:
        """A process that is killed after a random number of calls, unless it ends before; then the marks are judged."""
        run = self.next_run(cores=self.draw.randint(1, 3), together=self.draw.choice((1, 3)))
        command = [sys.executable, killable_stream.__file__, run.serialize()]
        with self.said.open("w") as said:
            process = subprocess.Popen(command, stderr=said, start_new_session=True)
        self.wait_for_calls(process, self.draw.randint(1, len(self.book.fates)))
        time.sleep(self.draw.uniform(0.0, 0.4))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            self.killed[run.number] = run.together
        self.judge(process.wait(30))

    def wait_for_calls(self, process: subprocess.Popen[bytes], more: int) -> None:
        wanted = len(calls_in(self.home / "notes")) + more
        while process.poll() is None and len(calls_in(self.home / "notes")) < wanted:
            time.sleep(0.02)

    def judge(self, code: int) -> None:
        """Exactly the rule's marks after a run that ended; never beyond them after one that was killed."""
        expected, marks = self.book.marks(calls_in(self.home / "notes")), self.marks()
        if code == -signal.SIGKILL:
            assert all(mark <= expected[partition] for partition, mark in marks.items())
        else:
            assert code in (0, killable_stream.STUCK), f"exit {code}: {self.said.read_text()[-2000:]}"
            assert marks == expected

    @property
    def said(self) -> Path:
        return self.home / "stderr"

    def next_run(self, **changed: int) -> StreamRun:
        self.runs += 1
        tries = self.draw.randint(1, 2)
        return StreamRun(str(self.home), self.broker.bootstrap, self.topic, self.runs, tries=tries, **changed)

    def heal_all(self) -> None:
        """Runs without a kill, here in this process; a record fails twice at most."""
        for _ in range(3):
            run, code = self.next_run(seconds=0), 0
            try:
                run.stream().run_once()
            except RecordsFailed:
                code = killable_stream.STUCK
            self.judge(code)

    def marks(self) -> Mapping[int, int]:
        record = stores.open(f"sqlite:///{self.home}/marks.db").read(GROUP)
        return dict(record.marks[self.topic].value) if record and self.topic in record.marks else {}

    def published(self) -> dict[int, int]:
        """The group's offsets, as Kafka's own tools see them."""
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": GROUP})
        asked = [TopicPartition(self.topic, partition) for partition in range(self.partitions)]
        found = consumer.committed(asked, timeout=20)
        consumer.close()
        return {place.partition: place.offset for place in found if place.offset > 0}

    def outcomes(self) -> dict[tuple[int, int], tuple[str | None, ...]]:
        """What every record came to."""
        found = durable(calls_in(self.home / "notes"), self.killed)
        return {record: tuple(words) for record, words in found.items()}


def run_under_kills(stream: KilledStream, kills: int, records: int) -> None:
    for _ in range(kills):
        stream.put_records(records)
        stream.run_and_kill()
    stream.put_records(records)
    stream.heal_all()


@pytest.mark.crash
@pytest.mark.timeout(240)
def test_a_killed_stream_repeats_only_what_was_in_its_hands(
    spark: SparkSession, kafka: Broker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """Outcomes, partitions, cores and the moment of the kill are drawn; marks and calls are judged by the rule."""
    stream = KilledStream(kafka, topic(2), tmp_path, random.Random(1))
    run_under_kills(stream, kills=1, records=30)
    assert stream.marks() == stream.published() == stream.book.ends
    assert stream.outcomes() == stream.book.fates


@pytest.mark.crash
@pytest.mark.timeout(1800)
def test_random_kills_lose_no_record_and_run_no_settled_one_again(
    spark: SparkSession, kafka: Broker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """The same, kill after kill; FLOODMARK_SEED draws other kills."""
    stream = KilledStream(kafka, topic(2), tmp_path, random.Random(int(os.environ.get("FLOODMARK_SEED", "20261115"))))
    run_under_kills(stream, kills=8, records=60)
    assert stream.marks() == stream.published() == stream.book.ends
    assert stream.outcomes() == stream.book.fates

"""A stream that is healed on executors of other machines, with a folder that they share and without one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from floodmark import stores
from floodmark.testing.servers import Broker
from tests.cluster import healing
from tests.cluster.standalone import Cluster, wait_until
from tests.proofs import Prove

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

RECORDS = 120


@dataclass(frozen=True)
class HealedStream:
    """A program that heals a topic of two partitions: where it runs, and where its calls and its marks are."""

    master: str
    python: str
    environment: Mapping[str, str]
    is_private: bool
    """Whether the executors do not see its state."""
    kafka: Broker
    topic: str
    state: Path
    calls: Path

    def start(self) -> subprocess.Popen[str]:
        words = [self.master, self.kafka.bootstrap, self.topic, str(self.state), str(self.calls)]
        return subprocess.Popen(
            [self.python, healing.__file__, *words],
            cwd=self.state.parent,
            env=dict(self.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self) -> tuple[int, str]:
        process = self.start()
        output, _ = process.communicate(timeout=300)
        return process.returncode, output

    def last_call(self) -> tuple[int, int]:
        """Its partition, and the Python process that made it."""
        partition, _, worker, _ = max(self.all_calls(), key=lambda call: call[3])
        return partition, worker

    def workers_of(self, partition: int) -> set[int]:
        """The Python processes that had records of this partition."""
        return {worker for of, _, worker, _ in self.all_calls() if of == partition}

    def calls_of_records(self) -> Counter[tuple[int, int]]:
        """How often the step was called with each record."""
        return Counter((partition, offset) for partition, offset, *_ in self.all_calls())

    def all_calls(self) -> list[tuple[int, ...]]:
        """Partition, offset, process and moment of each."""
        return [tuple(map(int, path.name.split("-"))) for path in self.calls.iterdir()]

    def marks(self) -> dict[str, int]:
        record = stores.open(f"sqlite:///{self.state.parent}/marks.db").read(f"heal-{self.topic}")
        return {} if record is None else {str(k): v for mark in record.marks.values() for k, v in mark.value.items()}


@pytest.fixture(params=["shared", "private"])
def stream(
    request: pytest.FixtureRequest, cluster: Cluster, kafka: Broker, topic: Callable[..., str], tmp_path: Path
) -> HealedStream:
    """Its state in the folder that all machines share, or in one that the driver has alone."""
    calls = cluster.shared / f"{tmp_path.name}-calls"
    calls.mkdir()
    is_private = request.param == "private"
    home = (cluster.private if is_private else cluster.shared) / f"{tmp_path.name}-{request.param}"
    home.mkdir()
    place = (cluster.master, sys.executable, cluster.environment(), is_private)
    return HealedStream(*place, kafka, topic(partitions=2), home / "state", calls)


def send(stream: HealedStream, bad: frozenset[int] = frozenset()) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": stream.kafka.bootstrap})
    for number in range(RECORDS):
        value = {"number": number, **({"bad": True} if number in bad else {})}
        producer.produce(stream.topic, json.dumps(value).encode(), partition=number % 2)
    assert producer.flush(30) == 0


def require_each_healed_once(stream: HealedStream) -> None:
    """Send records and heal them; the log says so where outcomes come back with the results of the tasks."""
    send(stream)
    code, output = stream.run()
    assert code == 0, output
    assert sorted(stream.calls_of_records().values()) == [1] * RECORDS
    assert stream.marks() == {"0": RECORDS // 2, "1": RECORDS // 2}
    assert ("do not see the folder" in output) == stream.is_private


def test_every_record_is_healed_once_on_other_machines(stream: HealedStream, prove: Prove) -> None:
    """Also where no disk is shared: outcomes then come back with the results of the tasks, and the log says so."""
    require_each_healed_once(stream)
    prove(
        "healing on a cluster, with a shared folder and without", "", "every record once, and the mark behind the last"
    )


def test_a_record_that_fails_keeps_the_mark_and_its_bytes(stream: HealedStream, prove: Prove) -> None:
    """The next run tries that one alone, though another machine had it."""
    send(stream, bad=frozenset({10}))
    code, output = stream.run()
    again, _ = stream.run()
    calls = stream.calls_of_records()
    assert (code, again) == (1, 1), output
    assert stream.marks()["0"] == 5
    assert calls.pop((0, 5)) >= 2
    assert sorted(calls.values()) == [1] * (RECORDS - 1)
    prove("a record fails on a cluster", "", "the mark stays before it, and the next run tries that one alone")


def test_an_executor_that_is_killed_costs_no_record(cluster: Cluster, stream: HealedStream, prove: Prove) -> None:
    """With a shared folder only what was in its hands runs again; without one, what its tasks had done in this turn."""
    send(stream)
    driver = stream.start()
    wait_until(lambda: len(stream.calls_of_records()) >= 10, driver)
    partition, worker = stream.last_call()
    cluster.kill_executor_of(worker)
    output, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0, output
    calls = stream.calls_of_records()
    assert len(calls) == RECORDS
    assert stream.marks() == {"0": RECORDS // 2, "1": RECORDS // 2}
    assert stream.workers_of(partition) > {worker}, "the task had ended when its executor was killed"
    assert max(calls.values()) <= 2
    assert stream.is_private or sum(calls.values()) <= RECORDS + 1
    prove(
        "an executor is killed while it heals",
        "",
        "no record lost; with a shared folder only those in its hands run again",
    )

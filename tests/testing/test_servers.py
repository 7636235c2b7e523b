"""The servers that the tests run against: real ones, that keep their data and leave nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from floodmark.testing.servers import Broker, Server, kafka_broker, postgres_server
from floodmark.testing.servers.child import ServerFailed, listens, start
from floodmark.testing.servers.postgres import _copy_programs, programs

if TYPE_CHECKING:
    from collections.abc import Callable

STARTS_AND_WAITS = """
import signal, sys
from pathlib import Path
from floodmark.testing.servers import postgres_server
with postgres_server(Path(sys.argv[1])) as server:
    print(server.pid, server.port, server.home, flush=True)
    signal.pause()
"""

pytestmark = pytest.mark.server


def send(broker: Broker, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value.encode(), partition=0)
    assert producer.flush(30) == 0


def values_in(broker: Broker, topic: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = consumer.consume(count, timeout=20)
    consumer.close()
    return [(message.value() or b"").decode() for message in found]


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_topic_takes_messages_and_gives_them_back(kafka: Broker, topic: Callable[..., str]) -> None:
    """The plainest thing a broker does."""
    name = topic(partitions=2)
    send(kafka, name, "a", "b")
    assert values_in(kafka, name, 2) == ["a", "b"]
    assert len(kafka.admin().list_topics(name, timeout=10).topics[name].partitions) == 2


def test_a_topic_is_never_made_by_accident(kafka: Broker) -> None:
    """A mistyped name must show itself."""
    assert kafka.admin().list_topics("mistyped", timeout=10).topics["mistyped"].error is not None


@pytest.mark.crash
def test_a_killed_broker_comes_back_on_its_port_with_its_messages(tmp_path: Path) -> None:
    """An outage is an outage, and no loss."""
    with kafka_broker(tmp_path) as broker:
        broker.create_topic("orders")
        send(broker, "orders", "a")
        before = broker.bootstrap
        broker.kill()
        assert not listens(broker.port)
        broker.start()
        assert (broker.bootstrap, values_in(broker, "orders", 1)) == (before, ["a"])
    assert not listens(broker.port)


def test_a_killed_database_server_comes_back_with_what_was_committed(tmp_path: Path) -> None:
    """As after a crash in production."""
    with postgres_server(tmp_path) as server:
        url = server.create_database()
        with psycopg.connect(url) as connection:
            connection.execute("create table orders as select 1 as id")
        server.kill()
        assert not listens(server.port)
        server.start()
        with psycopg.connect(url) as connection:
            assert connection.execute("select id from orders").fetchall() == [(1,)]


def test_the_password_is_asked_for_and_never_shown(postgres: Server) -> None:
    """So that tests about secrets have a secret."""
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(postgres.url.replace(postgres.password, "wrong"))
    assert postgres.password not in repr(postgres)


def test_prepared_transactions_are_allowed(database: str) -> None:
    """Two-phase commit is one of the things that are tested here."""
    with psycopg.connect(database) as connection:
        assert connection.execute("show max_prepared_transactions").fetchone() == ("20",)


def test_two_tests_never_share_a_database(postgres: Server) -> None:
    """Each gets one of its own."""
    assert postgres.create_database() != postgres.create_database()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_server_ends_with_a_killed_parent(tmp_path: Path) -> None:
    """kill -9 of pytest leaves no server behind, nor its data."""
    command = [sys.executable, "-c", STARTS_AND_WAITS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, port, home = parent.stdout.readline().split()
        os.kill(parent.pid, signal.SIGKILL)
        assert wait_until(lambda: is_gone(int(pid)))
    assert wait_until(lambda: not listens(int(port)))
    assert wait_until(lambda: not Path(home).exists())


def test_a_server_that_does_not_start_says_why(postgres: Server, tmp_path: Path) -> None:
    """The end of its log is in the error."""
    server = Server(tmp_path, postgres.port)
    with pytest.raises(ServerFailed, match="Address already in use") as failed:
        server.start()
    shutil.rmtree(server.home)
    assert (failed.value.log, server.pid) == (tmp_path / "postgres.log", None)


def test_a_stopped_child_takes_its_watch_with_it(tmp_path: Path) -> None:
    """No shell is left waiting."""
    child = start(["/bin/sleep", "60"], tmp_path / "log")
    child.end(signal.SIGTERM)
    assert (child.process.returncode, child.watch.returncode) == (-signal.SIGTERM, 0)


def test_the_command_prints_the_addresses_and_stops_on_ctrl_c() -> None:
    """For trying things by hand."""
    command = [sys.executable, "-m", "floodmark", "servers", "postgres"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        first, _, _ = (running.stdout.readline() for _ in range(3))
        running.send_signal(signal.SIGINT)
        rest = running.stdout.read()
    assert first.startswith("postgres  postgresql://postgres:")
    assert (rest.splitlines()[-1], running.returncode) == ("stopped", 0)


def test_an_unknown_server_is_refused() -> None:
    """With those that there are."""
    done = subprocess.run(
        [sys.executable, "-m", "floodmark.testing.servers", "oracle"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "Error: no server 'oracle'.\nTry: one of: kafka, postgres\n")


def test_programs_that_only_root_may_enter_are_copied_with_their_libraries(tmp_path: Path) -> None:
    """A wheel keeps them beside its package, and the programs look for them from where they stand."""
    copied = _copy_programs(programs(), tmp_path)
    said = subprocess.run([copied / "initdb", "--version"], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")

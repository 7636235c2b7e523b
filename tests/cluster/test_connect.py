"""Spark Connect: the same projects through a server that has Spark, from a client that has no JVM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable, QueryBuilder

from floodmark.testing.servers import Broker
from tests.cluster.connect import SESSION_SECONDS, ConnectServer, connect_server
from tests.cluster.standalone import require_namespaces
from tests.cluster.test_healing import HealedStream, require_each_healed_once
from tests.faults.orders import ids_in_table, ids_in_topic
from tests.proofs import Prove

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PROJECT = """\
store: sqlite:///marks.db
spark:
  remote: {remote}
jobs:
  - name: orders
    every: 1s
    source: {{type: files, path: in, format: jsonl, schema: "id long", settle: 0s}}
    transform: {{python: "steps:shape"}}
    sinks:
      - {{type: delta, name: lake, path: lake}}
      - {{type: files, name: out, path: out, format: jsonl}}
{sinks}    spool: spool
"""
STEPS = '''
"""A module of the user's, which the server does not have."""
import os
import time
from pathlib import Path

HOME = Path({home!r})


def wait(batches):
    for batch in batches:
        (HOME / f"inside-{{os.getpid()}}").touch()
        while (HOME / "hold").exists():
            time.sleep(0.05)
        yield batch


def shape(rows):
    return rows.mapInArrow(wait, "id long")
'''


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """One server for all of them."""
    require_namespaces()
    with connect_server(tmp_path_factory.mktemp("connect")) as started:
        yield started


@pytest.fixture
def home(server: ConnectServer, tmp_path: Path) -> Path:
    """A project of the server, with a first file."""
    return project_in(tmp_path, server)


def project_in(home: Path, server: ConnectServer, *sinks: str) -> Path:
    more = "".join(f"      - {sink}\n" for sink in sinks)
    (home / "floodmark.yaml").write_text(PROJECT.format(remote=server.remote, sinks=more))
    (home / "steps.py").write_text(STEPS.format(home=str(home)))
    (home / "in").mkdir()
    deliver(home, range(200))
    return home


def deliver(home: Path, ids: range) -> None:
    arriving = home / f".{ids.start}"
    arriving.write_text("".join(f'{{"id": {number}}}\n' for number in ids))
    arriving.rename(home / "in" / f"{ids.start:06d}.jsonl")


def start(server: ConnectServer, home: Path, *words: str) -> subprocess.Popen[str]:
    with (home / "run.log").open("w") as log:
        return subprocess.Popen(
            [str(server.client), "-m", "floodmark", *words],
            cwd=home,
            env=server.environment(),
            stdout=log,
            stderr=log,
            text=True,
            start_new_session=True,
        )


def run(server: ConnectServer, home: Path, *words: str) -> tuple[int, str]:
    code = start(server, home, *words).wait(200)
    return code, (home / "run.log").read_text()


def ids_in_lake(home: Path) -> list[int]:
    found = QueryBuilder().register("t", DeltaTable(str(home / "lake"))).execute("select id from t order by id")
    return [each.as_py() for each in found.read_all().column(0)]


def ids_in_files(home: Path) -> list[int]:
    parts = (home / "out").glob("batch=*/part-*")
    return sorted(json.loads(line)["id"] for part in parts for line in part.read_text().splitlines())


def wait_for_rows(home: Path, rows: int, seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not ((home / "lake").exists() and len(ids_in_files(home)) >= rows):
        time.sleep(0.3)


def test_batches_go_through_a_server_once(
    server: ConnectServer, tmp_path: Path, kafka: Broker, topic: Callable[..., str], database: str, prove: Prove
) -> None:
    """This package and the user's modules go along; a second run has nothing to do, a third only what is new."""
    name = topic(partitions=3)
    table = f'{{type: postgres, url: "{database}", table: orders}}'
    messages = f'{{type: kafka, bootstrap: "{kafka.bootstrap}", topic: {name}, key: id}}'
    home = project_in(tmp_path, server, table, messages)
    first, again = run(server, home, "run"), run(server, home, "run")
    deliver(home, range(200, 300))
    second = run(server, home, "run")
    assert [first[0], again[0], second[0]] == [0, 0, 0], first[1] + second[1]
    assert ids_in_lake(home) == ids_in_files(home) == list(range(300))
    assert ids_in_table(database) == ids_in_topic(kafka.bootstrap, name) == list(range(300))
    prove("Spark Connect: a client without a JVM", "", "every row once in Delta, files, PostgreSQL and Kafka")


@pytest.mark.parametrize("place", ["shared", "hidden"])
def test_every_record_is_healed_once_through_a_server(
    server: ConnectServer, tmp_path: Path, kafka: Broker, topic: Callable[..., str], place: str, prove: Prove
) -> None:
    """With a folder that the server sees, and with one that only the client has: then outcomes come back."""
    calls, home = tmp_path / "calls", (server.hidden if place == "hidden" else tmp_path) / "stream"
    calls.mkdir()
    home.mkdir()
    client = (server.remote, str(server.client), server.environment(), place == "hidden")
    stream = HealedStream(*client, kafka, topic(partitions=2), home / "state", calls)
    require_each_healed_once(stream)
    prove("Spark Connect: healing, with a shared folder and without", "", "every record once")


def wait_for_tasks(home: Path, number: int, client: subprocess.Popen[str]) -> None:
    """Until so many processes of the server are within the user's function."""
    until = time.monotonic() + 90
    while len(list(home.glob("inside-*"))) < number:
        assert client.poll() is None, (home / "run.log").read_text()
        assert time.monotonic() < until, (home / "run.log").read_text()
        time.sleep(0.1)


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_what_a_killed_client_asked_for_has_ended_before_the_next_run_reads(
    server: ConnectServer, tmp_path: Path, mode: str, prove: Prove
) -> None:
    """The server would go on with it, and the user's function run for both; a merge is of a session of its own.

    Between them, a run takes the job over and dies before it has a session.
    """
    home = project_in(tmp_path, server)
    project = (home / "floodmark.yaml").read_text().replace("name: lake,", f"name: lake, mode: {mode}, key: id,")
    (home / "floodmark.yaml").write_text(project.partition("      - {type: files")[0])
    assert run(server, home, "run")[0] == 0
    for seen in home.glob("inside-*"):
        seen.unlink()
    deliver(home, range(200, 300))
    (home / "hold").touch()
    first = start(server, home, "run")
    wait_for_tasks(home, 1, first)
    [worker] = workers_within(home)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    take_over_and_die(server, home)
    assert Path(f"/proc/{worker}").exists()
    second = start(server, home, "run")
    wait_for_tasks(home, 2, second)
    assert not Path(f"/proc/{worker}").exists(), "both work at the same time"
    (home / "hold").unlink()
    assert second.wait(200) == 0, (home / "run.log").read_text()
    assert "interrupted what a dead client had asked for" in (home / "run.log").read_text()
    time.sleep(3)  # what the server may still do for the first
    assert ids_in_lake(home) == list(range(300))
    prove("Spark Connect: the client is killed within a task", "", "its work is ended first; every row is there once")


def workers_within(home: Path) -> set[int]:
    return {int(each.name.partition("-")[2]) for each in home.glob("inside-*")}


def take_over_and_die(server: ConnectServer, home: Path) -> None:
    """A run that is killed as soon as it has the lease."""
    script = (
        "import os, signal\n"
        "from floodmark.stores import SqliteMarkStore\n"
        "from floodmark.stores.lease import hold\n"
        "with hold(SqliteMarkStore('marks.db'), 'orders'):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([str(server.client), "-c", script], cwd=home, env=server.environment(), check=False)
    assert ended.returncode == -signal.SIGKILL


def test_a_loop_outlives_the_session_that_the_server_forgot(server: ConnectServer, home: Path, prove: Prove) -> None:
    """Nothing came for longer than a session lasts there: the loop begins another one, and goes on."""
    loop = start(server, home, "run", "--loop")
    try:
        wait_for_rows(home, 200)
        time.sleep(SESSION_SECONDS + 10)
        deliver(home, range(200, 300))
        wait_for_rows(home, 300)
        loop.send_signal(signal.SIGTERM)
        loop.wait(60)
    finally:
        loop.kill()
        loop.wait()
    assert ids_in_lake(home) == ids_in_files(home) == list(range(300)), (home / "run.log").read_text()
    prove("Spark Connect: the server forgets an idle session", "", "the loop goes on with another one")


def test_a_server_that_is_not_there_is_said_at_once(server: ConnectServer, home: Path, prove: Prove) -> None:
    """The client itself would try for ten minutes."""
    project = (home / "floodmark.yaml").read_text()
    (home / "floodmark.yaml").write_text(project.replace(server.remote, "sc://127.0.0.1:9"))
    begun = time.monotonic()
    code, output = run(server, home, "run")
    assert code == 1
    assert "cannot be reached" in output
    assert time.monotonic() - begun < 30
    message = next(line for line in output.splitlines() if "cannot be reached" in line)
    prove("Spark Connect: nobody answers", message, "not a row")


def test_a_disk_that_the_server_does_not_see_is_refused(server: ConnectServer, prove: Prove) -> None:
    """Before a row is read: files and tables are the server's to read and write."""
    home = server.hidden / "project"
    home.mkdir()
    code, output = run(server, project_in(home, server), "run")
    assert code == 1, output
    assert "does not see" in output
    assert not list(home.glob("out/batch=*"))
    assert not list(home.glob("inside-*"))
    message = next(line for line in output.splitlines() if "does not see" in line)
    prove("Spark Connect: a path of the client's that the server does not see", message, "not a row")

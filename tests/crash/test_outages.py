"""A loop under load whose broker and database go away and come back: nothing lost, nothing twice, no hand needed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.crash.relaying import execute, feed, ids_in_topic, relay_from

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.testing.servers import Broker, Server
    from tests.crash.relay import Relay

PROJECT = """
store: "{database}"
spark: {{master: "local[2]", spark.driver.memory: 1g}}
jobs:
  - name: relay
    source: {{type: postgres, url: "{database}", table: public.src, cursor: id}}
    sinks:
      - {{type: kafka, bootstrap: "{bootstrap}", topic: {topic_out}, key: id}}
      - {{type: postgres, url: "{database}", table: public.mart}}
    every: 500ms
    retries: {{attempts: 5, backoff: 500ms}}
"""


def loop_over(relay: Relay, home: Path) -> subprocess.Popen[bytes]:
    (home / "floodmark.yaml").write_text(PROJECT.format(**vars(relay)))
    command = [sys.executable, "-m", "floodmark.cli", "run", "--loop"]
    with (home / "loop.log").open("wb") as log:
        return subprocess.Popen(command, cwd=home, stdout=log, stderr=log, start_new_session=True)


def wait_for_rows(relay: Relay, at_least: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            [(count,)] = execute(relay, "select count(*) from public.mart")
        except (psycopg.OperationalError, psycopg.errors.UndefinedTable):  # away, or before the first batch
            count = 0
        if int(str(count)) >= at_least:
            return
        time.sleep(0.3)
    pytest.fail(f"only {count} of {at_least} rows arrived")


@pytest.mark.crash
def test_a_broker_and_a_database_that_go_away_are_waited_for(tmp_path: Path, kafka: Broker, postgres: Server) -> None:
    """The broker is stopped and started, then PostgreSQL (source, sink and marks at once) is killed and started."""
    relay = relay_from("postgres", tmp_path, kafka, postgres)
    done, written = threading.Event(), [0]

    def write_on() -> None:
        while not done.wait(0.2):
            try:
                with suppress(psycopg.errors.UniqueViolation):  # committed when the server went, and we did not hear it
                    feed(relay, range(written[0], written[0] + 20))
            except psycopg.OperationalError:  # the server is away
                continue
            written[0] += 20

    writer = threading.Thread(target=write_on)
    loop = loop_over(relay, tmp_path)
    try:
        writer.start()
        wait_for_rows(relay, 40, seconds=90)
        kafka.stop()
        time.sleep(6)
        kafka.start()
        wait_for_rows(relay, written[0], seconds=90)
        postgres.kill()
        time.sleep(4)
        postgres.start()
        wait_for_rows(relay, written[0] + 40, seconds=90)
        done.set()
        writer.join()
        wait_for_rows(relay, written[0], seconds=60)
        loop.send_signal(signal.SIGTERM)
        assert loop.wait(60) == 0, (tmp_path / "loop.log").read_text()[-3000:]
    finally:
        done.set()
        if loop.poll() is None:
            os.killpg(loop.pid, signal.SIGKILL)
    rows = sorted(int(str(row[0])) for row in execute(relay, "select id from public.mart"))
    assert (rows, ids_in_topic(relay)) == (list(range(written[0])), list(range(written[0])))

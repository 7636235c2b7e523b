"""Kafka and PostgreSQL on both sides: a run killed anywhere is finished by the next, every row once in every sink."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.crash.relay import SINKS
from tests.crash.relaying import execute, feed, held, relay_from, start

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from floodmark.testing.servers import Broker, Server

PLACES = range(1, len(SINKS) + 1)
POINTS = (
    *("after_intent", "after_read", "before_commit", "after_commit"),
    *(f"{when}_sink:{place}" for place in PLACES for when in ("during", "after")),
)
KILLS, ROWS = 100, 40


def killed_and_finished(
    spark: SparkSession, home: Path, kafka: Broker, postgres: Server, source: str, point: str
) -> tuple[int, dict[str, list[int]]]:
    relay = relay_from(source, home, kafka, postgres)
    feed(relay, range(100))
    relay.job().run(spark, relay.store())
    feed(relay, range(100, 200))
    died = start(relay, FLOODMARK_CRASH_AT=point).wait(120)
    feed(relay, range(200, 300))
    relay.job().run(spark, relay.store())
    return died, held(spark, relay)


EVERYTHING_ONCE = (-signal.SIGKILL, {sink: list(range(300)) for sink in SINKS})


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("source", ["files", "kafka", "postgres"])
def test_a_kill_at_any_point_leaves_every_row_once_in_every_sink(
    spark: SparkSession, tmp_path: Path, kafka: Broker, postgres: Server, source: str, point: str
) -> None:
    """Every source, every point, every sink."""
    assert killed_and_finished(spark, tmp_path, kafka, postgres, source, point) == EVERYTHING_ONCE


@pytest.mark.crash
@pytest.mark.parametrize("point", [point for point in POINTS if not point.endswith(("2", "3", "4"))])
@pytest.mark.parametrize("only", ["events", "mart"])
def test_a_kill_in_a_small_batch_of_a_table_leaves_every_row_once_in_its_only_sink(
    spark: SparkSession, tmp_path: Path, kafka: Broker, postgres: Server, only: str, point: str
) -> None:
    """It is all or nothing, so it is not frozen: rows that are not out yet may be others, those that are stay."""
    relay = replace(relay_from("postgres", tmp_path, kafka, postgres), only=only)
    relay.save()
    feed(relay, range(10))
    relay.job().run(spark, relay.store())
    feed(relay, range(10, 20))
    died = start(relay, FLOODMARK_CRASH_AT=point).wait(120)
    execute(relay, "update public.src set v = 'changed' where id >= 10")
    feed(relay, range(20, 30))
    relay.job().run(spark, relay.store())
    relay.job().run(spark, relay.store())
    assert not (tmp_path / "spool").exists()
    assert (died, held(spark, relay)[only]) == (-signal.SIGKILL, list(range(30)))


@pytest.mark.crash
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("source", ["kafka", "postgres"])
def test_many_random_kills_while_another_process_writes(
    spark: SparkSession, tmp_path: Path, kafka: Broker, postgres: Server, source: str
) -> None:
    """kill -9 of the whole process group, whatever it is doing; the writer never stops."""
    draw = random.Random(int(os.environ.get("FLOODMARK_SEED", "20261115")))
    relay = relay_from(source, tmp_path, kafka, postgres)
    done, written = threading.Event(), [0]

    def write_on() -> None:
        while not done.wait(0.5):
            feed(relay, range(written[0], written[0] + ROWS))
            written[0] += ROWS

    writer = threading.Thread(target=write_on)
    writer.start()
    for _ in range(KILLS // 2):
        process = start(relay)
        time.sleep(draw.uniform(4.0, 16.0))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
    done.set()
    writer.join()
    relay.job().run(spark, relay.store())
    assert held(spark, relay) == {sink: list(range(written[0])) for sink in SINKS}

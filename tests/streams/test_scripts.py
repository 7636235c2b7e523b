"""The seed's example as its user runs it: a plain script, started by python, that ends by itself when it is stuck."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from ast import literal_eval
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.docs.pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.testing.servers import Broker

SCRIPT = ROOT / "examples" / "seed_001" / "simple_plus_element.py"


@pytest.mark.spark
def test_the_seeds_first_example_heals_what_succeeds_and_exits_1_at_the_record_that_fails(
    kafka: Broker, tmp_path: Path
) -> None:
    """Only the 13 fails: the others of the batch finish, and the offset is that of the failed record."""
    kafka.create_topic("testing", 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in (11, 12, 13, 0):
        producer.produce("testing", json.dumps({"no": number}).encode())
    producer.flush()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), kafka.bootstrap],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    results = [literal_eval(line) for line in done.stdout.splitlines() if line.startswith("{'data'")]
    assert [(each["data"], each["offset"], each["success"]) for each in results] == [
        (12, 0, True),
        (13, 1, True),
        (1, 3, False),
    ]
    assert done.returncode == 1
    assert "Error: stream 'simple-plus-element' is stuck at testing/0, offset 2" in done.stderr
    assert committed(kafka) == 2


def committed(kafka: Broker) -> int:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "simple-plus-element"})
    try:
        return int(consumer.committed([TopicPartition("testing", 0)], timeout=20)[0].offset)
    finally:
        consumer.close()

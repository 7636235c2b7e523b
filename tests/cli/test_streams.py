"""A stream that a project names in Python: planned, run and watched like a job."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from floodmark.cli.invocation import Tools
from floodmark.testing.servers import Broker
from tests.cli.conftest import CommandResult
from tests.docs.running import SharedSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Floodmark = Callable[..., CommandResult]
MODULE = """\
from floodmark.streams import from_kafka, healing

source = from_kafka(
    [TOPIC], {"bootstrap.servers": SERVERS, "group.id": "billing", "auto.offset.reset": "earliest"}
)
source.map(lambda row: row).map(healing, stream=source).sink(lambda row: None)
"""


@pytest.mark.server
@pytest.mark.spark
def test_a_stream_of_a_module_is_planned_and_run_with_the_project(
    spark: SparkSession, floodmark: Floodmark, folder: Path, kafka: Broker, topic: Callable[..., str]
) -> None:
    """With the project's store and session; what it has read is nothing new, and health watches it."""
    name = topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    [producer.produce(name, str(number)) for number in range(3)]
    producer.flush()
    text = MODULE.replace("TOPIC", repr(name)).replace("SERVERS", repr(kafka.bootstrap))
    (folder / "billing_streams.py").write_text(text)
    (folder / "floodmark.yaml").write_text('jobs: {python: "billing_streams:source"}\n')
    tools = Tools(session=lambda _settings: SharedSession(lambda: spark))
    assert floodmark("plan", tools=tools).out == "billing: up to 3 messages in 1 partition\n"
    [run] = json.loads(floodmark("run", "billing", "--json", tools=tools).out)["runs"]
    assert (run["status"], run["rows_read"]) == ("done", 3)
    assert json.loads(floodmark("plan", "--json").out)["plans"][0]["has_work"] is False
    assert "billing" in floodmark("lineage").out
    assert json.loads(floodmark("marks", "show", "--json").out)["marks"][0]["job"] == "billing"


def test_commands_about_tables_leave_streams_out(floodmark: Floodmark, folder: Path) -> None:
    """A stream among jobs is no reason to refuse them all; named by itself, it is said to be one."""
    text = MODULE.replace("TOPIC", repr("orders")).replace("SERVERS", repr("nowhere:1"))
    (folder / "quiet_streams.py").write_text(text)
    own = "{name: a, source: {type: files, path: in}, sinks: [{type: delta, path: lake/a}]}"
    (folder / "floodmark.yaml").write_text(f'store: memory\njobs: [{{python: "quiet_streams:source"}}, {own}]\n')
    assert floodmark("quarantine", "list").out == "no row was ever put aside\n"
    assert "'billing' is a stream" in floodmark("quarantine", "show", "billing").err
    assert floodmark("rollback", "--to", "last-good", "--dry-run").err.startswith("Error: job 'a' has no")
    assert floodmark("lint").code == 0
    assert floodmark("health", "--quiet").code == 1

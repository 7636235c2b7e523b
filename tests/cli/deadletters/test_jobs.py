"""`floodmark deadletters` for a job: what it put aside is listed, replayed through it, and listed as dealt with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from floodmark.cli.invocation import Tools
from tests.docs.running import SharedSession
from tests.sources.kafka.topics import put

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from floodmark.testing.servers import Broker
    from tests.cli.conftest import CommandResult

    Topics = Callable[..., str]

pytestmark = pytest.mark.spark
PROJECT = """\
jobs:
  - name: orders
    source: {{type: kafka, bootstrap: "{broker}", topic: {topic}, value: {{format: json, schema: "id long, v {v}"}}}}
    transform: {{sql: "select id, cast(v as string) v from source"}}
    sinks: [{{type: delta, path: lake/orders}}]
    dead_letters: {{}}
"""


@pytest.mark.crash
def test_letters_are_named_tried_told_and_closed(
    floodmark: Callable[..., CommandResult], spark: SparkSession, kafka: Broker, topic: Topics, folder: Path
) -> None:
    """A dry run says how many; what fails again makes the exit code 1; what is discarded is not listed any more."""
    tools = Tools(session=lambda settings: SharedSession(lambda: spark))
    name, project = topic(), folder / "floodmark.yaml"
    put(kafka, name, '{"id": 1, "v": 5}', '{"id": 2, "v": "six"}', "no json", '{"id": 4, "v": "eight"}')
    project.write_text(PROJECT.format(broker=kafka.bootstrap, topic=name, v="long"))
    floodmark("run", tools=tools)
    letters = [f"1:{name}/0:{offset}" for offset in (1, 2, 3)]
    listed = json.loads(floodmark("deadletters", "list", "--json").out)["dead_letters"]
    assert [each["letter"] for each in listed] == letters
    asked = floodmark("deadletters", "replay", "orders", "--dry-run", tools=tools)
    assert asked.out == "would replay 3 dead letters of 'orders'\n"
    project.write_text(PROJECT.format(broker=kafka.bootstrap, topic=name, v="string"))
    said = floodmark("deadletters", "replay", "orders", *letters[:2], "--yes", tools=tools)
    assert (said.code, said.out.splitlines()) == (
        1,
        ["orders: 1 replayed, 1 failed again", f"{letters[1]}: the value is not a JSON object of this schema"],
    )
    rows = DeltaTable(str(folder / "lake" / "orders")).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["v"]) for row in rows) == [(1, "5"), (2, "six")]
    thrown = floodmark("deadletters", "discard", "orders", letters[1], "--yes", tools=tools)
    everything = json.loads(floodmark("deadletters", "list", "orders", "--all", "--json").out)["dead_letters"]
    assert thrown.out == "orders: 1 discarded\n"
    assert [(each["letter"], each["status"], each["attempts"]) for each in everything] == [
        (letters[0], "replayed", 2),
        (letters[1], "discarded", 2),
        (letters[2], "open", 1),
    ]

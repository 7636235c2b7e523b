"""`floodmark events prune` and `quarantine settle`, by the real commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from floodmark.cli.events import moment_of
from floodmark.cli.invocation import Tools
from tests.cli.conftest import CommandResult
from tests.docs.running import SharedSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = """\
jobs:
  - name: prices
    source: {type: files, path: in, schema: "k string, at timestamp, v string", settle: 0}
    sinks:
      - {type: delta, mode: scd2, path: prices, key: k, sequence: at, on_conflict: quarantine, keep_events: 400d}
"""
ROWS = """\
{"k": "x", "at": "2020-01-01T00:00:00Z", "v": "a"}
{"k": "x", "at": "2020-02-01T00:00:00Z", "v": "b"}
{"k": "y", "at": "2020-02-01T00:00:00Z", "v": "shop"}
{"k": "y", "at": "2020-02-01T00:00:00Z", "v": "erp"}
{"k": null, "at": "2020-02-01T00:00:00Z", "v": "a"}
"""
Command = Callable[..., CommandResult]


@pytest.fixture
def command(spark: SparkSession, folder: Path, floodmark: Callable[..., CommandResult]) -> Command:
    """The command line in a project whose first run has met a contradiction and a row without a key."""
    (folder / "floodmark.yaml").write_text(PROJECT)
    (folder / "in").mkdir()
    (folder / "in" / "1.jsonl").write_text(ROWS)
    tools = Tools(session=lambda settings: SharedSession(lambda: spark))
    return lambda *words: floodmark(*words, tools=tools)


@pytest.mark.spark
def test_what_a_history_refused_is_listed_decided_and_pruned(command: Command, folder: Path) -> None:
    """From the run that counts it to the log that gets shorter."""
    planned, done = command("plan"), command("run")
    assert "  delta: rows whose key is there already will be replaced" in planned.out.splitlines()
    assert "5 rows read, 3 quarantined, written: delta 2" in done.out
    listed = json.loads(command("quarantine", "list", "--json").out)["quarantine"]
    assert {tuple(group["reasons"]): group["rows"] for group in listed} == {
        ("another event of the same key and sequence says something else",): 2,
        ("key column k is NULL",): 1,
    }
    settled = command("quarantine", "settle", "prices", "--keep", "v = 'erp'")
    assert settled.out == "prices: 1 event of delta set aside\n"
    pruned = json.loads(command("events", "prune", "--yes", "--json").out)
    assert pruned == {"dropped": {"prices": {"delta": 1}}}
    values = DeltaTable(folder / "prices__events").to_pyarrow_table().column("v").to_pylist()
    assert sorted(values) == ["b", "erp", "shop"]
    refused = command("events", "prune", "--before", "2024-01-01T00:00:00Z", "--yes")
    assert (refused.code, "--before is a moment of one job's events" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("text", "moment"),
    [("2024-01-01T00:00:00Z", "2024-01-01 00:00:00+00:00"), ("20240101", "20240101"), ("-5", "-5")],
)
def test_a_moment_is_a_time_or_a_value_of_the_sequence(text: str, moment: str) -> None:
    """A number that looks like a date stays one."""
    assert str(moment_of(text)) == moment

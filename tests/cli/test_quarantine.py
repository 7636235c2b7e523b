"""`floodmark quarantine`: from a run that puts rows aside to their replay, by the real commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from floodmark.cli.invocation import Tools
from floodmark.cli.quarantine import shown_columns
from tests.cli.conftest import CommandResult
from tests.docs.running import SharedSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = """\
jobs:
  - name: orders
    source: {type: files, path: in, schema: "id long, amount decimal(10,2)", settle: 0}
    rules:
      - {name: positive, check: "amount > 0", action: quarantine}
      - {name: small, range: {column: amount, max: 50}, action: warn}
    sinks:
      - {type: delta, path: lake/orders}
"""
ROWS = '{"id": 1, "amount": 1.50}\n{"id": 2, "amount": -2.50}\n{"id": 3, "amount": 0}\n{"id": 4, "amount": 60}\n'
Command = Callable[..., CommandResult]


@pytest.fixture
def command(spark: SparkSession, folder: Path, floodmark: Callable[..., CommandResult]) -> Command:
    """The command line in a project whose first run has put two of four rows aside."""
    (folder / "floodmark.yaml").write_text(PROJECT)
    (folder / "in").mkdir()
    (folder / "in" / "1.jsonl").write_text(ROWS)
    tools = Tools(session=lambda settings: SharedSession(lambda: spark))
    return lambda *words: floodmark(*words, tools=tools)


def lake(folder: Path) -> list[tuple[int, float]]:
    rows = DeltaTable(str(folder / "lake" / "orders")).to_pyarrow_table().to_pylist()
    return sorted((row["id"], float(row["amount"])) for row in rows)


def test_rows_that_were_put_aside_are_listed_shown_repaired_and_replayed(command: Command, folder: Path) -> None:
    """Plan names the rules, run counts them, and replay writes what is good by then."""
    planned, done = command("plan"), command("run")
    assert "  rule positive (quarantine): amount > 0" in planned.out.splitlines()
    assert "4 rows read, 2 quarantined, written: delta 2" in done.out
    listed, shown = command("quarantine", "list"), command("quarantine", "show", "orders", "--json")
    assert listed.out.splitlines()[1].split() == ["orders", "1", "positive", "open", "2"]
    assert sorted(each["row"] for each in json.loads(shown.out)["rows"]) == [
        '{"id":2,"amount":-2.50}',
        '{"id":3,"amount":0.00}',
    ]
    asked = command("quarantine", "replay", "orders", "--dry-run")
    replayed = command("quarantine", "replay", "orders", "--set", "amount=abs(amount)", "--yes")
    assert (asked.out, "2 rows, written: delta 1, 1 still break a rule" in replayed.out) == (
        "orders: would replay 2 rows\n",
        True,
    )
    discarded = command("quarantine", "discard", "orders", "--rule", "positive", "--yes")
    assert (discarded.out, lake(folder)) == ("orders: 1 row discarded\n", [(1, 1.5), (2, 2.5), (4, 60.0)])


def test_a_row_is_shown_with_one_column_of_each_name(command: Command) -> None:
    """The table's own `id` is not taken for the one that `replay --id` takes."""
    command("run")
    header, first, second = command("quarantine", "show", "orders").out.splitlines()
    assert header.split("  ")[0].strip() == "row"
    assert header.split() == ["row", "batch", "broken", "rules", "id", "amount"]
    assert {first.split()[-1], second.split()[-1]} == {"-2.50", "0.00"}, "a decimal keeps its digits"
    asked = command("quarantine", "replay", "orders", "--id", first.split()[0], "--dry-run")
    assert asked.out == "orders: would replay 1 row\n"


def test_columns_that_are_named_as_ours_are_told_apart() -> None:
    """A person sees which one is whose."""
    assert shown_columns(["id", "batch", "row"]) == ["id", "batch (column)", "row (column)"]


def test_a_rule_that_fails_the_batch_is_exit_1_in_two_lines_and_kept_for_the_history(
    command: Command, folder: Path
) -> None:
    """With the rule, the count and the rows; and every rule's result is in `runs`."""
    (folder / "floodmark.yaml").write_text(PROJECT.replace("action: warn", "action: fail"))
    said = command("run", "--json")
    [run] = json.loads(said.out)["runs"]
    [kept] = json.loads(command("runs", "--json").out)["runs"]
    assert (said.code, run["status"], run["rows_written"]) == (1, "failed", {})
    assert said.err.splitlines()[0] == (
        "Error: rule 'small' of job 'orders' fails the batch: 1 of 4 rows break it, such as "
        '{"id":4,"amount":60.00}. Nothing was written.'
    )
    assert [(rule["name"], rule["failed"]) for rule in kept["rules"]] == [("positive", 2), ("small", 1)]
    assert not (folder / "lake").exists()


def test_an_empty_quarantine_and_a_change_that_is_none_say_so(command: Command) -> None:
    """Without a table, Spark is not asked."""
    assert command("quarantine", "list").out == "no row was ever put aside\n"
    assert command("quarantine", "show", "orders").out == "orders: no open row\n"
    refused = command("quarantine", "replay", "orders", "--set", "amount", "--yes")
    assert (refused.code, refused.err.splitlines()[0]) == (2, "Error: --set amount sets nothing.")

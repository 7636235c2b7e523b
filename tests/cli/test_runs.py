"""`floodmark runs`: also of what failed."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from floodmark.cli.runs import print_runs
from floodmark.lineage.run_events import run_uuid
from floodmark.stores.record import Receipt
from tests.cli.conftest import CommandResult

Floodmark = Callable[..., CommandResult]
PROJECT = (
    "jobs:\n  - {name: orders, source: {type: python, object: 'failing_source:Failing'}, sinks: [{type: console}]}\n"
)
SOURCE = """\
import time
from floodmark.errors import SourceUnreadable

class Failing:
    name = "failing"
    def fingerprint(self, session):
        return "failing"
    def look(self, mark, request, session):
        time.sleep(0.2)
        raise {error}
"""


@pytest.fixture
def failing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A project whose one job fails after a moment, with this error."""

    def write(error: str) -> None:
        (folder / "floodmark.yaml").write_text(PROJECT)
        (folder / "failing_source.py").write_text(SOURCE.format(error=error))
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.delitem(__import__("sys").modules, "failing_source", raising=False)

    return write


def listed(floodmark: Floodmark) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = json.loads(floodmark("runs", "--json").out)["runs"]
    return runs


@pytest.mark.parametrize("error", ["SourceUnreadable('a table', reason='it is gone')", "ZeroDivisionError('odd')"])
def test_a_run_that_failed_is_listed_with_its_id_and_how_long_it_took(
    failing: Callable[[str], None], floodmark: Floodmark, error: str
) -> None:
    """Whatever it failed of: what nobody foresaw too."""
    failing(error)
    [shown] = json.loads(floodmark("run", "--json").out)["runs"]
    [kept] = listed(floodmark)
    assert (kept["status"], kept["error"]) == ("failed", shown["error"])
    assert len(kept["run"]) == 12
    assert kept["seconds"] >= 0.2


def test_two_failures_are_two_runs(failing: Callable[[str], None], floodmark: Floodmark) -> None:
    """Each has an id of its own."""
    failing("SourceUnreadable('a table', reason='it is gone')")
    floodmark("run")
    floodmark("run")
    assert len({run["run"] for run in listed(floodmark)}) == 2


def test_the_log_of_a_failed_run_is_kept_under_the_id_of_its_receipt(
    failing: Callable[[str], None], floodmark: Floodmark
) -> None:
    """With the place in the user's file where it was raised, which the receipt does not tell."""
    failing("ZeroDivisionError('odd')")
    floodmark("run")
    [kept] = listed(floodmark)
    shown = floodmark("runs", "--log", kept["run"][:6])
    assert (shown.code, "the run failed error=odd" in shown.out, "failing_source.py" in shown.out) == (0, True, True)
    document = json.loads(floodmark("runs", "--log", "last", "--json").out)
    assert {line["run"] for line in document["lines"]} == {kept["run"]}


def test_a_run_without_a_log_is_an_error_that_names_those_that_have_one(floodmark: Floodmark) -> None:
    """And exits as any wrong use does."""
    floodmark("init", ".")
    shown = floodmark("runs", "--log", "zzz")
    assert (shown.code, "there is no run 'zzz'" in shown.err) == (2, True)


def test_a_project_that_asks_for_it_tells_openlineage_of_its_runs(
    failing: Callable[[str], None], floodmark: Floodmark, folder: Path
) -> None:
    """Where the file says, under the id that the receipt has."""
    failing("SourceUnreadable('a table', reason='it is gone')")
    file = folder / "floodmark.yaml"
    file.write_text(f"openlineage: {{file: lineage/events.jsonl}}\n{file.read_text()}")
    floodmark("run")
    events = [json.loads(line) for line in (folder / "lineage" / "events.jsonl").read_text().splitlines()]
    [kept] = listed(floodmark)
    assert [event["eventType"] for event in events] == ["START", "FAIL"]
    assert {event["run"]["runId"] for event in events} == {run_uuid("default", "orders", kept["run"])}


def test_a_key_for_openlineage_does_not_go_in_the_clear(floodmark: Floodmark, folder: Path) -> None:
    """As no login of a mail server does."""
    (folder / "floodmark.yaml").write_text("openlineage: {url: 'http://collector/api', api_key: k}\n")
    linted = floodmark("lint")
    assert (linted.code, "in the clear" in linted.err + linted.out) == (2, True)


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        return True


NOW = datetime(2026, 11, 18, 16, 5, tzinfo=timezone.utc)
RECEIPTS = [
    Receipt(
        *("last_orders", "0123456789ab", "done", NOW, 12.3, 1, 1, 1234567),
        {"lake": 1234567, "mart": 1234567},
        mark_after=["/in/a.jsonl", "/in/b.jsonl"],
    ),
    Receipt("orders", "a123456789ab", "nothing_new", NOW, 0.3, mark_after="2025-11-18T10:00:00+00:00"),
    Receipt("orders", "b123456789ab", "failed", NOW, 100.3, 1, 1, 7654321, {"lake": 7654321, "mart": 20}),
]


def printed_runs(monkeypatch: pytest.MonkeyPatch, **environment: str) -> list[str]:
    """The lines on a terminal of 80 columns."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    for name, value in {"COLUMNS": "80", "TERM": "xterm", **environment}.items():
        monkeypatch.setenv(name, value)
    print_runs(RECEIPTS, NOW)
    return [line.rstrip() for line in terminal.getvalue().splitlines()]


def test_runs_fit_into_80_columns_with_whole_ids_and_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """People paste the ids and compare the numbers; counts that differ between sinks stand below each other."""
    assert [re.sub(r"\x1b\[\d+m", "", line).rstrip() for line in printed_runs(monkeypatch, NO_COLOR="1")] == [
        "run          started     job         status    read    written  mark       s",
        "0123456789ab 11-18 16:05 last_orders done      1234567 1234567  2 files    12.3",
        "a123456789ab 11-18 16:05 orders      nothing   0                2025-11-18 0.3",
        "                                     new",
        "b123456789ab 11-18 16:05 orders      failed    7654321 7654321, none       100.3",
        "                                                       20",
    ]


def test_the_status_has_its_colour_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in what `run` prints."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    lines = "\n".join(printed_runs(monkeypatch))
    assert ("\x1b[32mdone" in lines, "\x1b[31mfailed" in lines) == (True, True)

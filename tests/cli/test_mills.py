"""Mills of a project: run, planned and watched by the same commands as its jobs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark.cli.invocation import LazySession, Tools
from tests.cli.conftest import CommandResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = """
store: sqlite:///marks.db
mills:
  - {name: loud, python: "noise:loud"}
"""
MODULE = """
import json
from dataclasses import dataclass
from pathlib import Path

from floodmark.mill import JsonFileMessageBroker, WaterMill


@dataclass
class Sound:
    second: int
    level: float


@dataclass
class Loud:
    second: int


def only_loud(sound: Sound) -> Loud | None:
    return Loud(sound.second) if sound.level > 0.5 else None


def loud():
    return WaterMill(JsonFileMessageBroker({Sound: "sounds.json", Loud: "loud.json"}), only_loud)


not_a_mill = 7
"""


@pytest.fixture
def project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one mill, and its module beside it."""
    monkeypatch.delitem(sys.modules, "noise", raising=False)
    (folder / "floodmark.yaml").write_text(PROJECT)
    (folder / "noise.py").write_text(MODULE)
    (folder / "sounds.json").write_text(json.dumps([{"second": n, "level": n / 10} for n in range(10)]))
    return folder


@pytest.fixture
def tools(spark: SparkSession) -> Tools:
    """The suite's session."""
    return Tools(session=lambda _: LazySession(lambda: spark, _is_borrowed=True))


@pytest.mark.spark
def test_a_mill_runs_like_a_job_and_its_marks_are_in_the_projects_store(
    project: Path, tools: Tools, floodmark: Callable[..., CommandResult]
) -> None:
    """By its name in the file; a second run finds nothing new, and a full refresh reads everything again."""
    first = floodmark("run", "--select", "loud", "--json", tools=tools)
    again = floodmark("run", "--json", tools=tools)
    assert first.code == 0, first.err
    (run,), (nothing,) = json.loads(first.out)["runs"], json.loads(again.out)["runs"]
    assert (run["job"], run["status"], run["rows_read"], run["rows_written"]) == ("loud", "done", 10, {"Loud": 4})
    assert nothing["status"] == "nothing_new"
    assert json.loads((project / "loud.json").read_text()) == [{"second": n} for n in range(6, 10)]
    marks = json.loads(floodmark("marks", "show", "--json").out)["marks"]
    assert [(mark["job"], mark["value"]) for mark in marks] == [("loud", 10)]
    refreshed = floodmark("run", "--full-refresh", "--json", tools=tools)
    assert json.loads(refreshed.out)["runs"][0]["rows_read"] == 10


@pytest.mark.spark
def test_a_mill_freezes_its_turns_where_the_project_says(
    project: Path, tools: Tools, floodmark: Callable[..., CommandResult]
) -> None:
    """On a cluster that is a place which all machines see, and marks are often elsewhere."""
    (project / "floodmark.yaml").write_text(PROJECT.replace('noise:loud"', 'noise:loud", spool: shared/frozen'))
    result = floodmark("run", tools=tools)
    assert result.code == 0, result.err
    assert (project / "shared" / "frozen" / "loud").is_dir()
    assert not (project / "spool").exists()


@pytest.mark.spark
def test_a_plan_tells_what_a_mill_would_read(
    project: Path, tools: Tools, floodmark: Callable[..., CommandResult]
) -> None:
    """Marks by stream, and how many elements."""
    (plan,) = json.loads(floodmark("plan", "--json", tools=tools).out)["plans"]
    assert (plan["job"], plan["mark_after"], plan["expected_rows"]) == ("loud", {"Sound": 10}, 10)
    assert not (project / "loud.json").exists()


def test_health_watches_a_mill(project: Path, floodmark: Callable[..., CommandResult]) -> None:
    """One that never ran has no mark, which is said of it as of a job."""
    report = json.loads(floodmark("health", "--json").out)
    assert report["checks"]["processing_offsets"]["subjects"]["loud"]["message"] == "it has never run"


def test_a_mill_takes_no_start(project: Path, floodmark: Callable[..., CommandResult]) -> None:
    """It has a mark for each of its streams."""
    result = floodmark("run", "--from", "5", "--select", "loud")
    assert result.code == 2
    assert "mill 'loud' takes no --from" in result.err


def test_what_is_no_mill_is_refused_by_name(project: Path, floodmark: Callable[..., CommandResult]) -> None:
    """With what it is instead."""
    (project / "floodmark.yaml").write_text(PROJECT.replace("noise:loud", "noise:not_a_mill"))
    result = floodmark("run")
    assert result.code == 2
    assert "mill 'loud': noise:not_a_mill is int, no WaterMill" in result.err


def test_a_mill_and_a_job_have_names_of_their_own(project: Path, floodmark: Callable[..., CommandResult]) -> None:
    """Both keep their marks under them."""
    (project / "floodmark.yaml").write_text(PROJECT + '  - {name: loud, python: "noise:loud"}\n')
    result = floodmark("lint")
    assert result.code == 2
    assert "called 'loud'" in result.out + result.err

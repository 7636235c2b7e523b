"""`floodmark workflow`: the seed's own file, run and checked by the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import CommandResult

Floodmark = Callable[..., CommandResult]
SEED = """{
  "tasks": [
    {
      "task_key": "bronze_ingest",
      "description": "Ingest data from system tables to Bronze layer using HWM approach"
    },
    {
      "task_key": "silver_build",
      "description": "Build Silver layer from Bronze using HWM approach",
      "depends_on": ["bronze_ingest"]
    },
    {
      "task_key": "gold_build",
      "description": "Build Gold layer from Silver using HWM approach",
      "depends_on": ["silver_build"]
    },
    {
      "task_key": "performance_optimization",
      "description": "Apply performance optimizations to all layers",
      "depends_on": ["gold_build"]
    },
    {
      "task_key": "health_check",
      "description": "Perform health checks and send summary report",
      "depends_on": ["performance_optimization"]
    }
  ]
}
"""
ORDER = ["bronze_ingest", "silver_build", "gold_build", "performance_optimization", "health_check"]
TASKS = """from pathlib import Path


def step(name):
    def run(store):
        with Path("ran.txt").open("a") as file:
            file.write(name + "\\n")
        if Path(f"{name}.broken").exists():
            raise RuntimeError(f"{name} broke")
    return run


""" + "\n".join(f'{name} = step("{name}")' for name in ORDER)


@pytest.fixture
def seed(folder: Path) -> Path:
    """A project whose tasks are functions, and the seed's JSON, verbatim."""
    names = "".join(f"  {name}: layers:{name}\n" for name in ORDER)
    (folder / "floodmark.yaml").write_text(f"store: sqlite:///marks.db\ntasks:\n{names}")
    (folder / "layers.py").write_text(TASKS)
    (folder / "daily.json").write_text(SEED)
    return folder


@pytest.fixture(autouse=True)
def forget_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has a module `layers` of its own."""
    import sys

    monkeypatch.delitem(sys.modules, "layers", raising=False)


def test_the_seeds_file_runs_in_its_order(seed: Path, floodmark: Floodmark) -> None:
    """Five tasks, one after the other."""
    said = floodmark("workflow", "run", "daily.json", "--json")
    assert (said.code, said.err) == (0, "")
    document = json.loads(said.out)
    assert [(task["task"], task["state"]) for task in document["tasks"]] == [(name, "SUCCESS") for name in ORDER]
    assert (seed / "ran.txt").read_text().split() == ORDER


def test_a_run_that_partly_failed_exits_3_and_the_next_takes_the_rest(seed: Path, floodmark: Floodmark) -> None:
    """The failure is told in two lines, its downstream is skipped, and nothing that was done is done again."""
    (seed / "gold_build.broken").touch()
    said = floodmark("workflow", "run", "daily.json")
    assert said.code == 3
    assert (
        said.err.splitlines()[0]
        == "Error: task 'gold_build' FAILED: RuntimeError: gold_build broke (layers.py, line 9, in run)"
    )
    assert said.out.splitlines()[-1].startswith("daily: 2 SUCCESS, 1 FAILED, 2 SKIPPED")
    (seed / "gold_build.broken").unlink()
    (seed / "ran.txt").unlink()
    assert floodmark("workflow", "run", "daily.json").code == 0
    assert (seed / "ran.txt").read_text().split() == ORDER[2:]


def test_one_task_and_what_depends_on_it(seed: Path, floodmark: Floodmark) -> None:
    """The rest is left alone."""
    assert floodmark("workflow", "run", "daily.json", "--task", "gold_build", "--with-downstream").code == 0
    assert (seed / "ran.txt").read_text().split() == ORDER[2:]


def test_validate_shows_the_order_and_runs_nothing(seed: Path, floodmark: Floodmark) -> None:
    """With the code of every task looked up."""
    said = floodmark("workflow", "validate", "daily.json", "--json")
    assert json.loads(said.out) == {"workflow": "daily", "order": ORDER, "next": None, "unused": []}
    assert not (seed / "ran.txt").exists()


def test_validate_names_a_task_without_code(seed: Path, floodmark: Floodmark) -> None:
    """Exit 2, and the two lines."""
    (seed / "floodmark.yaml").write_text("store: memory\n")
    said = floodmark("workflow", "validate", "daily.json")
    assert said.code == 2
    assert said.err.startswith("Error: task 'bronze_ingest' has no code")


@pytest.mark.usefixtures("seed")
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("run", "gone.json"), "no workflow file gone.json"),
        (("run", "daily.json", "--task", "platinum"), "no task 'platinum'"),
        (("run", "daily.json", "--with-upstream"), "need a task"),
        (("run", "daily.json", "--loop"), "has no schedule"),
        (("run", "daily.json", "--loop", "--task", "gold_build"), "runs the whole workflow"),
    ],
)
def test_what_cannot_be_meant_is_refused(floodmark: Floodmark, arguments: tuple[str, ...], named: str) -> None:
    """Exit 2, with the reason."""
    said = floodmark("workflow", *arguments)
    assert (said.code, named in said.err) == (2, True)

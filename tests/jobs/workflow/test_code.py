"""What tasks run: notebooks, scripts, entry points, functions, jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.errors import ConfigError, TaskFailed
from floodmark.jobs.running import Outcome
from floodmark.jobs.workflow import Library, Surroundings
from floodmark.jobs.workflow.document import Task
from floodmark.stores.memory import MemoryMarkStore
from tests.jobs.fakes import done

AROUND = Surroundings(lambda: "the session", MemoryMarkStore())  # type: ignore[arg-type,return-value]
NOTEBOOK = """# Databricks notebook source
def main(spark=None, store=None, day="today"):
    return f"{spark}, {store.namespace}, {day}"

# COMMAND ----------
if __name__ == "__main__":
    raise SystemExit("a notebook is imported, not run")
"""


def run(library: Library, **task: object) -> str | None:
    return library.action(Task.model_validate({"task_key": "t", **task}))(AROUND)


def test_a_notebook_is_called_with_what_its_main_names(tmp_path: Path) -> None:
    """Its path is the workspace's, of which the end is found beside the project."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "silver.py").write_text(NOTEBOOK)
    path = "/Repos/team/platform/notebooks/silver"
    said = run(Library((tmp_path,)), notebook_task={"notebook_path": path, "base_parameters": {"day": "monday"}})
    assert said == "the session, default, monday"


def test_a_notebook_without_a_main_is_run_with_a_session(tmp_path: Path) -> None:
    """As Databricks does it."""
    (tmp_path / "plain.py").write_text("import pathlib\npathlib.Path(__file__).with_name('seen').write_text(spark)\n")
    run(Library((tmp_path,)), notebook_task={"notebook_path": "plain"})
    assert (tmp_path / "seen").read_text() == "the session"


CALLS_ITS_MAIN = """
lines = []
def main():
    lines.append(spark)
main()
save(lines)
"""
NEEDS_ITS_CELLS = """
# MAGIC %run ./other

# COMMAND ----------
def main():
    save([spark, other])
if True:
    main()
"""
USES_THE_SESSION = """
before = spark
def main(spark):
    save([before, spark])
if __name__ == "__main__":
    raise SystemExit("it is imported")
"""
NEEDS_NO_SESSION = """
def main(day):
    save([day, dbutils.widgets.get("day")])
"""
SAVE = """# Databricks notebook source
from pathlib import Path
seen = Path(__file__).with_name("seen")
def save(words):
    seen.write_text((seen.read_text() if seen.exists() else "") + " ".join(words))

# COMMAND ----------
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CALLS_ITS_MAIN, "the session"),
        (NEEDS_ITS_CELLS, "the session o"),
        (USES_THE_SESSION, "the session the session"),
        (NEEDS_NO_SESSION, "monday monday"),
    ],
    ids=["calls its main itself", "needs its cells", "uses the session outside", "needs no session"],
)
def test_a_main_is_called_once_with_what_the_notebook_has_there(tmp_path: Path, text: str, said: str) -> None:
    """A notebook that calls it, or whose magics have to run first, is run from top to bottom; any other is imported."""
    (tmp_path / "book.py").write_text(f"{SAVE}{text}")
    (tmp_path / "other.py").write_text("other = 'o'\n")
    given = {"day": "monday"} if "day" in text else {}
    run(Library((tmp_path,)), notebook_task={"notebook_path": "book", "base_parameters": given})
    assert (tmp_path / "seen").read_text() == said


def test_a_parameter_that_main_does_not_take_is_an_error(tmp_path: Path) -> None:
    """It would be ignored otherwise."""
    (tmp_path / "silver.py").write_text(NOTEBOOK)
    with pytest.raises(ConfigError, match="takes no 'week'"):
        run(Library((tmp_path,)), notebook_task={"notebook_path": "silver", "base_parameters": {"week": "1"}})


def test_a_script_gets_its_arguments_in_a_process_of_its_own(tmp_path: Path) -> None:
    """An exit code that is not 0 is a failure, told with the end of what it said."""
    (tmp_path / "load.py").write_text("import sys\nsys.exit(f'no such table {sys.argv[1]}')\n")
    with pytest.raises(TaskFailed, match="exit code 1: no such table orders"):
        run(Library((tmp_path,)), spark_python_task={"python_file": "load.py", "parameters": ["orders"]})


def test_what_a_script_prints_is_seen(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its author looks for it there."""
    (tmp_path / "load.py").write_text("print('3 rows loaded')\n")
    run(Library((tmp_path,)), spark_python_task={"python_file": "load.py"})
    assert capfd.readouterr().out == "3 rows loaded\n"


def test_an_entry_point_of_a_package_is_called_with_its_arguments() -> None:
    """`floodmark --version` is one that is always there."""
    wheel = {"package_name": "floodmark", "entry_point": "floodmark", "parameters": ["--version"]}
    assert run(Library(()), python_wheel_task=wheel) is None
    with pytest.raises(TaskFailed, match="has no entry point nothing"):
        run(Library(()), python_wheel_task={**wheel, "entry_point": "nothing"})


def test_a_file_that_is_nowhere_is_an_error_with_the_folders(tmp_path: Path) -> None:
    """Found out before anything runs."""
    with pytest.raises(ConfigError, match="no file for 'gone'"):
        Library((tmp_path,)).action(Task(task_key="t", notebook_task={"notebook_path": "gone"}))  # type: ignore[arg-type]


def test_a_job_of_the_project_is_run_by_its_name() -> None:
    """Its receipt becomes the note of the task."""
    assert run(Library((), lambda name: Outcome(done(name)), ["t"])) == "done, 2 rows read"

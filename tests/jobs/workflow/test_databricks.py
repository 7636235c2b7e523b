"""Files as Databricks' Jobs API takes them: parameters, conditions, loops, other jobs, SQL, magics and dbutils."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.errors import ConfigError
from floodmark.jobs.workflow import Library, Surroundings, WorkflowRun, read_workflow
from floodmark.jobs.workflow.notebooks import run_statements, with_parameters
from floodmark.jobs.workflow.running import WorkflowResult
from floodmark.stores.memory import MemoryMarkStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FakeSession:
    """Keeps the statements that it is given."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def sql(self, statement: str) -> str:
        self.statements.append(statement)
        return statement

    def addTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        """What a task's jobs are known by."""


class Folder:
    """A folder with workflow files and notebooks, and one store for all runs."""

    def __init__(self, path: Path) -> None:
        self.path, self.spark, self.store = path, FakeSession(), MemoryMarkStore()

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text, encoding="utf-8")

    def run(self, *tasks: dict[str, Any], given: dict[str, str] | None = None, **job: object) -> WorkflowResult:
        """A run of the workflow `daily` with these tasks."""
        self.write("daily.json", json.dumps({"name": "daily", "tasks": tasks, **job}))
        around = Surroundings(lambda: self.spark, self.store)  # type: ignore[arg-type, return-value]
        workflow = read_workflow(self.path / "daily.json")
        return WorkflowRun(workflow, Library((self.path,)), around, given=given or {}).go()

    def lines(self) -> list[str]:
        return (self.path / "said").read_text().splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    tmp_path.joinpath("say.py").write_text(
        "import pathlib\n"
        "with pathlib.Path(__file__).with_name('said').open('a') as file:\n"
        "    print(dbutils.widgets.get('word'), file=file)\n"
    )
    return Folder(tmp_path)


def saying(key: str, word: str, *depends_on: object, **others: object) -> dict[str, Any]:
    notebook = {"notebook_path": "/Workspace/team/say", "base_parameters": {"word": word}}
    return {"task_key": key, "notebook_task": notebook, "depends_on": list(depends_on), **others}


def states(finished: WorkflowResult) -> dict[str, str]:
    return {each.outcome.task: each.outcome.state for each in finished.ends}


def test_parameters_of_the_job_reach_its_tasks(folder: Folder) -> None:
    """The default of the file, what a run was given, and what Databricks itself fills in."""
    parameters = [{"name": "day", "default": "monday"}]
    task = saying("a", "{{job.parameters.day}} of {{job.name}}.{{task.name}}")
    folder.run(task, parameters=parameters)
    folder.run(task, parameters=parameters, given={"day": "tuesday"})
    assert folder.lines() == ["monday of daily.a", "tuesday of daily.a"]


def test_a_parameter_that_the_file_does_not_have_is_refused(folder: Folder) -> None:
    """Given to a run, or named by a task."""
    with pytest.raises(ConfigError, match="has no parameter 'week'"):
        folder.run(saying("a", "x"), given={"week": "1"})
    [failed] = folder.run(saying("a", "{{job.parameters.week}}")).failures
    assert "{{job.parameters.week}} in task 'a' means nothing here" in str(failed.error)


def test_a_run_for_another_day_is_not_the_rest_of_the_one_that_failed(folder: Folder) -> None:
    """What was done for monday is not done for tuesday; the same day goes on where it failed."""
    folder.write("broken.py", "raise ValueError('no')\n")
    parameters = [{"name": "day", "default": "monday"}]
    tasks = (
        saying("a", "{{job.parameters.day}}"),
        {"task_key": "b", "notebook_task": {"notebook_path": "broken"}, "depends_on": ["a"]},
    )
    folder.run(*tasks, parameters=parameters)
    folder.run(*tasks, parameters=parameters)
    folder.run(*tasks, parameters=parameters, given={"day": "tuesday"})
    folder.run(*tasks, parameters=parameters, given={"day": "tuesday"})
    assert folder.lines() == ["monday", "tuesday"]


def test_parameters_are_not_kept_in_the_store(folder: Folder) -> None:
    """One may be the address of a database with its password."""
    folder.run(saying("a", "x"), parameters=[{"name": "marks", "default": ""}], given={"marks": "s3cret"})
    record = folder.store.read("workflow.daily")
    assert record is not None
    assert "s3cret" not in str(record)


def test_a_task_may_ask_how_another_one_ended(folder: Folder) -> None:
    """In the words of Databricks: what is to be done after a failure asks for it by a condition."""
    folder.write("broken.py", "raise ValueError('no')\n")
    ask = {"op": "EQUAL_TO", "left": "{{tasks.load.result_state}}", "right": "failed"}
    finished = folder.run(
        {"task_key": "load", "notebook_task": {"notebook_path": "broken"}},
        saying("after", "x", "load"),
        {"task_key": "ask", "condition_task": ask, "depends_on": ["load", "after"], "run_if": "ALL_DONE"},
        saying(
            "repair",
            "load {{tasks.load.result_state}}, after {{tasks.after.result_state}}",
            {"task_key": "ask", "outcome": "true"},
        ),
    )
    assert (states(finished)["repair"], folder.lines()) == ("SUCCESS", ["load failed, after upstream_failed"])


def test_a_condition_chooses_what_runs_after_it(folder: Folder) -> None:
    """What was not chosen is excluded, with what depends on it alone; where the branches meet, it goes on."""
    finished = folder.run(
        {"task_key": "many", "condition_task": {"op": "GREATER_THAN", "left": "12.0", "right": "9"}},
        saying("yes", "yes", {"task_key": "many", "outcome": "true"}),
        saying("no", "no", {"task_key": "many", "outcome": "false"}),
        saying("after_no", "after no", {"task_key": "no"}),
        saying("end", "end", {"task_key": "yes"}, {"task_key": "after_no"}),
    )
    assert states(finished) == {
        "many": "SUCCESS",
        "yes": "SUCCESS",
        "no": "EXCLUDED",
        "after_no": "EXCLUDED",
        "end": "SUCCESS",
    }
    assert (finished.exit_code, folder.lines()) == (0, ["yes", "end"])


def test_a_run_that_goes_on_remembers_how_a_condition_was_judged(folder: Folder) -> None:
    """The task that it excluded does not run because another one failed."""
    folder.write("broken.py", "raise ValueError('no')\n")
    tasks = (
        {"task_key": "is_full", "condition_task": {"op": "EQUAL_TO", "left": "12.0", "right": "12"}},
        saying("yes", "yes", {"task_key": "is_full", "outcome": "true"}),
        {
            "task_key": "no",
            "notebook_task": {"notebook_path": "broken"},
            "depends_on": [{"task_key": "is_full", "outcome": "false"}],
        },
    )
    first = folder.run(*tasks)
    folder.write("broken.py", "")
    second = folder.run(*tasks)
    assert (states(first)["no"], states(second)) == ("FAILED", {"no": "SUCCESS"})


def test_a_loop_runs_a_task_for_every_input(folder: Folder) -> None:
    """The inputs are a list, here one that another task has said."""
    folder.write("list.py", "dbutils.jobs.taskValues.set('cities', [{'name': 'Rome'}, {'name': 'Oslo'}])\n")
    loop = {"inputs": "{{tasks.list.values.cities}}", "task": saying("one", "{{input.name}}")}
    finished = folder.run(
        {"task_key": "list", "notebook_task": {"notebook_path": "list"}},
        {"task_key": "all", "for_each_task": loop, "depends_on": [{"task_key": "list"}]},
    )
    assert (finished.exit_code, folder.lines()) == (0, ["Rome", "Oslo"])


def test_another_job_is_run_with_its_own_parameters(folder: Folder) -> None:
    """Its file is known by the id that Databricks exported, or by its name in a bundle."""
    inner = {"parameters": [{"name": "day", "default": "none"}], "tasks": [saying("in", "{{job.parameters.day}}")]}
    folder.write("other.json", json.dumps({"job_id": 4711, "settings": {"name": "other", **inner}}))
    by_id = {"job_id": 4711, "job_parameters": {"day": "friday"}}
    by_name = {"job_id": "${resources.jobs.other.id}"}
    finished = folder.run(
        {"task_key": "a", "run_job_task": by_id},
        {"task_key": "b", "run_job_task": by_name, "depends_on": [{"task_key": "a"}]},
    )
    assert (finished.exit_code, folder.lines()) == (0, ["friday", "none"])


def test_a_job_that_begins_itself_is_refused(folder: Folder) -> None:
    """It would never end."""
    [failed] = folder.run({"task_key": "a", "run_job_task": {"job_id": "daily"}}).failures
    assert "begins job 'daily', which has begun it" in str(failed.error)


def test_a_file_of_sql_is_run_statement_by_statement(folder: Folder) -> None:
    """Parameters of the task and the job are `:name`, or text in braces; a semicolon in a text ends nothing."""
    folder.write("report.sql", "-- a; b\nselect ';' as x;\n\ninsert into t select :day, '{{ kind }}';\n")
    task = {"file": {"path": "sql/report.sql"}, "warehouse_id": "w", "parameters": {"kind": "full"}}
    folder.run({"task_key": "a", "sql_task": task}, parameters=[{"name": "day", "default": "monday"}])
    assert folder.spark.statements == ["-- a; b\nselect ';' as x", "insert into t select 'monday', 'full'"]


@pytest.mark.spark
def test_parameters_reach_statements_of_a_real_session(spark: SparkSession) -> None:
    """As texts, whatever is in them; a cast and a text are no parameters."""
    around = Surroundings(lambda: spark, MemoryMarkStore())
    sql = """
        create or replace temp view asked as
        select :day as day, m[:date] as found, ':day' as text, '7'::int as number from (select map('it\\'s', 1) as m);
        select * from asked
    """
    rows: Any = run_statements(around, sql, {"day": "a\\b; 'c'", "date": "it's"})
    assert [tuple(row) for row in rows.collect()] == [("a\\b; 'c'", 1, ":day", 7)]
    spark.catalog.dropTempView("asked")  # the session is everybody's


def test_a_part_of_a_variant_is_no_parameter() -> None:
    """As Databricks writes it; what nobody gave stays as it is."""
    sql = "select v:day, f(v):day, :day, (:day), :other -- :day"
    assert with_parameters(sql, {"day": "d"}) == "select v:day, f(v):day, 'd', ('d'), :other -- :day"


def test_magics_of_a_notebook_do_what_they_do_there(folder: Folder) -> None:
    """%run brings another notebook's names, %sql runs statements, %md is text, and a notebook may end early."""
    folder.write("setup.py", "# Databricks notebook source\nword = 'from setup'\n")
    folder.write(
        "book.py",
        "# Databricks notebook source\n# MAGIC %md # A title\n\n# COMMAND ----------\n# MAGIC %run ./setup\n"
        "\n# COMMAND ----------\n# MAGIC %sql\n# MAGIC select 1;\n# MAGIC select 2\n"
        "\n# COMMAND ----------\ndbutils.widgets.text('day', 'today')\n"
        "dbutils.notebook.exit(f\"{word}, {dbutils.widgets.get('day')}\")\nraise ValueError\n",
    )
    [ended] = folder.run({"task_key": "a", "notebook_task": {"notebook_path": "book"}}).ends
    assert (ended.outcome.note, folder.spark.statements) == (
        "from setup, today",
        ["select 1", "select 2"],
    )


def test_what_run_and_sql_are_given_are_widgets(folder: Folder) -> None:
    """`%run` gives values to the notebook that it runs and to no other; `%sql` has `:name` for every widget."""
    folder.write("setup.py", "# Databricks notebook source\nday = dbutils.widgets.get('day')\n")
    folder.write(
        "book.py",
        "# Databricks notebook source\ndbutils.widgets.text('day', 'today')\n"
        "\n# COMMAND ----------\n# MAGIC %pip install x\n\n# COMMAND ----------\ndbutils.library.restartPython()\n"
        '\n# COMMAND ----------\n# MAGIC %run ./setup $day="the first" $other=2\n'
        "\n# COMMAND ----------\n# MAGIC %sql select :day\n"
        "\n# COMMAND ----------\ndbutils.notebook.exit(f\"{day}, {dbutils.widgets.get('day')}\")\n",
    )
    [ended] = folder.run({"task_key": "a", "notebook_task": {"notebook_path": "book"}}).ends
    assert (ended.outcome.note, folder.spark.statements) == ("the first, today", ["select 'today'"])


def test_a_notebook_may_be_one_of_jupyter(folder: Folder) -> None:
    """As Databricks keeps them in Git; its text and its outputs are passed over."""
    cells = [
        {"cell_type": "markdown", "source": ["# A title"]},
        {"cell_type": "code", "outputs": [{}], "source": ["def main(word):\n", "    return word + ' again'\n"]},
        {"cell_type": "code", "source": "%run ./setup"},
        {"cell_type": "code", "source": ["%sql\n", "select 1"]},
        {"cell_type": "code", "source": ["dbutils.notebook.exit(main(word))"]},
    ]
    folder.write("book.ipynb", json.dumps({"cells": cells, "nbformat": 4}))
    folder.write("setup.py", "word = 'setup'\n")
    [ended] = folder.run({"task_key": "a", "notebook_task": {"notebook_path": "/Workspace/team/book"}}).ends
    assert (ended.outcome.note, folder.spark.statements) == ("setup again", ["select 1"])
    folder.write("book.ipynb", "{}")
    [failed] = folder.run({"task_key": "a", "notebook_task": {"notebook_path": "book"}}).failures
    assert "book.ipynb is not a notebook of Jupyter" in str(failed.error)


def test_an_argument_of_run_that_means_nothing_is_refused(folder: Folder) -> None:
    """It would be missed without a word."""
    folder.write("setup.py", "")
    folder.write("book.py", "# Databricks notebook source\n# MAGIC %run ./setup day=1\n")
    [failed] = folder.run({"task_key": "a", "notebook_task": {"notebook_path": "book"}}).failures
    assert "book.py, line 1: %run does not take 'day=1'" in str(failed.error)


def test_an_error_in_a_notebook_names_its_own_line(folder: Folder) -> None:
    """Cells are run one by one, and a traceback has to lead to the file."""
    folder.write("book.py", "# Databricks notebook source\n\n# COMMAND ----------\n\nraise ValueError('here')\n")
    [failed] = folder.run({"task_key": "a", "notebook_task": {"notebook_path": "book"}}).failures
    assert failed.error is not None
    last = traceback.extract_tb(failed.error.__traceback__)[-1]
    assert (Path(last.filename).name, last.lineno) == ("book.py", 5)


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ({"pipeline_task": {"pipeline_id": "p"}}, "pipeline_task.*migrating-from-dlt"),
        ({"dbt_task": {"commands": ["dbt run"]}}, "dbt_task.*workflows"),
        ({"spark_jar_task": {"main_class_name": "A"}}, "spark_jar_task"),
        ({"sql_task": {"query": {"query_id": "q"}, "warehouse_id": "w"}}, "only its workspace has"),
        ({"run_job_task": {"job_id": 1}}, "no file of job 1"),
    ],
)
def test_what_only_databricks_can_run_is_refused_by_name(folder: Folder, task: dict[str, Any], reason: str) -> None:
    """Before anything runs, with the page to read."""
    with pytest.raises(ConfigError, match=reason):
        folder.run(saying("first", "x"), {"task_key": "a", **task})
    assert not (folder.path / "said").exists()

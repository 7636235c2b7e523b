"""What a task runs: a notebook, a script, SQL, a condition, a loop, another job, or what is named like the task."""

from __future__ import annotations

import inspect
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from floodmark.errors import ConfigError, TaskFailed
from floodmark.inputs import read_text
from floodmark.jobs.workflow.notebooks import (
    FindFile,
    Notebook,
    dbutils_of,
    has_main,
    import_notebook,
    needs,
    run_statements,
)
from floodmark.jobs.workflow.surroundings import OUTCOME, REFERENCE, Surroundings
from floodmark.locations import importable

if TYPE_CHECKING:
    from floodmark.jobs.running import Outcome
    from floodmark.jobs.workflow.document import (
        ConditionTask,
        ForEachTask,
        NotebookTask,
        PythonTask,
        RunJobTask,
        SqlTask,
        Task,
        WheelTask,
    )


Action: TypeAlias = "Callable[[Surroundings], str | None]"
"""Does a task's work; returns what a person may want to know of it, or raises."""
CALL_ENTRY_POINT = (
    "import importlib.metadata as m, sys\n"
    "package, name, *arguments = sys.argv[1:]\n"
    "sys.argv = [name, *arguments]\n"
    "found = [e for e in m.distribution(package).entry_points if e.name == name]\n"
    "sys.exit(f'{package} has no entry point {name}') if not found else sys.exit(found[0].load()())\n"
)
LINES_SHOWN = 12
PAGES = {
    "pipeline_task": "docs/migrating-from-dlt.md says how a pipeline becomes jobs with marks",
    "dbt_task": "docs/workflows.md: run dbt by a spark_python_task, or make its models jobs",
    "": "docs/workflows.md lists what a task may be here",
}
"""By kind of task that only Databricks can run: what to read."""


@dataclass(frozen=True)
class Library:
    """Where the code of tasks is looked for: files beside the workflow or the project, and named jobs and functions."""

    folders: tuple[Path, ...]
    run_job: Callable[[str], Outcome] | None = None
    jobs: Sequence[str] = ()
    functions: Mapping[str, Callable[..., object]] = field(default_factory=dict)

    def action(self, task: Task) -> Action:
        """The work of this task. Raises ConfigError if there is none, or none that can be done here."""
        require_known(task)
        for wanted, make in self._makers(task):
            if wanted is not None:
                return make(wanted)
        if task.task_key in self.functions:
            return function_call(self.functions[task.task_key])
        if task.task_key in self.jobs and self.run_job is not None:
            return job(task.task_key, self.run_job)
        known = ", ".join([*self.jobs, *self.functions]) or "none"
        raise ConfigError(
            f"task '{task.task_key}' has no code: no notebook_task, spark_python_task or python_wheel_task, "
            "and no job or function of that name.",
            hint=f"name it under `tasks:` in the project file (known: {known})",
        )

    def _makers(self, task: Task) -> list[tuple[Any, Callable[[Any], Action]]]:
        key = task.task_key
        return [
            (task.notebook_task, lambda wanted: self._notebook(key, wanted)),
            (task.spark_python_task, lambda wanted: self._script(key, wanted)),
            (task.python_wheel_task, lambda wanted: entry_point(key, wanted)),
            (task.sql_task, lambda wanted: self._sql(key, wanted)),
            (task.condition_task, lambda wanted: condition(key, wanted)),
            (task.for_each_task, lambda wanted: for_each(key, wanted, self.action(wanted.task))),
            (task.run_job_task, lambda wanted: self._other_job(key, wanted)),
        ]

    def _notebook(self, task: str, wanted: NotebookTask) -> Action:
        file = self._file(task, wanted.notebook_path)
        return notebook(file, wanted.base_parameters, lambda path: self._file(task, path))

    def _script(self, task: str, wanted: PythonTask) -> Action:
        return command(task, [str(self._file(task, wanted.python_file)), *wanted.parameters])

    def _sql(self, task: str, wanted: SqlTask) -> Action:
        if wanted.file is None:
            raise ConfigError(
                f"task '{task}' runs a query, dashboard or alert that only its workspace has.",
                hint="put the SQL into a file: sql_task.file.path",
            )
        text = read_text(self._file(task, wanted.file.path), hint="save it as UTF-8 text")

        def run(around: Surroundings) -> str | None:
            given = {**around.fill_all(wanted.parameters), **around.parameters}
            own = REFERENCE.sub(lambda found: given.get(found[1], found[0]), text)
            run_statements(around, around.fill(own), given)
            return None

        return run

    def _other_job(self, task: str, wanted: RunJobTask) -> Action:
        from floodmark.jobs.workflow.document import find_workflow
        from floodmark.jobs.workflow.running import WorkflowRun

        other = find_workflow(wanted.job_id, self.folders, task)

        def run(around: Surroundings) -> str | None:
            if other.name in around.jobs or other.name == around.job:
                raise ConfigError(f"task '{task}' begins job '{other.name}', which has begun it.", hint="take it out")
            inner = Surroundings(around.session, around.store, around.timeout_seconds, jobs=(*around.jobs, around.job))
            given = around.fill_all(wanted.job_parameters)
            finished = WorkflowRun(other, self, inner, given=given).go()
            if finished.exit_code:
                failed = ", ".join(each.outcome.task for each in finished.failures)
                raise TaskFailed(task, reason=f"job '{other.name}' did not succeed: {failed}")
            return f"{len(finished.ends)} tasks of {other.name}"

        return run

    def _file(self, task: str, path: str) -> Path:
        """The file that a path of a workspace means here: as it stands, or its end under one of our folders."""
        parts = Path(path.removeprefix("dbfs:").lstrip("/")).parts
        ends = [Path(*parts[start:]) for start in range(len(parts))]
        tried = [Path(path), *(folder / end for end in ends for folder in self.folders)]
        for each in tried:
            for file in (each, each.with_name(f"{each.name}.py"), each.with_name(f"{each.name}.ipynb")):
                if file.is_file():
                    return file.absolute()
        folders = " or ".join(map(str, self.folders))
        raise ConfigError(f"task '{task}': there is no file for '{path}'.", hint=f"put it under {folders}")


def require_known(task: Task) -> None:
    """Raises ConfigError for a task of a kind that only Databricks can run, with the page to read."""
    for name in task.model_extra or {}:
        if name in PAGES:
            raise ConfigError(f"task '{task.task_key}' is a {name}, which is not run here.", hint=PAGES[name])
        if name.endswith("_task"):
            raise ConfigError(f"task '{task.task_key}' is a {name}, which is not run here.", hint=PAGES[""])


def notebook(file: Path, parameters: Mapping[str, str], find: FindFile) -> Action:
    """Calls the notebook's `main(spark, store, …)`; one without, or that calls it, is run from top to bottom."""

    def run(around: Surroundings) -> str | None:
        given = around.fill_all(parameters)
        book = Notebook(file, around, {**given, **around.parameters}, find)
        if not has_main(file):
            return book.run()
        importable(file.parent)
        names = book.names() if needs(file, "spark") else {"dbutils": dbutils_of(book)}  # a session takes seconds
        module = import_notebook(file, names)
        return function_call(module.main, given, around.parameters)(around)

    return run


def condition(task: str, wanted: ConditionTask) -> Action:
    """Judges two values as Databricks does: == and != as text, the others as numbers."""

    def run(around: Surroundings) -> str | None:
        left, right = around.fill(wanted.left), around.fill(wanted.right)
        outcome = str(wanted.holds(left, right)).lower()
        around.values.set(task, OUTCOME, outcome)
        return f"{left} {wanted.op} {right}: {outcome}"

    return run


def for_each(task: str, wanted: ForEachTask, action: Action) -> Action:
    """Runs a task once for every element of a JSON list, so many at a time as the file says."""
    from floodmark.jobs.workflow.running import run_task

    def run(around: Surroundings) -> str | None:
        inputs = wanted.inputs_in(around.fill(wanted.inputs), task)
        turns = [replace(around, input=each, task=wanted.task.task_key) for each in inputs]
        with ThreadPoolExecutor(wanted.concurrency, thread_name_prefix="for_each") as pool:
            ends = list(pool.map(lambda turn: run_task(wanted.task, action, turn, _do_not_stop), turns))
        failed = [f"{each!r}: {end.outcome.error}" for each, end in zip(inputs, ends, strict=True) if end.error]
        if failed:
            raise TaskFailed(task, reason=f"{len(failed)} of {len(inputs)} turns failed; {'; '.join(failed[:3])}")
        return f"{len(inputs)} turns"

    return run


def _do_not_stop(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def function_call(
    function: Callable[..., object],
    parameters: Mapping[str, str] | None = None,
    of_job: Mapping[str, str] | None = None,
) -> Action:
    """Calls a function with those of `spark`, `store` and the task's parameters that it names.

    Parameters of the job win over the task's own, as they do on Databricks; one that it does not name is not passed.
    """

    def run(around: Surroundings) -> str | None:
        named = inspect.signature(function).parameters
        takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in named.values())
        unknown = [name for name in parameters or {} if name not in named and not takes_any]
        if unknown:
            raise ConfigError(f"{function.__module__}.{function.__qualname__} takes no '{unknown[0]}'.", hint="add it")
        pushed = {name: value for name, value in (of_job or {}).items() if name in named or takes_any}
        given: dict[str, object] = {**(parameters or {}), **pushed}
        if "spark" in named:
            given["spark"] = around.session()
        if "store" in named:
            given["store"] = around.store
        result = function(**given)
        return result if isinstance(result, str) else None

    return run


def job(name: str, run_job: Callable[[str], Outcome]) -> Action:
    """Runs a job of the project."""

    def run(_around: Surroundings) -> str | None:
        outcome = run_job(name)
        if outcome.error is not None:
            raise outcome.error
        return f"{outcome.receipt.status}, {outcome.receipt.rows_read} rows read"

    return run


def entry_point(task: str, wanted: WheelTask) -> Action:
    """Runs an entry point of an installed package, in a process of its own as Databricks does."""
    return command(task, ["-c", CALL_ENTRY_POINT, wanted.package_name, wanted.entry_point, *wanted.arguments()])


def command(task: str, arguments: Sequence[str]) -> Action:
    """Runs Python with these arguments. What it prints is seen at once; of its stderr, the end if it fails."""

    def run(around: Surroundings) -> str | None:
        try:
            limit = around.timeout_seconds
            filled = [sys.executable, *map(around.fill, arguments)]
            done = subprocess.run(filled, stderr=subprocess.PIPE, text=True, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        if done.returncode:
            last = "\n".join(done.stderr.strip().splitlines()[-LINES_SHOWN:])
            raise TaskFailed(task, reason=f"exit code {done.returncode}: {last}")
        return None

    return run

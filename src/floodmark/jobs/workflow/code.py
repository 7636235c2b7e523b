"""What a task runs: a notebook, a script, an entry point, or the job or function that is named like it."""

from __future__ import annotations

import importlib.util
import inspect
import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from floodmark.errors import ConfigError, TaskFailed
from floodmark.locations import importable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.jobs.running import Outcome
    from floodmark.jobs.workflow.document import NotebookTask, PythonTask, Task, WheelTask
    from floodmark.stores.contract import MarkStore


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


@dataclass(frozen=True)
class Surroundings:
    """What a task may use: the session (started when it is asked for), the marks, and how long it may take."""

    session: Callable[[], SparkSession]
    store: MarkStore
    timeout_seconds: float | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Library:
    """Where the code of tasks is looked for: files beside the workflow or the project, and named jobs and functions."""

    folders: tuple[Path, ...]
    run_job: Callable[[str], Outcome] | None = None
    jobs: Sequence[str] = ()
    functions: Mapping[str, Callable[..., object]] = field(default_factory=dict)

    def action(self, task: Task) -> Action:
        """The work of this task. Raises ConfigError if there is none."""
        if task.notebook_task is not None:
            return self._notebook(task.task_key, task.notebook_task)
        if task.spark_python_task is not None:
            return self._script(task.task_key, task.spark_python_task)
        if task.python_wheel_task is not None:
            return entry_point(task.task_key, task.python_wheel_task)
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

    def _notebook(self, task: str, wanted: NotebookTask) -> Action:
        return notebook(self._file(task, wanted.notebook_path), wanted.base_parameters)

    def _script(self, task: str, wanted: PythonTask) -> Action:
        return command(task, [str(self._file(task, wanted.python_file)), *wanted.parameters])

    def _file(self, task: str, path: str) -> Path:
        """The file that a path of a workspace means here: as it stands, or its end under one of our folders."""
        parts = Path(path.removeprefix("dbfs:").lstrip("/")).parts
        ends = [Path(*parts[start:]) for start in range(len(parts))]
        tried = [Path(path), *(folder / end for end in ends for folder in self.folders)]
        for each in tried:
            for file in (each, each.with_name(f"{each.name}.py")):
                if file.is_file():
                    return file.absolute()
        folders = " or ".join(map(str, self.folders))
        raise ConfigError(f"task '{task}': there is no file for '{path}'.", hint=f"put it under {folders}")


def notebook(file: Path, parameters: Mapping[str, str]) -> Action:
    """Calls the notebook's `main(spark, store, …)`; one without a main is run from top to bottom with `spark`."""

    def run(around: Surroundings) -> str | None:
        importable(file.parent)
        if not _defines_main(file):
            runpy.run_path(str(file), {"spark": around.session(), "store": around.store}, "__main__")
            return None
        name = f"_floodmark_task_{file.stem}"
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise ConfigError(f"{file} cannot be imported.", hint="give it the ending .py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # pickling and dataclasses look their module up by name
        spec.loader.exec_module(module)
        return function_call(module.main, parameters)(around)

    return run


def _defines_main(file: Path) -> bool:
    import ast

    tree = ast.parse(file.read_bytes(), filename=str(file))
    return any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body)


def function_call(function: Callable[..., object], parameters: Mapping[str, str] | None = None) -> Action:
    """Calls a function with those of `spark`, `store` and the task's parameters that it names."""

    def run(around: Surroundings) -> str | None:
        named = inspect.signature(function).parameters
        unknown = [name for name in parameters or {} if name not in named]
        if unknown:
            raise ConfigError(f"{function.__module__}.{function.__qualname__} takes no '{unknown[0]}'.", hint="add it")
        given: dict[str, object] = dict(parameters or {})
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
    """Runs Python with these arguments, and says the end of what it said if it fails."""

    def run(around: Surroundings) -> str | None:
        try:
            limit = around.timeout_seconds
            done = subprocess.run(
                [sys.executable, *arguments], capture_output=True, text=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        if done.returncode:
            last = "\n".join(done.stderr.strip().splitlines()[-LINES_SHOWN:])
            raise TaskFailed(task, reason=f"exit code {done.returncode}: {last}")
        return None

    return run

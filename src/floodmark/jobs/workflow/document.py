"""The workflow file: Databricks' own Jobs JSON, of which everything that can mean something here is read."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from floodmark.errors import ConfigError, FieldInvalid
from floodmark.errors.configuration import did_you_mean, nearest_names
from floodmark.inputs import LARGEST_DOCUMENT, parse_json, read_text
from floodmark.jobs.workflow.schedule import Schedule, parse_schedule

Needs = Mapping[str, tuple[str, ...]]
"""By task: the tasks it depends on."""
RunIf = Literal["ALL_SUCCESS", "ALL_DONE", "NONE_FAILED", "AT_LEAST_ONE_SUCCESS", "ALL_FAILED", "AT_LEAST_ONE_FAILED"]
Moment = Literal["on_start", "on_success", "on_failure"]
Operator = Literal["EQUAL_TO", "NOT_EQUAL", "GREATER_THAN", "GREATER_THAN_OR_EQUAL", "LESS_THAN", "LESS_THAN_OR_EQUAL"]
BUNDLE_JOB = re.compile(r"\$\{resources\.jobs\.(\w+)\.id\}")
MOMENTS: tuple[Moment, ...] = ("on_start", "on_success", "on_failure")


def read_workflow(file: Path) -> Workflow:
    """Parse and check the file: names, order, schedule. Raises ConfigError."""
    if not file.exists():
        raise ConfigError(f"there is no workflow file {file}.", hint="name the JSON file of the workflow")
    try:
        values = parse_json(read_text(file, hint="name the JSON file of the workflow", largest=LARGEST_DOCUMENT))
    except json.JSONDecodeError as error:
        raise ConfigError(f"{file.name}:{error.lineno} is not JSON: {error.msg}.", hint="fix that line") from error
    except ValueError as error:
        raise ConfigError(f"{file.name} cannot be read: {error}.", hint="fix the file") from error
    return workflow_in(values, file)


def workflow_in(values: object, file: Path) -> Workflow:
    """The workflow that the values describe; Databricks wraps it in `settings` when a job is exported."""
    settings = values.get("settings", values) if isinstance(values, dict) else values
    try:
        found = Workflow.model_validate(settings)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        field = ".".join(map(str, first["loc"])) or "the file"
        raise FieldInvalid(field, where=file.name, reason=f"is wrong: {first['msg']}") from None
    workflow = found if found.name else found.model_copy(update={"name": file.stem})
    twice = [key for key, times in Counter(task.task_key for task in workflow.tasks).items() if times > 1]
    if twice:
        raise ConfigError(f"{file.name}: two tasks are called '{twice[0]}'.", hint="give each a task_key of its own")
    require_an_order(workflow.needs(), file.name)
    workflow.active_schedule()
    return workflow


def find_workflow(job_id: str, folders: Iterable[Path], task: str) -> Workflow:
    """The job that a `run_job_task` means: the file with its id, or the one that is named like it.

    Databricks writes the id of a job beside the settings that it exports; a bundle has `${resources.jobs.NAME.id}`.
    """
    name = BUNDLE_JOB.fullmatch(job_id)[1] if BUNDLE_JOB.fullmatch(job_id) else job_id  # type: ignore[index]
    for file in (file for folder in folders for file in sorted((*folder.glob("*.json"), *folder.glob("*/*.json")))):
        if file.stem == name or _job_id(file) == job_id:
            return read_workflow(file)
    raise ConfigError(
        f"task '{task}': there is no file of job {job_id}.", hint=f"put {name}.json beside the workflow file"
    )


def _job_id(file: Path) -> str | None:
    try:
        values = parse_json(read_text(file, hint="fix the file", largest=LARGEST_DOCUMENT))
    except (ConfigError, ValueError):
        return None
    return str(values["job_id"]) if isinstance(values, dict) and "job_id" in values else None


def _as_dependency(value: object) -> object:
    """A dependency is `"task"` as in the migration guide, or `{"task_key": "task"}` as in Databricks."""
    return {"task_key": value} if isinstance(value, str) else value


class Part(BaseModel):
    """A part of the file; what Databricks knows and we do not is kept aside, and `validate` names it."""

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True)


class NotebookTask(Part):
    """A notebook exported as Python source."""

    notebook_path: str
    base_parameters: dict[str, str] = {}


class PythonTask(Part):
    """A script with its arguments."""

    python_file: str
    parameters: tuple[str, ...] = ()


class WheelTask(Part):
    """An entry point of an installed package."""

    package_name: str
    entry_point: str
    parameters: tuple[str, ...] = ()
    named_parameters: dict[str, str] = {}

    def arguments(self) -> tuple[str, ...]:
        return (*self.parameters, *(f"--{name}={value}" for name, value in self.named_parameters.items()))


class SqlFile(Part):
    """A file of SQL statements."""

    path: str


class SqlTask(Part):
    """SQL of a file; what lies in a workspace alone cannot be run here."""

    file: SqlFile | None = None
    parameters: dict[str, str] = {}


class ConditionTask(Part):
    """Two values and how they are compared: text by == and !=, numbers by the others."""

    op: Operator
    left: str
    right: str

    def holds(self, left: str, right: str) -> bool:
        """Whether it does for these. Raises ConfigError for a text where a number is needed."""
        if self.op in ("EQUAL_TO", "NOT_EQUAL"):
            return (left == right) == (self.op == "EQUAL_TO")
        try:
            low, high = Decimal(left), Decimal(right)
        except ArithmeticError:
            raise ConfigError(f"{left!r} {self.op} {right!r} compares no numbers.", hint="use EQUAL_TO") from None
        is_equal = low == high
        by_sign = {"GREATER_THAN": low > high, "LESS_THAN": low < high}
        return by_sign.get(self.op.removesuffix("_OR_EQUAL"), False) or (self.op.endswith("_OR_EQUAL") and is_equal)


class RunJobTask(Part):
    """Another job, by its id."""

    job_id: Annotated[str, BeforeValidator(str)]
    job_parameters: dict[str, str] = {}


class ForEachTask(Part):
    """A task that runs once for every element of a JSON list."""

    inputs: str
    task: Task
    concurrency: Annotated[int, Field(ge=1)] = 1

    def inputs_in(self, text: str, key: str) -> list[Any]:
        """The elements. Raises ConfigError for what is no list."""
        try:
            inputs = parse_json(text)
        except ValueError:
            inputs = None
        if not isinstance(inputs, list):
            raise ConfigError(f"the inputs of task '{key}' are no JSON list: {text[:80]}.", hint='write ["a", "b"]')
        return inputs


class Dependency(Part):
    """A task that has to end before; of a condition, also how it has to be judged."""

    task_key: str
    outcome: Literal["true", "false"] | None = None


class JobParameter(Part):
    """A parameter of the whole job."""

    name: str
    default: Annotated[str, BeforeValidator(str)] = ""


class Notifications(Part):
    """Who wants to hear of what; here it goes through the project's alert channels."""

    on_start: tuple[Any, ...] = ()
    on_success: tuple[Any, ...] = ()
    on_failure: tuple[Any, ...] = ()


class NotifyingPart(Part):
    """A task or a workflow, and who wants to hear how it does."""

    email_notifications: Notifications = Notifications()
    webhook_notifications: Notifications = Notifications()

    def wants(self, moment: Moment) -> bool:
        """Whether somebody wants to hear of it."""
        return bool(getattr(self.email_notifications, moment) or getattr(self.webhook_notifications, moment))

    def addresses(self, moment: Moment) -> tuple[str, ...]:
        """Who gets a mail about it."""
        return tuple(each for each in getattr(self.email_notifications, moment) if isinstance(each, str))


class Task(NotifyingPart):
    """One task: when it may run, what it runs, and how patient we are with it."""

    task_key: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
    description: str = ""
    dependencies: Annotated[
        tuple[Annotated[Dependency, BeforeValidator(_as_dependency)], ...], Field(alias="depends_on")
    ] = ()
    run_if: RunIf = "ALL_SUCCESS"
    notebook_task: NotebookTask | None = None
    spark_python_task: PythonTask | None = None
    python_wheel_task: WheelTask | None = None
    sql_task: SqlTask | None = None
    condition_task: ConditionTask | None = None
    for_each_task: ForEachTask | None = None
    run_job_task: RunJobTask | None = None
    timeout_seconds: Annotated[float, Field(ge=0)] = 0
    max_retries: Annotated[int, Field(ge=-1)] = 0
    min_retry_interval_millis: Annotated[int, Field(ge=0)] = 1000
    retry_on_timeout: bool = False

    @property
    def depends_on(self) -> tuple[str, ...]:
        """The tasks that have to end before."""
        return tuple(each.task_key for each in self.dependencies)

    def wanted_outcome(self, upstream: str) -> str | None:
        """How a condition has to be judged for this task to run; None if that does not matter."""
        return next((each.outcome for each in self.dependencies if each.task_key == upstream), None)


class CronSchedule(Part):
    """When `--loop` runs the workflow."""

    quartz_cron_expression: str
    timezone_id: str = "UTC"
    pause_status: Literal["PAUSED", "UNPAUSED"] = "UNPAUSED"


class Workflow(NotifyingPart):
    """A whole file."""

    name: str = ""
    tasks: Annotated[tuple[Task, ...], Field(min_length=1)]
    schedule: CronSchedule | None = None
    timeout_seconds: Annotated[float, Field(ge=0)] = 0
    max_concurrent_runs: Annotated[int, Field(ge=1)] = 1
    parameters: tuple[JobParameter, ...] = ()

    def parameters_with(self, given: Mapping[str, str]) -> dict[str, str]:
        """The job's parameters, with what was given over their defaults. Raises ConfigError for one it has not."""
        known = {each.name: each.default for each in self.parameters}
        unknown = [name for name in given if name not in known]
        if unknown:
            listed = ", ".join(known) or "none"
            raise ConfigError(f"workflow '{self.name}' has no parameter '{unknown[0]}'.", hint=f"it has: {listed}")
        return {**known, **given}

    def needs(self) -> Needs:
        return {task.task_key: task.depends_on for task in self.tasks}

    def task(self, key: str) -> Task:
        """The task of that name. Raises ConfigError with the names there are."""
        found = next((task for task in self.tasks if task.task_key == key), None)
        if found is None:
            known = ", ".join(task.task_key for task in self.tasks)
            raise ConfigError(f"workflow '{self.name}' has no task '{key}'.", hint=f"one of: {known}")
        return found

    def active_schedule(self) -> Schedule | None:
        """Its schedule, unless it has none or it is paused."""
        if self.schedule is None or self.schedule.pause_status == "PAUSED":
            return None
        return parse_schedule(self.schedule.quartz_cron_expression, self.schedule.timezone_id)

    def notifies(self) -> bool:
        """Whether the file asks for any notice."""
        return any(part.wants(moment) for part in (self, *self.tasks) for moment in MOMENTS)

    def unused_fields(self) -> list[str]:
        """Fields that mean nothing here, as `validate` shows them; a misspelt one comes with the nearest name."""
        found = [_unused_in(self, "")]
        found += [_unused_in(task, f"{task.task_key}.") for task in self.tasks]
        return [line for lines in found for line in lines]


def _unused_in(part: Part, prefix: str) -> list[str]:
    known = list(type(part).model_fields)
    lines = []
    for name in part.model_extra or {}:
        question = did_you_mean(nearest_names(name, known, likeness=0.8))
        lines.append(f"{prefix}{name}" + (f" ({question})" if question else ""))
    return lines


def require_an_order(needs: Needs, where: str) -> tuple[str, ...]:
    """All tasks, each after those it depends on. Raises ConfigError for a name nobody has, or a loop."""
    for task, upstream in needs.items():
        for name in upstream:
            if name not in needs:
                known = ", ".join(needs)
                raise ConfigError(
                    f"{where}: task '{task}' depends on '{name}', which is not there.", hint=f"one of: {known}"
                )
    try:
        return tuple(TopologicalSorter(needs).static_order())
    except CycleError as error:
        loop = " → ".join(error.args[1])
        raise ConfigError(f"{where}: tasks wait for each other: {loop}.", hint="take one of them out") from None


def upstream_of(needs: Needs, task: str) -> frozenset[str]:
    """Everything the task depends on, and what that depends on."""
    return _reachable(needs, task)


def downstream_of(needs: Needs, task: str) -> frozenset[str]:
    """Everything that depends on the task, directly or not."""
    return _reachable(_reverse(needs), task)


def _reverse(needs: Needs) -> Needs:
    return {task: tuple(other for other, upstream in needs.items() if task in upstream) for task in needs}


def _reachable(edges: Needs, start: str) -> frozenset[str]:
    found: set[str] = set()
    waiting: Iterable[str] = edges[start]
    while ahead := [task for task in waiting if task not in found]:
        found.update(ahead)
        waiting = [further for task in ahead for further in edges[task]]
    return frozenset(found)


ForEachTask.model_rebuild()

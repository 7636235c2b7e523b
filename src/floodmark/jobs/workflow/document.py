"""The workflow file: Databricks' own Jobs JSON, of which everything that can mean something here is read."""

from __future__ import annotations

import json
from collections import Counter
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from floodmark.errors import ConfigError, FieldInvalid
from floodmark.jobs.workflow.cron import Schedule, parse_schedule
from floodmark.jobs.workflow.graph import Needs, require_an_order

RunIf = Literal["ALL_SUCCESS", "ALL_DONE", "NONE_FAILED", "AT_LEAST_ONE_SUCCESS", "ALL_FAILED", "AT_LEAST_ONE_FAILED"]
Moment = Literal["on_start", "on_success", "on_failure"]
MOMENTS: tuple[Moment, ...] = ("on_start", "on_success", "on_failure")


class Part(BaseModel):
    """A part of the file; what Databricks knows and we do not is kept aside, and `validate` names it."""

    model_config = ConfigDict(frozen=True, extra="allow")


def _as_key(value: object) -> object:
    """A dependency is `"task"` as in the seed, or `{"task_key": "task"}` as in Databricks."""
    return value.get("task_key", value) if isinstance(value, dict) else value


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


class Notifications(Part):
    """Who wants to hear of what; here it goes through the project's alert channels."""

    on_start: tuple[Any, ...] = ()
    on_success: tuple[Any, ...] = ()
    on_failure: tuple[Any, ...] = ()


class Watched(Part):
    """A task or a workflow, and who wants to hear how it does."""

    email_notifications: Notifications = Notifications()
    webhook_notifications: Notifications = Notifications()

    def wants(self, moment: Moment) -> bool:
        """Whether somebody is to be told of it."""
        return bool(getattr(self.email_notifications, moment) or getattr(self.webhook_notifications, moment))

    def addresses(self, moment: Moment) -> tuple[str, ...]:
        """Who is to be told of it by mail."""
        return tuple(each for each in getattr(self.email_notifications, moment) if isinstance(each, str))


class Task(Watched):
    """One task: when it may run, what it runs, and how patient we are with it."""

    task_key: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
    description: str = ""
    depends_on: tuple[Annotated[str, BeforeValidator(_as_key)], ...] = ()
    run_if: RunIf = "ALL_SUCCESS"
    notebook_task: NotebookTask | None = None
    spark_python_task: PythonTask | None = None
    python_wheel_task: WheelTask | None = None
    timeout_seconds: Annotated[float, Field(ge=0)] = 0
    max_retries: Annotated[int, Field(ge=-1)] = 0
    min_retry_interval_millis: Annotated[int, Field(ge=0)] = 1000
    retry_on_timeout: bool = False


class When(Part):
    """When `--loop` runs the workflow."""

    quartz_cron_expression: str
    timezone_id: str = "UTC"
    pause_status: Literal["PAUSED", "UNPAUSED"] = "UNPAUSED"


class Workflow(Watched):
    """A whole file."""

    name: str = ""
    tasks: Annotated[tuple[Task, ...], Field(min_length=1)]
    schedule: When | None = None
    timeout_seconds: Annotated[float, Field(ge=0)] = 0
    max_concurrent_runs: Annotated[int, Field(ge=1)] = 1
    parameters: tuple[dict[str, Any], ...] = ()

    def needs(self) -> Needs:
        return {task.task_key: task.depends_on for task in self.tasks}

    def task(self, key: str) -> Task:
        """The task of that name. Raises ConfigError with the names there are."""
        found = next((task for task in self.tasks if task.task_key == key), None)
        if found is None:
            known = ", ".join(task.task_key for task in self.tasks)
            raise ConfigError(f"workflow '{self.name}' has no task '{key}'.", hint=f"one of: {known}")
        return found

    def due(self) -> Schedule | None:
        """Its schedule, unless it has none or it is paused."""
        if self.schedule is None or self.schedule.pause_status == "PAUSED":
            return None
        return parse_schedule(self.schedule.quartz_cron_expression, self.schedule.timezone_id)

    def notifies(self) -> bool:
        """Whether the file asks that anybody be told of anything."""
        return any(part.wants(moment) for part in (self, *self.tasks) for moment in MOMENTS)

    def unused(self) -> list[str]:
        """Fields that mean nothing here, as `validate` shows them; a misspelt one comes with the nearest name."""
        found = [_unused_in(self, "")]
        found += [_unused_in(task, f"{task.task_key}.") for task in self.tasks]
        return [line for lines in found for line in lines]


def _unused_in(part: Part, prefix: str) -> list[str]:
    known = list(type(part).model_fields)
    lines = []
    for name in part.model_extra or {}:
        nearest = get_close_matches(name, known, n=1, cutoff=0.8)
        lines.append(f"{prefix}{name}" + (f" (did you mean {nearest[0]}?)" if nearest else ""))
    return lines


def read_workflow(file: Path) -> Workflow:
    """Parse and check the file: names, order, schedule. Raises ConfigError."""
    try:
        values = json.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"there is no workflow file {file}.", hint="name the JSON file of the workflow") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file.name} cannot be read: {error}.", hint="save it as UTF-8 text") from error
    except json.JSONDecodeError as error:
        raise ConfigError(f"{file.name}:{error.lineno} is not JSON: {error.msg}.", hint="mend that line") from error
    return checked(values, file)


def checked(values: object, file: Path) -> Workflow:
    """The workflow that the values describe; Databricks wraps it in `settings` when a job is exported."""
    settings = values.get("settings", values) if isinstance(values, dict) else values
    try:
        found = Workflow.model_validate(settings)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        field = ".".join(map(str, first["loc"])) or "the file"
        raise FieldInvalid(field, where=file.name, reason=f"is wrong: {first['msg']}") from None
    named = found if found.name else found.model_copy(update={"name": file.stem})
    twice = [key for key, times in Counter(task.task_key for task in named.tasks).items() if times > 1]
    if twice:
        raise ConfigError(f"{file.name}: two tasks are called '{twice[0]}'.", hint="give each a task_key of its own")
    require_an_order(named.needs(), file.name)
    named.due()
    return named

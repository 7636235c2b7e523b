"""The workflow file: Databricks' own Jobs JSON, of which everything that can mean something here is read."""

from __future__ import annotations

import calendar
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from floodmark.errors import ConfigError, FieldInvalid

# The order of tasks: who waits for whom, and which part of a workflow is meant.
Needs = Mapping[str, tuple[str, ...]]
"""By task: the tasks it depends on."""


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
    return _reached(needs, task)


def downstream_of(needs: Needs, task: str) -> frozenset[str]:
    """Everything that depends on the task, directly or not."""
    return _reached(_turned_around(needs), task)


def _turned_around(needs: Needs) -> Needs:
    return {task: tuple(other for other, upstream in needs.items() if task in upstream) for task in needs}


def _reached(edges: Needs, start: str) -> frozenset[str]:
    found: set[str] = set()
    waiting: Iterable[str] = edges[start]
    while ahead := [task for task in waiting if task not in found]:
        found.update(ahead)
        waiting = [further for task in ahead for further in edges[task]]
    return frozenset(found)


# Quartz cron expressions: when a schedule is due next, in its own time zone.
MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
MONTHS = {name: place for place, name in enumerate(MONTH_NAMES, start=1)}
WEEKDAYS = {name: place for place, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"), start=1)}
FIELDS = ("second", "minute", "hour", "day of month", "month", "day of week", "year")
BOUNDS = {"second": (0, 59), "minute": (0, 59), "hour": (0, 23), "day of month": (1, 31), "month": (1, 12)}
BOUNDS |= {"day of week": (1, 7), "year": (1970, 2199)}
LONGEST_SEARCH_DAYS = 366 * 8 + 3
"""The rarest schedule, a 29 February that falls on one weekday aside, comes again within eight years."""

DayRule = Callable[[date], bool]


@dataclass(frozen=True)
class Schedule:
    """A Quartz expression and its zone. `next_after` is the only question there is."""

    expression: str
    zone: ZoneInfo
    times: tuple[time, ...]
    is_day: DayRule

    def next_after(self, moment: datetime) -> datetime | None:
        """The first due moment after this one, in UTC; None if there is none in the years ahead.

        A local time that a change of the clocks leaves out is due as much later as they went forward; one that comes
        twice is due the first time only.
        """
        start = moment.astimezone(self.zone).date() - timedelta(days=1)
        for day in (start + timedelta(days=ahead) for ahead in range(LONGEST_SEARCH_DAYS)):
            found = next(self._later_on(day, moment), None) if self.is_day(day) else None
            if found is not None:
                return found
        return None

    def _later_on(self, day: date, moment: datetime) -> Iterator[datetime]:
        due = sorted(datetime.combine(day, at, self.zone).astimezone(timezone.utc) for at in self.times)
        return (each for each in due if each > moment)


def parse_schedule(expression: str, zone: str = "UTC") -> Schedule:
    """The schedule, or a ConfigError that names the field which cannot be read."""
    words = expression.upper().split()
    if len(words) not in (6, 7):
        raise ConfigError(
            f"schedule '{expression}' has {len(words)} fields.",
            hint="a Quartz expression has six or seven, seconds first, like '0 0 6 * * ?'",
        )
    words += ["*"] * (7 - len(words))
    if "?" not in (words[3], words[5]) and "*" not in (words[3], words[5]):
        raise ConfigError(f"schedule '{expression}' names both days.", hint="put '?' for the day of month or of week")
    try:
        numbers = {name: _numbers(word, name) for name, word in zip(FIELDS, words, strict=True) if "day" not in name}
        days = (_days_of_month(words[3]), _days_of_week(words[5]))
    except _Unreadable as error:
        raise ConfigError(f"schedule '{expression}': {error}.", hint="write it as Quartz does, '0 0 6 * * ?'") from None
    times = [time(h, m, s) for h in numbers["hour"] for m in numbers["minute"] for s in numbers["second"]]

    def is_day(day: date) -> bool:
        return day.month in numbers["month"] and day.year in numbers["year"] and all(rule(day) for rule in days)

    return Schedule(expression, _zone(zone), tuple(sorted(times)), is_day)


class _Unreadable(Exception):
    """What of a field cannot be read."""


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ConfigError(f"there is no time zone '{name}'.", hint="a name like Europe/Berlin, or UTC") from error


def _numbers(text: str, field: str) -> frozenset[int]:
    """The numbers that a field of lists, ranges and steps stands for."""
    low, high = BOUNDS[field]
    return frozenset(number for part in text.split(",") for number in _range(part, field, low, high))


def _range(part: str, field: str, low: int, high: int) -> range | list[int]:
    base, _, step = part.partition("/")
    if step and (not step.isdigit() or int(step) == 0):
        raise _Unreadable(f"'{part}' is no {field}")
    first, dash, last = base.partition("-")
    if base in ("*", "?"):
        begin, end = low, high
    else:
        begin = _number(first, field)
        end = _number(last, field) if dash else (high if step else begin)
    if begin > end:  # Quartz wraps around: FRI-MON, 22-2
        return [*range(begin, high + 1, int(step or 1)), *range(low, end + 1, int(step or 1))]
    return range(begin, end + 1, int(step or 1))


def _number(word: str, field: str) -> int:
    names = MONTHS if field == "month" else WEEKDAYS if field == "day of week" else {}
    low, high = BOUNDS[field]
    number = names.get(word, int(word) if word.isdigit() else -1)
    if not low <= number <= high:
        raise _Unreadable(f"'{word}' is no {field} ({low} to {high})")
    return number


def _days_of_month(text: str) -> DayRule:
    """Numbers, `L`, `L-3`, `LW` and `15W`."""
    rules = [_day_of_month(part) for part in text.split(",")]
    return lambda day: any(rule(day) for rule in rules)


def _day_of_month(part: str) -> DayRule:
    if part == "LW":
        return lambda day: day == _nearest_weekday(day, _last(day))
    if from_end := re.fullmatch(r"L(?:-(\d+))?", part):
        return lambda day: day.day == _last(day) - int(from_end[1] or 0)
    if near := re.fullmatch(r"(\d+)W", part):
        wanted = _number(near[1], "day of month")
        return lambda day: day == _nearest_weekday(day, wanted)
    numbers = _numbers(part, "day of month")
    return lambda day: day.day in numbers


def _days_of_week(text: str) -> DayRule:
    """Numbers (1 is Sunday) and names, `6L` (the last Friday) and `6#3` (the third)."""
    rules = [_day_of_week(part) for part in text.split(",")]
    return lambda day: any(rule(day) for rule in rules)


def _day_of_week(part: str) -> DayRule:
    if last := re.fullmatch(r"(\w+?)L", part):
        wanted = _number(last[1], "day of week")
        return lambda day: _weekday(day) == wanted and day.day > _last(day) - 7
    if nth := re.fullmatch(r"(\w+)#([1-5])", part):
        wanted, place = _number(nth[1], "day of week"), int(nth[2])
        return lambda day: _weekday(day) == wanted and (day.day - 1) // 7 + 1 == place
    numbers = frozenset([7]) if part == "L" else _numbers(part, "day of week")
    return lambda day: _weekday(day) in numbers


def _weekday(day: date) -> int:
    return day.isoweekday() % 7 + 1


def _last(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]


def _nearest_weekday(day: date, wanted: int) -> date | None:
    """The weekday nearest to that day of the month, without leaving the month; None if it has no such day."""
    last = _last(day)
    if wanted > last:
        return None
    target = day.replace(day=wanted)
    shift = {6: -1 if wanted > 1 else 2, 7: 1 if wanted < last else -2}.get(target.isoweekday(), 0)
    return target + timedelta(days=shift)


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

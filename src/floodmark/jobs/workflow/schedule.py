"""Schedules of workflows: Quartz cron expressions in their own time zone, and a workflow run at their ticks."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from floodmark.errors import ConfigError, LeaseHeld
from floodmark.jobs.workflow.memory import last_run_in, slots
from floodmark.logs import get_logger

if TYPE_CHECKING:
    from floodmark.jobs.workflow.document import Workflow
    from floodmark.jobs.workflow.running import WorkflowResult
    from floodmark.stores.contract import MarkStore


log = get_logger(__name__)
LONGEST_WAIT_SECONDS = 60.0
"""A clock that is set, or a laptop that slept, is noticed this soon."""
LONGEST_SEARCH_DAYS = 366 * 8 + 3
"""The rarest schedule, a 29 February that falls on one weekday aside, comes again within eight years."""
MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
MONTHS = {name: place for place, name in enumerate(MONTH_NAMES, start=1)}
WEEKDAYS = {name: place for place, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"), start=1)}
FIELDS = ("second", "minute", "hour", "day of month", "month", "day of week", "year")
BOUNDS = {"second": (0, 59), "minute": (0, 59), "hour": (0, 23), "day of month": (1, 31), "month": (1, 12)}
BOUNDS |= {"day of week": (1, 7), "year": (1970, 2199)}
DayRule = Callable[[date], bool]


def utc_now() -> datetime:
    """The wall clock: a schedule is the one thing that is about it."""
    return datetime.now(timezone.utc)


def keep_schedule(
    workflow: Workflow,
    store: MarkStore,
    run: Callable[[datetime], WorkflowResult],
    wait: Callable[[float], bool],
    *,
    now: Callable[[], datetime] = utc_now,
) -> int:
    """Run the workflow at every tick until `wait` says stop; gives the exit code of the last run."""
    schedule = workflow.active_schedule()
    if schedule is None:
        raise ConfigError(
            f"workflow '{workflow.name}' has no schedule, or it is paused.",
            hint="give it schedule.quartz_cron_expression and timezone_id, or run it without --loop",
        )
    last, code = _last_tick(workflow, store) or now(), 0
    while not wait(0):
        due = schedule.next_after(last)
        if due is None:
            log.info("the schedule has no further tick", workflow=workflow.name)
            return code
        if due > now():
            wait(min(LONGEST_WAIT_SECONDS, (due - now()).total_seconds()))
            continue
        last = now()  # not `due`: whatever was missed until now is this one run
        code = _run_unless_held(run, last, code)
    return code


def _last_tick(workflow: Workflow, store: MarkStore) -> datetime | None:
    known = [last_run_in(store.read(slot)) for slot in slots(workflow.name, workflow.max_concurrent_runs)]
    return max((each.tick for each in known if each and each.tick), default=None)


def _run_unless_held(run: Callable[[datetime], WorkflowResult], tick: datetime, code: int) -> int:
    """A tick that falls into another process's run is that run's."""
    try:
        return run(tick).exit_code
    except LeaseHeld as error:
        log.warning("tick left out, another run is under way", error=str(error))
        return code


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
    except _FieldInvalid as error:
        raise ConfigError(f"schedule '{expression}': {error}.", hint="write it as Quartz does, '0 0 6 * * ?'") from None
    times = [time(h, m, s) for h in numbers["hour"] for m in numbers["minute"] for s in numbers["second"]]

    def is_day(day: date) -> bool:
        return day.month in numbers["month"] and day.year in numbers["year"] and all(rule(day) for rule in days)

    return Schedule(expression, _zone(zone), tuple(sorted(times)), is_day)


class _FieldInvalid(Exception):
    """What of a field cannot be read."""


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # OSError: a folder, or a name that is too long
        raise ConfigError(f"there is no time zone '{name}'.", hint="a name like Europe/Berlin, or UTC") from error


def _numbers(text: str, field: str) -> frozenset[int]:
    """The numbers that a field of lists, ranges and steps stands for."""
    low, high = BOUNDS[field]
    return frozenset(number for part in text.split(",") for number in _range(part, field, low, high))


def _range(part: str, field: str, low: int, high: int) -> range | list[int]:
    base, _, step = part.partition("/")
    if step and (not step.isdigit() or int(step) == 0):
        raise _FieldInvalid(f"'{part}' is no {field}")
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
        raise _FieldInvalid(f"'{word}' is no {field} ({low} to {high})")
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

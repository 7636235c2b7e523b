"""`--loop`: runs at the ticks of the schedule, by a clock that the test turns."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from floodmark.errors import ConfigError
from floodmark.jobs.workflow import Library, Surroundings, WorkflowRun
from floodmark.jobs.workflow.document import Workflow, workflow_in
from floodmark.jobs.workflow.running import WorkflowResult
from floodmark.jobs.workflow.schedule import keep_schedule
from floodmark.stores.memory import MemoryMarkStore

NOON = datetime(2026, 11, 15, 12, tzinfo=timezone.utc)


class Wall:
    """A clock that waiting moves on, until its end."""

    def __init__(self, start: datetime, end: datetime) -> None:
        self.time, self.end = start, end

    def now(self) -> datetime:
        return self.time

    def wait(self, seconds: float) -> bool:
        self.time += timedelta(seconds=seconds)
        return self.time >= self.end


def hourly(**schedule: str) -> Workflow:
    fields = {"quartz_cron_expression": "0 0 * * * ?", **schedule}
    return workflow_in({"name": "hourly", "tasks": [{"task_key": "a"}], "schedule": fields}, Path("hourly.json"))


def ticks(store: MemoryMarkStore, wall: Wall, *, takes: timedelta = timedelta(0)) -> list[str]:
    """When the task ran."""
    ran: list[str] = []

    def task() -> None:
        ran.append(f"{wall.time:%d %H:%M}")
        wall.time += takes

    around = Surroundings(lambda: pytest.fail("no session is needed"), store)
    plan = WorkflowRun(hourly(), Library((), functions={"a": task}), around)

    def run(tick: datetime) -> WorkflowResult:
        return plan.go(tick=tick)

    keep_schedule(plan.workflow, store, run, wall.wait, now=wall.now)
    return ran


def test_the_first_start_waits_for_the_first_tick() -> None:
    """Nothing was missed before there was anything."""
    assert ticks(MemoryMarkStore(), Wall(NOON + timedelta(minutes=1), NOON + timedelta(hours=3))) == [
        "15 13:00",
        "15 14:00",
    ]


def test_ticks_that_were_missed_are_made_up_for_once() -> None:
    """The process was down for a day."""
    store = MemoryMarkStore()
    ticks(store, Wall(NOON, NOON + timedelta(hours=1, minutes=1)))
    tomorrow = NOON + timedelta(days=1, minutes=30)
    assert ticks(store, Wall(tomorrow, tomorrow + timedelta(minutes=45))) == ["16 12:30", "16 13:00"]


def test_ticks_that_come_during_a_run_are_one() -> None:
    """A run of two and a half hours swallows two of them, and is followed by one."""
    wall = Wall(NOON, NOON + timedelta(hours=4))
    assert ticks(MemoryMarkStore(), wall, takes=timedelta(hours=2, minutes=30)) == ["15 13:00", "15 15:30"]


def test_a_workflow_without_a_schedule_cannot_loop() -> None:
    """Nor one that is paused."""
    paused = hourly(pause_status="PAUSED")
    with pytest.raises(ConfigError, match="has no schedule, or it is paused"):
        keep_schedule(paused, MemoryMarkStore(), lambda _tick: pytest.fail("it ran"), lambda _s: False)

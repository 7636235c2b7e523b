"""A workflow at the ticks of its schedule: a tick that was missed, or came while it ran, is made up for once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, LeaseHeld
from floodmark.jobs.workflow.running import remembered_in, slots
from floodmark.logs import get_logger

if TYPE_CHECKING:
    from floodmark.jobs.workflow.document import Workflow
    from floodmark.jobs.workflow.running import Finished
    from floodmark.stores.contract import MarkStore


log = get_logger(__name__)
LONGEST_WAIT_SECONDS = 60.0
"""A clock that is set, or a laptop that slept, is noticed this soon."""


def utc_now() -> datetime:
    """The wall clock: a schedule is the one thing that is about it."""
    return datetime.now(timezone.utc)


def keep_schedule(
    workflow: Workflow,
    store: MarkStore,
    run: Callable[[datetime], Finished],
    wait: Callable[[float], bool],
    *,
    now: Callable[[], datetime] = utc_now,
) -> int:
    """Run the workflow at every tick until `wait` says stop; gives the exit code of the last run."""
    schedule = workflow.due()
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
    known = [remembered_in(store.read(slot)) for slot in slots(workflow.name, workflow.max_concurrent_runs)]
    return max((each.tick for each in known if each and each.tick), default=None)


def _run_unless_held(run: Callable[[datetime], Finished], tick: datetime, code: int) -> int:
    """A tick that falls into another process's run is that run's."""
    try:
        return run(tick).exit_code
    except LeaseHeld as error:
        log.warning("tick left out, another run is under way", error=str(error))
        return code

"""One task, tried as often as its file says, each time within its time."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from floodmark.errors import TaskTimedOut
from floodmark.jobs.running import LONGEST_PAUSE_SECONDS, NEEDS_A_PERSON
from floodmark.jobs.workflow.memory import State, TaskOutcome
from floodmark.logs import get_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.jobs.workflow.code import Action, Surroundings
    from floodmark.jobs.workflow.document import Task

log = get_logger(__name__)
GRACE_SECONDS = 10.0
"""How long a task that ran out of time may take to notice that its Spark jobs were stopped."""


@dataclass(frozen=True)
class Ended:
    """A task's outcome, and what it raised if it failed."""

    outcome: TaskOutcome
    error: Exception | None = None


def tried(task: Task, action: Action, around: Surroundings, wait: Callable[[float], bool]) -> Ended:
    """Run the task until it succeeds, its retries are used up, or `wait` says that somebody asks to stop."""
    begun, attempts = time.monotonic(), 0
    while True:
        attempts += 1
        error, note = _attempt(task, action, around)
        seconds = round(time.monotonic() - begun, 3)
        if error is None:
            return Ended(TaskOutcome(task.task_key, "SUCCESS", attempts, seconds, note=note))
        state: State = "TIMEDOUT" if isinstance(error, TaskTimedOut) else "FAILED"
        failed = Ended(TaskOutcome(task.task_key, state, attempts, seconds, error=str(error)), error)
        pause = min(LONGEST_PAUSE_SECONDS, task.min_retry_interval_millis / 1000 * 2 ** min(attempts - 1, 16))
        if not may_try_again(task, attempts, error) or wait(pause):
            return failed
        log.warning("task failed, trying again", task=task.task_key, attempts=attempts, error=str(error))


def may_try_again(task: Task, attempts: int, error: Exception) -> bool:
    """Whether the file allows another attempt, and it could help; max_retries -1 means for ever."""
    if isinstance(error, NEEDS_A_PERSON):
        return False
    if isinstance(error, TaskTimedOut) and not task.retry_on_timeout:
        return False
    return task.max_retries < 0 or attempts <= task.max_retries


def _attempt(task: Task, action: Action, around: Surroundings) -> tuple[Exception | None, str | None]:
    """Run it in a thread of its own, since only that can be given up when the time is over."""
    limit = min((s for s in (task.timeout_seconds, around.timeout_seconds or 0) if s), default=None)
    call = _Call(action, replace(around, timeout_seconds=limit))
    call.thread.start()
    call.thread.join(limit)
    if call.thread.is_alive():
        call.interrupt()
        call.thread.join(GRACE_SECONDS)
        return TaskTimedOut(task.task_key, seconds=limit or 0, lives=call.thread.is_alive()), None
    if isinstance(call.error, TimeoutError):
        return TaskTimedOut(task.task_key, seconds=limit or 0, lives=False), None
    return call.error, call.note


class _Call:
    """An action on its way, whose Spark jobs can be stopped from outside."""

    def __init__(self, action: Action, around: Surroundings) -> None:
        self.error: Exception | None = None
        self.note: str | None = None
        self._action, self._around = action, around
        self._tag = f"floodmark-task-{uuid.uuid4().hex}"
        self._spark: SparkSession | None = None
        self.thread = threading.Thread(target=self._run, name="floodmark task", daemon=True)

    def _run(self) -> None:
        try:
            self.note = self._action(replace(self._around, session=self._tagged))
        except Exception as error:
            log.debug("task failed", exc_info=True)
            self.error = error

    def _tagged(self) -> SparkSession:
        spark = self._around.session()
        spark.addTag(self._tag)
        self._spark = spark
        return spark

    def interrupt(self) -> None:
        """Stop the Spark jobs that it started."""
        if self._spark is not None:
            with suppress(Exception):  # it is given up either way
                self._spark.interruptTag(self._tag)

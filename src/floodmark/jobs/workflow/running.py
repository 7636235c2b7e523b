"""Running a workflow: tasks in their order, side by side where they may; what was left undone comes next."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from floodmark.errors import FloodmarkError, TaskTimedOut
from floodmark.failpoints import reach
from floodmark.jobs.running import LONGEST_PAUSE_SECONDS, NEEDS_A_PERSON, SOME_FAILED
from floodmark.jobs.workflow.memory import ENDED_WELL, Memory, State, TaskOutcome, WorkflowState, digest_of, hold_memory
from floodmark.jobs.workflow.surroundings import OUTCOME, TaskValues
from floodmark.logs import get_logger
from floodmark.patience import doubling_pause

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.jobs.workflow.code import Action, Library
    from floodmark.jobs.workflow.document import RunIf, Task, Workflow
    from floodmark.jobs.workflow.surroundings import Surroundings


GRACE_SECONDS = 10.0
"""How long a task that ran out of time may take to notice that its Spark jobs were stopped."""
AT_ONCE = 4
log = get_logger(__name__)


@dataclass(frozen=True)
class TaskEnd:
    """A task's outcome, and what it raised if it failed."""

    outcome: TaskOutcome
    error: Exception | None = None


@dataclass(frozen=True)
class WorkflowResult:
    """A run of a workflow that has ended."""

    workflow: str
    run: str
    started: datetime
    seconds: float
    ends: tuple[TaskEnd, ...]
    resumed_tasks: tuple[str, ...] = ()
    """Tasks that an earlier run had done already."""
    failed_before: frozenset[str] = frozenset()
    """Tasks that the last run before this one left failed."""

    @property
    def failures(self) -> tuple[TaskEnd, ...]:
        return tuple(each for each in self.ends if each.outcome.state in ("FAILED", "TIMEDOUT"))

    @property
    def exit_code(self) -> int:
        """0 if all tasks succeeded, 3 if some did, and the error's own code if none did (1 if their codes differ)."""
        bad = [each for each in self.ends if each.outcome.state not in ENDED_WELL]
        if not bad:
            return 0
        if len(bad) < len(self.ends) or self.resumed_tasks:
            return SOME_FAILED
        codes = {e.error.exit_code if isinstance(e.error, FloodmarkError) else 1 for e in bad if e.error is not None}
        return codes.pop() if len(codes) == 1 else 1


def _never(_seconds: float) -> bool:
    return False


@dataclass(frozen=True)
class WorkflowRun:
    """How a workflow is run: its code, what its tasks may use, and who hears of their ends."""

    workflow: Workflow
    library: Library
    around: Surroundings
    wait: Callable[[float], bool] = _never
    report: Callable[[TaskEnd], None] = lambda _end: None
    begin: Callable[[], None] = lambda: None
    """Called when the run has its lease and is about to begin."""
    at_once: int = AT_ONCE
    given: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the job that this run has other values for."""

    def go(self, only: frozenset[str] | None = None, tick: datetime | None = None) -> WorkflowResult:
        """Run the tasks (`only` these) and give how each ended; what they raise becomes their outcome.

        Without `only` and `tick` a run that follows a failed one takes what is missing; a tick of the schedule begins
        anew, since its tasks have new data to look for. Raises LeaseHeld, or ConfigError for a task without code.
        """
        chosen = only or frozenset(self.workflow.needs())
        actions = {key: self.library.action(self.workflow.task(key)) for key in self._in_order(chosen)}
        with hold_memory(self.around.store, self.workflow.name, self.workflow.max_concurrent_runs) as memory:
            last = memory.last()
            state, done = self._begin(last, fresh=only is not None or tick is not None, tick=tick)
            self.begin()
            left = {key: action for key, action in actions.items() if key not in done}
            clock = time.monotonic()
            ends = _TaskPool(self._with_context(state), left, memory, state).go()
            seconds = round(time.monotonic() - clock, 3)
        earlier = last.failures() & chosen if last else frozenset()
        run, begun = state.run, state.started
        return WorkflowResult(self.workflow.name, run, begun, seconds, ends, tuple(sorted(done)), earlier)

    def _with_context(self, state: WorkflowState) -> WorkflowRun:
        """The same with what its tasks may ask for: parameters, the run itself, what earlier tasks of it have said."""
        parameters = self.workflow.parameters_with(self.given)
        values, name = TaskValues(state.values), self.workflow.name
        around = replace(
            self.around, parameters=parameters, values=values, job=name, run=state.run, started=state.started
        )
        return replace(self, around=around)

    def _in_order(self, chosen: frozenset[str]) -> list[str]:
        return [task.task_key for task in self.workflow.tasks if task.task_key in chosen]

    def _begin(
        self, last: WorkflowState | None, *, fresh: bool, tick: datetime | None
    ) -> tuple[WorkflowState, frozenset[str]]:
        """The run to add to, and the tasks that need not run again."""
        begun = WorkflowState(uuid.uuid4().hex[:12], datetime.now(timezone.utc), tick or (last.tick if last else None))
        begun = replace(begun, parameters=digest_of(self.workflow.parameters_with(self.given)))
        if last is None or tick is not None or not last.is_continued_by(self.given, begun.parameters or ""):
            return begun, frozenset()
        done = last.ended_well()
        is_whole = done >= set(self.workflow.needs())
        if fresh:  # a part of the workflow: what the rest of the last run left stays as it is
            return replace(begun, tasks=last.tasks, values=last.values), frozenset()
        rest = replace(begun, run=last.run, tasks=last.tasks, values=last.values)
        return (begun, frozenset()) if is_whole else (rest, done)


@dataclass
class _TaskPool:
    """The tasks of one run on their way through a pool of threads."""

    plan: WorkflowRun
    actions: Mapping[str, Action]
    memory: Memory
    state: WorkflowState
    states: dict[str, State] = field(default_factory=dict)
    ends: list[TaskEnd] = field(default_factory=list)

    def go(self) -> tuple[TaskEnd, ...]:
        needs = {k: [n for n in self.plan.workflow.task(k).depends_on if n in self.actions] for k in self.actions}
        order = TopologicalSorter(needs)
        order.prepare()
        deadline = self._deadline()
        running: dict[Future[TaskEnd], str] = {}
        with ThreadPoolExecutor(self.plan.at_once, thread_name_prefix="workflow") as pool:
            while order.is_active():
                for key in order.get_ready():
                    running[pool.submit(self._one, key, needs[key], deadline)] = key
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    self._note(future.result())
                    order.done(running.pop(future))
        return tuple(self.ends)

    def _deadline(self) -> float | None:
        limit = self.plan.workflow.timeout_seconds
        return time.monotonic() + limit if limit else None

    def _one(self, key: str, needs: list[str], deadline: float | None) -> TaskEnd:
        task = self.plan.workflow.task(key)
        left = None if deadline is None else deadline - time.monotonic()
        upstream = self._upstream(task, needs)
        reason = self._why_not(task, upstream, left)
        if reason is not None:
            return TaskEnd(TaskOutcome(key, "SKIPPED", note=reason))
        if upstream and set(upstream) == {"EXCLUDED"}:
            return TaskEnd(TaskOutcome(key, "EXCLUDED", note="the condition was judged otherwise"))
        log.info("task begins", workflow=self.plan.workflow.name, task=key)
        around = replace(self.plan.around, timeout_seconds=left, task=key, states=self._states())
        return run_task(task, self.actions[key], around, self.plan.wait)

    def _states(self) -> dict[str, State]:
        """How the tasks that are over ended, in this run or before it went on."""
        return {key: outcome.state for key, outcome in self.state.tasks.items()} | self.states

    def _upstream(self, task: Task, needs: list[str]) -> list[State]:
        """How each dependency ended for this task: one that was judged otherwise than it wants is excluded for it.

        A condition that an earlier run has judged counts as well.
        """
        values = self.plan.around.values.all()
        judged = [name for name in task.depends_on if task.wanted_outcome(name) and OUTCOME in values.get(name, {})]
        other = {name for name in judged if values[name][OUTCOME] != task.wanted_outcome(name)}
        names = dict.fromkeys([*needs, *judged])
        return ["EXCLUDED" if name in other else self.states.get(name, "SUCCESS") for name in names]

    def _why_not(self, task: Task, upstream: list[State], left: float | None) -> str | None:
        """Why the task must not run; None if it may."""
        if self.plan.wait(0):
            return "stopped before it"
        if left is not None and left <= 0:
            return "the workflow's time is over"
        if may_run(task.run_if, upstream):
            return None
        bad = [name for name in task.depends_on if self.states.get(name, "SUCCESS") != "SUCCESS"]
        return f"upstream {', '.join(bad)} did not succeed" if bad else f"run_if {task.run_if} does not hold"

    def _note(self, end: TaskEnd) -> None:
        """Make the end of a task durable before what follows it begins."""
        self.states[end.outcome.task] = end.outcome.state
        self.ends.append(end)
        began = datetime.now(timezone.utc) - timedelta(seconds=end.outcome.seconds) if end.outcome.attempts else None
        self.state = replace(self.state.with_outcome(end.outcome, began), values=self.plan.around.values.all())
        self.memory.keep(self.state)
        reach(f"after_task:{end.outcome.task}")
        self.plan.report(end)


def may_run(run_if: RunIf, upstream: list[State]) -> bool:
    """Whether a task may run, as Databricks judges it; one without upstream always may."""
    good = [state in ENDED_WELL for state in upstream]
    failed = [state in ("FAILED", "TIMEDOUT") for state in upstream]
    if not upstream:
        return True
    return {
        "ALL_SUCCESS": all(good),
        "ALL_DONE": True,
        "NONE_FAILED": not any(failed) and any(good),
        "AT_LEAST_ONE_SUCCESS": any(good),
        "ALL_FAILED": all(failed),
        "AT_LEAST_ONE_FAILED": any(failed),
    }[run_if]


def run_task(task: Task, action: Action, around: Surroundings, wait: Callable[[float], bool]) -> TaskEnd:
    """Run the task until it succeeds, its retries are used up, or `wait` says that somebody asks to stop."""
    begun, attempts = time.monotonic(), 0
    while True:
        attempts += 1
        error, note = _attempt(task, action, around)
        seconds = round(time.monotonic() - begun, 3)
        if error is None:
            return TaskEnd(TaskOutcome(task.task_key, "SUCCESS", attempts, seconds, note=note))
        state: State = "TIMEDOUT" if isinstance(error, TaskTimedOut) else "FAILED"
        failed = TaskEnd(TaskOutcome(task.task_key, state, attempts, seconds, error=str(error)), error)
        pause = doubling_pause(task.min_retry_interval_millis / 1000, attempts, LONGEST_PAUSE_SECONDS)
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
            self.note = self._action(replace(self._around, session=self._session))
        except Exception as error:
            log.debug("task failed", exc_info=True)
            self.error = error

    def _session(self) -> SparkSession:
        spark = self._around.session()
        spark.addTag(self._tag)
        self._spark = spark
        return spark

    def interrupt(self) -> None:
        """Stop the Spark jobs that it started."""
        if self._spark is not None:
            with suppress(Exception):  # it is given up either way
                self._spark.interruptTag(self._tag)

"""Running a workflow: tasks in their order, side by side where they may; what was left undone comes next."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from floodmark.errors import FloodmarkError
from floodmark.failpoints import reach
from floodmark.jobs.running import SOME_FAILED
from floodmark.jobs.workflow.attempt import Ended, tried
from floodmark.jobs.workflow.memory import Memory, Remembered, State, TaskOutcome, holding
from floodmark.logs import get_logger

if TYPE_CHECKING:
    from floodmark.jobs.workflow.code import Action, Library, Surroundings
    from floodmark.jobs.workflow.document import RunIf, Task, Workflow

log = get_logger(__name__)
AT_ONCE = 4


@dataclass(frozen=True)
class Finished:
    """A run of a workflow that has ended."""

    workflow: str
    run: str
    started: datetime
    seconds: float
    ended: tuple[Ended, ...]
    resumed: tuple[str, ...] = ()
    """Tasks that an earlier run had done already."""
    failed_before: frozenset[str] = frozenset()
    """Tasks that the last run before this one left failed."""

    @property
    def failed(self) -> tuple[Ended, ...]:
        return tuple(each for each in self.ended if each.outcome.state in ("FAILED", "TIMEDOUT"))

    @property
    def exit_code(self) -> int:
        """0 if all tasks succeeded, 3 if some did, and the error's own code if none did (1 if their codes differ)."""
        bad = [each for each in self.ended if each.outcome.state != "SUCCESS"]
        if not bad:
            return 0
        if len(bad) < len(self.ended) or self.resumed:
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
    report: Callable[[Ended], None] = lambda _ended: None
    begin: Callable[[], None] = lambda: None
    """Called when the run has its lease and is about to begin."""
    at_once: int = AT_ONCE

    def go(self, only: frozenset[str] | None = None, tick: datetime | None = None) -> Finished:
        """Run the tasks (`only` these) and give how each ended; what they raise becomes their outcome.

        Without `only` and `tick` a run that follows a failed one takes what is missing; a tick of the schedule begins
        anew, since its tasks have new data to look for. Raises LeaseHeld, or ConfigError for a task without code.
        """
        chosen = only or frozenset(self.workflow.needs())
        actions = {key: self.library.action(self.workflow.task(key)) for key in self._in_order(chosen)}
        with holding(self.around.store, self.workflow.name, self.workflow.max_concurrent_runs) as memory:
            last = memory.last()
            remembered, done = self._begin(last, fresh=only is not None or tick is not None, tick=tick)
            self.begin()
            left = {key: action for key, action in actions.items() if key not in done}
            clock = time.monotonic()
            ended = _Course(self, left, memory, remembered).go()
            seconds = round(time.monotonic() - clock, 3)
        earlier = last.failed() & chosen if last else frozenset()
        run, begun = remembered.run, remembered.started
        return Finished(self.workflow.name, run, begun, seconds, ended, tuple(sorted(done)), earlier)

    def _in_order(self, chosen: frozenset[str]) -> list[str]:
        return [task.task_key for task in self.workflow.tasks if task.task_key in chosen]

    def _begin(
        self, last: Remembered | None, *, fresh: bool, tick: datetime | None
    ) -> tuple[Remembered, frozenset[str]]:
        """The run to add to, and the tasks that need not run again."""
        begun = Remembered(uuid.uuid4().hex[:12], datetime.now(timezone.utc), tick or (last.tick if last else None))
        if last is None or tick is not None:
            return begun, frozenset()
        done = last.succeeded()
        is_whole = done >= set(self.workflow.needs())
        if fresh:  # a part of the workflow: what the rest of the last run left stays as it is
            return replace(begun, tasks=last.tasks), frozenset()
        return (begun, frozenset()) if is_whole else (replace(begun, run=last.run, tasks=last.tasks), done)


@dataclass
class _Course:
    """The tasks of one run on their way through a pool of threads."""

    plan: WorkflowRun
    actions: Mapping[str, Action]
    memory: Memory
    remembered: Remembered
    states: dict[str, State] = field(default_factory=dict)
    ended: list[Ended] = field(default_factory=list)

    def go(self) -> tuple[Ended, ...]:
        needs = {k: [n for n in self.plan.workflow.task(k).depends_on if n in self.actions] for k in self.actions}
        order = TopologicalSorter(needs)
        order.prepare()
        deadline = self._deadline()
        running: dict[Future[Ended], str] = {}
        with ThreadPoolExecutor(self.plan.at_once, thread_name_prefix="workflow") as pool:
            while order.is_active():
                for key in order.get_ready():
                    running[pool.submit(self._one, key, needs[key], deadline)] = key
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    self._note(future.result())
                    order.done(running.pop(future))
        return tuple(self.ended)

    def _deadline(self) -> float | None:
        limit = self.plan.workflow.timeout_seconds
        return time.monotonic() + limit if limit else None

    def _one(self, key: str, needs: list[str], deadline: float | None) -> Ended:
        task = self.plan.workflow.task(key)
        left = None if deadline is None else deadline - time.monotonic()
        reason = self._why_not(task, [self.states[name] for name in needs], left)
        if reason is not None:
            return Ended(TaskOutcome(key, "SKIPPED", note=reason))
        log.info("task begins", workflow=self.plan.workflow.name, task=key)
        return tried(task, self.actions[key], replace(self.plan.around, timeout_seconds=left), self.plan.wait)

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

    def _note(self, ended: Ended) -> None:
        """Make the end of a task durable before what follows it begins."""
        self.states[ended.outcome.task] = ended.outcome.state
        self.ended.append(ended)
        self.remembered = self.remembered.with_outcome(ended.outcome)
        self.memory.keep(self.remembered)
        reach(f"after_task:{ended.outcome.task}")
        self.plan.report(ended)


def may_run(run_if: RunIf, upstream: list[State]) -> bool:
    """Whether a task may run, as Databricks judges it; one without upstream always may."""
    good = [state == "SUCCESS" for state in upstream]
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

"""Running workflows of plain functions: order, failures, retries, time, and going on where a run stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from floodmark.errors import ConfigError, LeaseHeld, SinkFailed, SourceRewritten, TaskTimedOut
from floodmark.jobs.workflow import Library, Surroundings, WorkflowRun
from floodmark.jobs.workflow.document import Workflow, workflow_in
from floodmark.jobs.workflow.running import WorkflowResult
from floodmark.stores.lease import hold
from floodmark.stores.memory import MemoryMarkStore

BROKEN = SinkFailed("orders", sink="lake", reason="disk full")
REWRITTEN = SourceRewritten("files in/", what="a.jsonl was rewritten", hint="floodmark marks reset orders")


class Tasks:
    """Functions named a, b, c… that note their calls, and raise what they were told to, once for each time."""

    def __init__(self, **raises: list[Exception]) -> None:
        self.calls: list[str] = []
        self.store = MemoryMarkStore()
        self._raises = raises

    def function(self, key: str) -> Callable[[], None]:
        def call() -> None:
            self.calls.append(key)
            if self._raises.get(key):
                raise self._raises[key].pop(0)

        return call

    def run(self, workflow: Workflow, *only: str, wait: Callable[[float], bool] = lambda _s: False) -> WorkflowResult:
        functions = {task.task_key: self.function(task.task_key) for task in workflow.tasks}
        around = Surroundings(lambda: pytest.fail("no session is needed"), self.store)
        plan = WorkflowRun(workflow, Library((), functions=functions), around, wait)
        return plan.go(frozenset(only) if only else None)


def workflow(*tasks: dict[str, object], **fields: object) -> Workflow:
    return workflow_in({"name": "daily", "tasks": list(tasks), **fields}, Path("daily.json"))


def states(finished: WorkflowResult) -> dict[str, str]:
    return {each.outcome.task: each.outcome.state for each in finished.ends}


CHAIN = workflow(
    {"task_key": "a"},
    {"task_key": "b", "depends_on": ["a"]},
    {"task_key": "c", "depends_on": ["b"]},
    {"task_key": "x"},
)


def test_tasks_run_after_those_they_depend_on() -> None:
    """And all of them did, so the next run begins anew."""
    tasks = Tasks()
    assert tasks.run(CHAIN).exit_code == 0
    assert [key for key in tasks.calls if key != "x"] == ["a", "b", "c"]
    tasks.run(CHAIN)
    assert sorted(tasks.calls) == ["a", "a", "b", "b", "c", "c", "x", "x"]


def test_independent_tasks_run_side_by_side() -> None:
    """Each waits for the other to have begun: in a row neither would end."""
    meeting = threading.Barrier(2, timeout=20)
    pair = workflow({"task_key": "a"}, {"task_key": "b"})
    library = Library((), functions={"a": lambda: meeting.wait() and None, "b": lambda: meeting.wait() and None})
    around = Surroundings(lambda: pytest.fail("no session is needed"), MemoryMarkStore())
    assert WorkflowRun(pair, library, around).go().exit_code == 0


def test_a_failure_skips_what_depends_on_it_and_nothing_else() -> None:
    """The reason says whose failure it was; part of the work is done, so the exit code is 3."""
    tasks = Tasks(b=[BROKEN])
    finished = tasks.run(CHAIN)
    assert states(finished) == {"a": "SUCCESS", "x": "SUCCESS", "b": "FAILED", "c": "SKIPPED"}
    assert finished.exit_code == 3
    notes = {each.outcome.task: each.outcome.note for each in finished.ends}
    assert notes == {"a": None, "x": None, "b": None, "c": "upstream b did not succeed"}


def test_the_next_run_takes_only_what_is_missing() -> None:
    """And is one run with the first: a third one begins anew."""
    tasks = Tasks(b=[BROKEN])
    first = tasks.run(CHAIN)
    tasks.calls.clear()
    second = tasks.run(CHAIN)
    assert (tasks.calls, second.resumed_tasks, second.exit_code) == (["b", "c"], ("a", "x"), 0)
    assert second.run == first.run
    assert tasks.run(CHAIN).run != first.run


def test_one_task_runs_alone_whatever_its_upstream_did() -> None:
    """Somebody asked for it by name; what it did counts for the next run."""
    tasks = Tasks(b=[BROKEN])
    tasks.run(CHAIN)
    tasks.calls.clear()
    assert states(tasks.run(CHAIN, "b")) == {"b": "SUCCESS"}
    assert states(tasks.run(CHAIN)) == {"c": "SUCCESS"}


def test_a_task_is_tried_again_as_often_as_its_file_says() -> None:
    """Two failures, then success: three attempts."""
    tasks = Tasks(a=[BROKEN, BROKEN])
    finished = tasks.run(workflow({"task_key": "a", "max_retries": 2, "min_retry_interval_millis": 1}))
    assert (finished.ends[0].outcome.state, finished.ends[0].outcome.attempts) == ("SUCCESS", 3)


def test_a_failure_that_needs_a_person_is_not_tried_again() -> None:
    """And a workflow of which nothing succeeded ends with that error's own code."""
    tasks = Tasks(a=[REWRITTEN])
    finished = tasks.run(workflow({"task_key": "a", "max_retries": 5, "min_retry_interval_millis": 1}))
    assert (finished.ends[0].outcome.attempts, finished.exit_code) == (1, 5)


def test_a_task_that_takes_too_long_is_given_up() -> None:
    """Its time is over, its downstream is skipped."""
    over = threading.Event()
    slow = workflow({"task_key": "a", "timeout_seconds": 0.05}, {"task_key": "b", "depends_on": ["a"]})
    library = Library((), functions={"a": lambda: over.wait(0.5) and None, "b": lambda: None})
    around = Surroundings(lambda: pytest.fail("no session is needed"), MemoryMarkStore())
    finished = WorkflowRun(slow, library, around).go()
    assert states(finished) == {"a": "TIMEDOUT", "b": "SKIPPED"}
    assert isinstance(finished.ends[0].error, TaskTimedOut)


@pytest.mark.parametrize(
    ("run_if", "state"),
    [
        ("ALL_SUCCESS", "SKIPPED"),
        ("ALL_DONE", "SUCCESS"),
        ("AT_LEAST_ONE_FAILED", "SUCCESS"),
        ("ALL_FAILED", "SKIPPED"),
        ("AT_LEAST_ONE_SUCCESS", "SUCCESS"),
        ("NONE_FAILED", "SKIPPED"),
    ],
)
def test_run_if_means_what_databricks_says(run_if: str, state: str) -> None:
    """One upstream succeeded, one failed."""
    graph = workflow(
        {"task_key": "a"}, {"task_key": "b"}, {"task_key": "c", "depends_on": ["a", "b"], "run_if": run_if}
    )
    assert states(Tasks(b=[BROKEN]).run(graph))["c"] == state


def test_a_stop_lets_the_running_task_end_and_skips_the_rest() -> None:
    """SIGTERM in the middle of the first task."""
    asked = threading.Event()
    tasks = Tasks()
    finished = tasks.run(CHAIN, "a", "b", wait=lambda _s: bool(tasks.calls) or asked.is_set())
    assert states(finished) == {"a": "SUCCESS", "b": "SKIPPED"}
    assert finished.ends[1].outcome.note == "stopped before it"


def test_a_second_run_at_the_same_time_is_refused() -> None:
    """max_concurrent_runs is 1 unless the file says more."""
    tasks = Tasks()
    with hold(tasks.store, "workflow.daily"), pytest.raises(LeaseHeld):
        tasks.run(CHAIN)
    with hold(tasks.store, "workflow.daily"):
        assert tasks.run(workflow({"task_key": "a"}, max_concurrent_runs=2)).exit_code == 0


def test_a_task_without_code_is_refused_by_name_before_anything_runs() -> None:
    """Half a workflow is not begun."""
    around = Surroundings(lambda: pytest.fail("no session is needed"), MemoryMarkStore())
    ran: list[str] = []
    library = Library((), functions={"a": lambda: ran.append("a")})
    with pytest.raises(ConfigError, match="task 'b' has no code"):
        WorkflowRun(CHAIN, library, around).go()
    assert ran == []


def test_the_time_of_the_whole_workflow_is_bounded_too() -> None:
    """What had not begun by then is skipped."""
    library = Library((), functions={"a": lambda: time.sleep(0.1), "b": lambda: None})
    bounded = workflow({"task_key": "a"}, {"task_key": "b", "depends_on": ["a"]}, timeout_seconds=0.01)
    around = Surroundings(lambda: pytest.fail("no session is needed"), MemoryMarkStore())
    assert states(WorkflowRun(bounded, library, around).go()) == {"a": "TIMEDOUT", "b": "SKIPPED"}

"""Building the tables of a layer: each after those it reads, side by side where they may."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.errors import FloodmarkError, TaskFailed
from floodmark.jobs.job import Job
from floodmark.jobs.table_readers import needs_of
from floodmark.jobs.workflow import Library, Surroundings
from floodmark.jobs.workflow.document import Dependency, Task, Workflow
from floodmark.jobs.workflow.running import WorkflowRun
from floodmark.spark.session import session_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.jobs.workflow.running import TaskEnd, WorkflowResult
    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import Receipt


AT_ONCE = 4


@dataclass(frozen=True)
class Layer:
    """Jobs that belong together; who waits for whom follows from the Delta tables that they read and fill.

    >>> raw = fm.Job("raw", fm.sources.Files("/in", schema="id long"), [fm.sinks.Delta("/lake/raw")])
    >>> orders = fm.Job("orders", fm.sources.Delta("/lake/raw"), [fm.sinks.Delta("/lake/orders")])
    >>> Layer("silver", (orders, raw)).needs()
    {'orders': ('raw',), 'raw': ()}
    """

    name: str
    jobs: tuple[Job, ...]

    def needs(self) -> dict[str, tuple[str, ...]]:
        """By job: the jobs of this layer that fill what it reads."""
        return needs_of(self.jobs)

    def build(self, spark: SparkSession | None, store: MarkStore, *, at_once: int = AT_ONCE) -> dict[str, Receipt]:
        """Run every job, and give the receipts by name.

        One that fails is no reason to stop the others, except those that read its table: they are skipped. Raises
        TaskFailed at the end, which names both; the next build does what is missing.
        """
        receipts: dict[str, Receipt] = {}
        library = Library((), functions={job.name: _run_and_keep(job, store, receipts) for job in self.jobs})
        tasks = tuple(
            Task(task_key=name, dependencies=tuple(Dependency(task_key=each) for each in upstream))
            for name, upstream in self.needs().items()
        )
        around = Surroundings(session_of(spark), store)
        plan = WorkflowRun(Workflow(name=self.name, tasks=tasks), library, around, at_once=at_once)
        # All of them, also after a failure: rows may have come for those that succeeded, and a look costs nothing.
        require_success(plan.go(only=frozenset(self.needs())))
        return receipts


def _run_and_keep(job: Job, store: MarkStore, receipts: dict[str, Receipt]) -> Callable[[SparkSession], None]:
    """The job as the function of a task, which puts its receipt aside."""

    def run(spark: SparkSession) -> None:
        receipts[job.name] = job.run(spark, store)

    return run


def require_success(finished: WorkflowResult) -> None:
    """Raises TaskFailed for a layer of which not all was built."""
    reasons = [_reason(each) for each in finished.ends if each.outcome.state != "SUCCESS"]
    if reasons:
        raise TaskFailed(finished.workflow, reason="; ".join(reasons))


def _reason(ended: TaskEnd) -> str:
    if ended.error is None:
        return f"{ended.outcome.task} was skipped"
    message = ended.error.message if isinstance(ended.error, FloodmarkError) else str(ended.error)
    return f"{ended.outcome.task}: {message.rstrip('.')}"

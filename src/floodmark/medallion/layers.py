"""Building the tables of a layer: each after those it reads, side by side where they may."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.errors import FloodmarkError, TaskFailed
from floodmark.jobs.job import Job, session_of
from floodmark.jobs.workflow.code import Library, Surroundings
from floodmark.jobs.workflow.document import Task, Workflow
from floodmark.jobs.workflow.running import WorkflowRun
from floodmark.medallion.facts import TouchedDates, place_of
from floodmark.sinks import Delta, Scd1
from floodmark.sinks.delta import DeltaDates
from floodmark.sources import Delta as DeltaSource
from floodmark.spark.tables import DeltaPlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.jobs.workflow.running import Ended, Finished
    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import Receipt


AT_ONCE = 4


@dataclass(frozen=True)
class Layer:
    """Jobs that belong together; who waits for whom follows from the Delta tables that they read and fill."""

    name: str
    jobs: tuple[Job, ...]

    def needs(self) -> dict[str, tuple[str, ...]]:
        """By job: the jobs of this layer that fill what it reads."""
        fills = {job.name: filled_by(job) for job in self.jobs}
        return {
            job.name: tuple(other for other, tables in fills.items() if other != job.name and tables & read_by(job))
            for job in self.jobs
        }

    def build(self, spark: SparkSession | None, store: MarkStore, *, at_once: int = AT_ONCE) -> dict[str, Receipt]:
        """Run every job, and give the receipts by name.

        One that fails is no reason to stop the others, except those that read its table: they are skipped. Raises
        TaskFailed at the end, which names both; the next build does what is missing.
        """
        receipts: dict[str, Receipt] = {}
        library = Library((), functions={job.name: self._running(job, store, receipts) for job in self.jobs})
        tasks = tuple(Task(task_key=name, depends_on=upstream) for name, upstream in self.needs().items())
        around = Surroundings(session_of(spark), store)
        plan = WorkflowRun(Workflow(name=self.name, tasks=tasks), library, around, at_once=at_once)
        # All of them, also after a failure: rows may have come for those that succeeded, and a look costs nothing.
        require_success(plan.go(only=frozenset(self.needs())))
        return receipts

    def _running(self, job: Job, store: MarkStore, receipts: dict[str, Receipt]) -> Callable[[SparkSession], None]:
        def run(spark: SparkSession) -> None:
            receipts[job.name] = job.run(spark, store)

        return run


def require_success(finished: Finished) -> None:
    """Raises TaskFailed for a layer of which not all was built."""
    told = [_told(each) for each in finished.ended if each.outcome.state != "SUCCESS"]
    if told:
        raise TaskFailed(finished.workflow, reason="; ".join(told))


def _told(ended: Ended) -> str:
    if ended.error is None:
        return f"{ended.outcome.task} was skipped"
    said = ended.error.message if isinstance(ended.error, FloodmarkError) else str(ended.error)
    return f"{ended.outcome.task}: {said.rstrip('.')}"


def read_by(job: Job) -> frozenset[str]:
    """The Delta tables that a job reads."""
    plain = [_place(source) for source in job.sources if isinstance(source, DeltaSource)]
    facts = [source for source in job.sources if isinstance(source, TouchedDates)]
    return frozenset([*plain, *(str(place_of(each)) for fact in facts for each in fact.inputs)])


def filled_by(job: Job) -> frozenset[str]:
    """The Delta tables that a job fills."""
    return frozenset(_place(sink) for sink in job.sinks if isinstance(sink, Delta | DeltaDates | Scd1))


def _place(table: Delta | DeltaDates | Scd1 | DeltaSource) -> str:
    return str(DeltaPlace(table.path, table.table))

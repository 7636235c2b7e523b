"""Marks that were made elsewhere: under another job's name, or in another store."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from floodmark.jobs.acts import decide
from floodmark.step import RunRequest
from floodmark.stores.lease import hold

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from floodmark.jobs.job import Job
    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import JobRecord


def take_marks(job: Job, made_elsewhere: JobRecord, session: Callable[[], SparkSession], store: MarkStore) -> None:
    """Give the job these marks, under a number above every one that its sinks know. Raises LeaseHeld."""
    step = job.step(session, store, RunRequest())
    marks, sources, extras = made_elsewhere.marks, made_elsewhere.sources, made_elsewhere.extras
    with hold(store, job.name) as lease:
        decide(step, replace(step.read(), marks=marks, sources=sources, extras=extras, origin="import"), lease)

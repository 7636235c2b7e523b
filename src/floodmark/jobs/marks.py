"""Marks that were made elsewhere: under another job's name, in another store, or by another system."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError
from floodmark.hwm import HWM, FileListHWM, FileModifiedTimeHWM, VersionHWM
from floodmark.sources.contract import Request
from floodmark.step import RunRequest
from floodmark.step.run import save_decision
from floodmark.stores.lease import hold
from floodmark.stores.record import JobRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from floodmark.jobs.job import Job
    from floodmark.sources.contract import Source
    from floodmark.stores.contract import MarkStore


WHOLE = (FileListHWM, FileModifiedTimeHWM, VersionHWM)
"""Kinds that have one form wherever they are made; of a column or a topic, the source itself says it."""


def take_marks(job: Job, made_elsewhere: JobRecord, session: Callable[[], SparkSession], store: MarkStore) -> None:
    """Give the job these marks, under a number above every one that its sinks know. Raises LeaseHeld."""
    step = job.step(session, store, RunRequest())
    marks, sources, extras = made_elsewhere.marks, made_elsewhere.sources, made_elsewhere.extras
    with hold(store, job.name) as lease:
        save_decision(step, replace(step.read(), marks=marks, sources=sources, extras=extras, origin="import"), lease)


def only_source(job: Job) -> Source:
    """The source that a foreign mark is for. Raises ConfigError if the job has several."""
    if len(job.sources) != 1:
        raise ConfigError(
            f"job '{job.name}' has {len(job.sources)} sources, and a mark from elsewhere is of one.",
            hint="floodmark marks export, add the mark to the file, and floodmark marks import it",
        )
    return job.sources[0]


def record_of(job: Job, found: object, session: Callable[[], SparkSession]) -> JobRecord:
    """The record of a job whose one source has this mark, or a mark of its own kind at this value.

    Raises MarkInvalid if the kind refuses the value, SourceUnreadable if the source could not be asked for its kind.
    """
    source = only_source(job)
    if isinstance(found, WHOLE):
        mark: HWM[Any] = found.copy({"name": source.name})
    else:
        mark = _kind_of(source, session).set_value(found.dump() if isinstance(found, HWM) else found)
    return JobRecord(job.name, marks={source.name: mark}, sources={source.name: source.fingerprint(session)})


def _kind_of(source: Source, session: Callable[[], SparkSession]) -> HWM[Any]:
    """Some mark of the source: a look that asks for what is yet to come always has one, and reads nothing."""
    source.fingerprint(session)
    sight = source.look(None, Request(start="latest", waits=True), session)
    if sight.span is None:
        hint = f"{sight.held_reason}: try again" if sight.held_reason else "run the job once"
        raise ConfigError(f"source '{source.name}' does not tell what its marks look like.", hint=hint)
    return sight.span.upto

"""The project file: what it may say (`kinds`, `models`), how it is read, linted and checked, and here, its jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.errors import JobNotFound
from floodmark.hwm.parsing import seconds_in
from floodmark.lazy import export_lazily
from floodmark.locations import load_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from floodmark.jobs.job import Job
    from floodmark.project.kinds import Site as Site
    from floodmark.project.kinds.rules import RuleModel as RuleModel
    from floodmark.project.models import JobModel as JobModel
    from floodmark.project.models import Project as Project
    from floodmark.sinks.contract import Sink
    from floodmark.step import Transform

export_lazily(__name__, "build_job", "build_jobs", "select_jobs")


def build_jobs(project: Project, site: Site, select: Sequence[str] = ()) -> list[Job]:
    """The selected jobs (all, if none is named) in the order of the file. Raises JobNotFound or another ConfigError."""
    return [build_job(model, site) for model in select_jobs(project, select)]


def select_jobs(project: Project, select: Sequence[str]) -> list[JobModel]:
    """The models of the selected jobs; a name nobody has is an error."""
    known = [job.name for job in project.jobs]
    for name in select:
        if name not in known:
            raise JobNotFound(name, known=known)
    return [job for job in project.jobs if not select or job.name in select]


def build_job(model: JobModel, site: Site) -> Job:
    """One job; importing the user's modules happens here."""
    from floodmark.jobs.job import Job, Retries
    from floodmark.project.python_jobs import GivenJob

    if isinstance(model, GivenJob):
        return model.job
    aside = {name: site.path(path) for name, path in model.places_aside().items()}
    return Job(
        name=model.name,
        source=model.source.build(site),
        sinks=_sinks(model, site),
        transform=_transform(model, site),
        rules=[rule.build(site) for rule in model.rules],
        quarantine=aside["quarantine"],
        dead_letters=aside.get("dead_letters"),
        on_schema_change=model.on_schema_change,
        max_rows=model.source.read.max_rows,
        chunk_rows=getattr(model.source.read, "chunk_rows", None),  # of a database alone
        every=model.every,
        retries=Retries(
            attempts=model.retries.attempts, backoff_seconds=seconds_in(model.retries.backoff, field="backoff")
        ),
        spool=site.path(model.spool),
        tags=model.tags,
    )


def _sinks(model: JobModel, site: Site) -> list[Sink]:
    """A dimension's tables know by which columns a member is told from another one with its key."""
    built = [sink.build(site) for sink in model.sinks]
    dimension = model.transform.dimension if model.transform else None
    return [dimension.build().guard(sink) for sink in built] if dimension else built


def _transform(model: JobModel, site: Site) -> str | Callable[[DataFrame], DataFrame] | Transform | None:
    if model.transform is None:
        return None
    if model.transform.dimension is not None:
        return model.transform.dimension.build()
    if model.transform.python is None:
        return model.transform.sql
    function: Callable[[DataFrame], DataFrame] = load_name(model.transform.python, site.folder)  # type: ignore[assignment]
    return function

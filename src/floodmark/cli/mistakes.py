"""What is wrong with a project before anything is begun: all of it at once, on stderr, and exit 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from floodmark.cli.output import USAGE, print_failure
from floodmark.errors import ConfigError, JobNotFound, ModuleNeedsSpark
from floodmark.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floodmark.cli.invocation import Invocation
    from floodmark.jobs.job import Job


log = get_logger(__name__)


def stop_at_mistakes(invocation: Invocation, select: Sequence[str], exclude: Sequence[str] = ()) -> None:
    """Lint, and end the command where a selected job has an error: a JVM takes seconds to find the first of them."""
    report = invocation.lint()
    if not report.has_errors:
        return
    names = _selected(invocation, select, exclude)
    errors = [each for each in report.findings if each.severity == "error"]
    found = [each for each in errors if names is None or each.job is None or each.job in names]
    for each in found:
        job = f"job '{each.job}': " if each.job else ""
        print_failure(f"{each.where}: {job}{each.message.rstrip('.')} ({each.rule}).", each.hint, invocation)
    if found:
        raise typer.Exit(USAGE)


def _selected(invocation: Invocation, select: Sequence[str], exclude: Sequence[str]) -> set[str] | None:
    """The names of the jobs that are meant; None, where the files are too wrong to tell."""
    try:
        return {job.name for job in invocation.selected(select, exclude)}
    except JobNotFound:
        return set(select)  # whoever builds the jobs says so
    except ConfigError:
        return None


def jobs_without_spark(invocation: Invocation, select: Sequence[str], exclude: Sequence[str] = ()) -> list[Job]:
    """The selected jobs, for a command that starts no JVM: one whose module needs Spark is named and left out."""
    try:
        return list(invocation.jobs_as_they_are(select, exclude=exclude))
    except ModuleNeedsSpark:
        names = [job.name for job in invocation.selected(select, exclude)]
        return [job for name in names for job in _job_or_none(invocation, name)]


def _job_or_none(invocation: Invocation, name: str) -> Sequence[Job]:
    try:
        return invocation.jobs_as_they_are([name])
    except ModuleNeedsSpark as error:
        log.warning(error.message, job=name)
        return ()

"""`floodmark marks copy | export`: marks that go to another job or to a file, and how a job takes marks over."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import DryRun, Yes, print_json, print_line, shown
from floodmark.errors import ConfigError, JobNotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floodmark.stores.record import JobRecord

FORMAT = "floodmark-marks/1"


def copy(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="FROM", help="The job whose marks are taken.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The job of this project that gets them.")],
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Give a job the marks of another, as after a job was renamed."""
    invocation: Invocation = ctx.obj
    record = invocation.store().read(source)
    if record is None:
        raise JobNotFound(source, known=invocation.store().jobs())
    take_over(invocation, [replace(record, job=target)], yes=yes, dry_run=dry_run)


def export(
    ctx: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="Where to; stdout if left out.")] = None,
) -> None:
    """Write all marks of the namespace as JSON."""
    invocation: Invocation = ctx.obj
    store = invocation.store()
    records = [record.without_intent().serialize() for job in store.jobs() if (record := store.read(job)) is not None]
    document = {"format": FORMAT, "namespace": store.namespace, "records": records}
    if file is None:
        print_json(document)
        return
    file.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print_line(f"{len(records)} jobs written to {file}")


def read_export(file: Path) -> list[JobRecord]:
    """The records in the file. Raises ConfigError if it is not an export."""
    from floodmark.stores.record import JobRecord

    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}.", hint="floodmark marks export FILE writes one") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ConfigError(f"{file} is not an export of marks.", hint="floodmark marks export FILE writes one")
    return [JobRecord.deserialize(record) for record in document["records"]]


def take_over(invocation: Invocation, records: Sequence[JobRecord], *, yes: bool, dry_run: bool) -> None:
    """Put the records' marks into the jobs of this project, each above every number its sinks have recorded."""
    jobs = {job.name: job for job in invocation.jobs([record.job for record in records])} if records else {}
    for record in records:
        before = invocation.store().read(record.job)
        print_line(f"{record.job}: mark {_values(before)} becomes {_values(record)}")
    if dry_run or not records:
        return
    if not yes:
        typer.confirm("go on?", abort=True)
    from floodmark.jobs.taking_over import take_marks

    for record in records:
        take_marks(jobs[record.job], record, invocation.session(), invocation.store())


def _values(record: JobRecord | None) -> str:
    return ", ".join(shown(mark.show()) for mark in record.marks.values()) if record and record.marks else "none"

"""`floodmark rollback`: tables and marks of a job, back together to how a run left them."""

from __future__ import annotations

from typing import Annotated

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import DryRun, Yes, agreed, print_line, shown

app = typer.Typer(add_completion=False)


@app.command()
def rollback(
    ctx: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's name.")],
    to: Annotated[str, typer.Option(metavar="N", help="The batch number, or the id of a run, to go back to.")],
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Put the Delta tables and the marks of a job back to how one of its runs left them."""
    invocation: Invocation = ctx.obj
    [selected] = invocation.jobs([job])
    if agreed(f"undo what job '{job}' did since {to}, in its tables and its marks", yes=yes, dry_run=dry_run):
        record = selected.rollback(to, invocation.session(), invocation.store())
        marks = ", ".join(shown(mark.show()) for mark in record.marks.values())
        print_line(f"{job}: as {to} left it, mark {marks or 'none'}, number {record.number}")

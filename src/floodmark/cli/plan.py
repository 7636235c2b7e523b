"""`floodmark plan`: what the next run would do."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import AsJson, Select, mark_text, print_json, print_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floodmark.jobs.job import Plan


app = typer.Typer(add_completion=False)
FOUND_CHANGES = 6
Detailed = Annotated[bool, typer.Option("--detailed-exitcode", help="Exit 6 if there is something to do.")]


@app.command()
def plan(
    ctx: typer.Context,
    select: Select = None,
    start: Annotated[str | None, typer.Option("--from", help="As if run with --from.")] = None,
    full_refresh: Annotated[bool, typer.Option("--full-refresh", help="As if run with --full-refresh.")] = False,
    max_rows: Annotated[int | None, typer.Option(min=1, help="As if run with --max-rows.")] = None,
    detailed_exitcode: Detailed = False,
    as_json: AsJson = False,
) -> None:
    """Show marks from and to, rows expected and schema changes; touches nothing."""
    invocation: Invocation = ctx.obj
    session, store = invocation.session(), invocation.store()
    plans = [
        job.plan(session, store, start=start, full_refresh=full_refresh, max_rows=max_rows)
        for job in invocation.jobs(select or ())
    ]
    print_plans(plans, as_json=as_json)
    if detailed_exitcode and any(each.has_work for each in plans):
        raise typer.Exit(FOUND_CHANGES)


def print_plans(plans: Sequence[Plan], *, as_json: bool) -> None:
    """The plans as one document or as lines."""
    if as_json:
        print_json({"plans": [asdict(each) for each in plans]})
        return
    for each in plans:
        for line in _lines(each):
            print_line(line)


def _lines(plan: Plan) -> list[str]:
    held = f"  {plan.rows_held_back} held back: {plan.held_reason}"
    if not plan.has_work:
        what = "nothing to read yet" if plan.rows_held_back else "nothing new"
        return [f"{plan.job}: {what}, mark {mark_text(plan.mark_before)}", *([held] if plan.rows_held_back else [])]
    count = "not known before reading" if plan.expected_rows is None else str(plan.expected_rows)
    return [
        f"{plan.job}: low {mark_text(plan.mark_before)}, high {mark_text(plan.mark_after)}, count {count}",
        *([f"  batch {plan.open_batch} is open and is finished first"] if plan.open_batch is not None else []),
        *([held] if plan.rows_held_back else []),
        *(f"  schema: {change}" for change in plan.schema_changes),
        *(f"  rule {rule}" for rule in plan.rules),
        *(f"  {note}" for note in plan.notes),
    ]

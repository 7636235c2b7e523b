"""`floodmark backfill`: rows of a range that the mark has passed are delivered again."""

from __future__ import annotations

from typing import Annotated

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import AsJson, OneJob, Select, one_job, print_json, print_line, run_entry, run_line

app = typer.Typer(add_completion=False)


@app.command()
def backfill(
    ctx: typer.Context,
    job: OneJob = None,
    start: Annotated[str, typer.Option("--from", help="The first value of the range.")] = ...,  # type: ignore[assignment]
    stop: Annotated[str, typer.Option("--to", help="The value before which the range ends.")] = ...,  # type: ignore[assignment]
    chunk: Annotated[int | None, typer.Option(min=1, help="About so many rows at a time (500000).")] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Give up another range that is not finished.")] = False,
    select: Select = None,
    as_json: AsJson = False,
) -> None:
    """Deliver the rows of a range again; the mark stays. Killed and called again, it goes on where it was."""
    invocation: Invocation = ctx.obj
    [chosen] = invocation.jobs([one_job(job, select)], console="stderr" if as_json else "stdout")
    receipt = chosen.backfill(start, stop, invocation.session(), invocation.store(), chunk_rows=chunk, restart=restart)
    if as_json:
        print_json({"backfill": {**run_entry(receipt), "notes": list(receipt.notes)}})
        return
    print_line(run_line(receipt))
    for note in receipt.notes:
        print_line(f"  {note}")

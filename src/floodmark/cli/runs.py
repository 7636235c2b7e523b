"""`floodmark runs`: receipts of past runs, without a JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import AsJson, mark_text, print_json, print_line, print_table, run_entry

if TYPE_CHECKING:
    from floodmark.stores.record import Receipt


app = typer.Typer(add_completion=False)


@app.command()
def runs(
    ctx: typer.Context,
    job: Annotated[str | None, typer.Option(help="Only the runs of this job.")] = None,
    last: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show what past runs did, newest first."""
    invocation: Invocation = ctx.obj
    receipts = invocation.store().runs(job, limit=last)
    if as_json:
        print_json({"runs": [_entry(receipt, invocation) for receipt in receipts]})
        return
    if not receipts:
        print_line("no runs yet")
        return
    header = ("run", "started", "job", "status", "read", "written", "mark after", "s")
    print_table(header, [_row(each) for each in receipts])
    for receipt in receipts:
        if receipt.error:
            print_line(invocation.scrub(f"{receipt.started:%Y-%m-%d %H:%M:%S} {receipt.job}: {receipt.error}"))


def _entry(receipt: Receipt, invocation: Invocation) -> dict[str, object]:
    error = invocation.scrub(receipt.error) if receipt.error else None
    started = receipt.started.isoformat()
    more = {"run": receipt.run, "started": started, "number": receipt.number, "durations": dict(receipt.durations)}
    return {**run_entry(receipt), "error": error, **more, "notes": list(receipt.notes)}


def _row(receipt: Receipt) -> tuple[str, ...]:
    written = ", ".join(f"{sink} {rows}" for sink, rows in receipt.rows_written.items())
    started, seconds = f"{receipt.started:%Y-%m-%d %H:%M:%S}", f"{receipt.seconds:.1f}"
    counts = (str(receipt.rows_read), written, mark_text(receipt.mark_after))
    return (receipt.run, started, receipt.job, receipt.status, *counts, seconds)

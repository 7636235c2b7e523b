"""`floodmark backfill | reconcile`: a range delivered again, and a source compared with its sink; the mark stays."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import (
    AsJson,
    Exclude,
    OneJob,
    Select,
    counted,
    one_job,
    print_json,
    print_line,
    run_entry,
    run_line,
    words,
)
from floodmark.cli.progress import showing
from floodmark.cli.run import telling_of
from floodmark.phases import phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from floodmark.jobs.reconcile import ReconcileResult


backfill_app = typer.Typer(add_completion=False)


@backfill_app.command()
def backfill(
    ctx: typer.Context,
    jobs: OneJob = None,
    start: Annotated[str, typer.Option("--from", metavar="VALUE", help="The first value of the range.")] = ...,  # type: ignore[assignment]
    stop: Annotated[str, typer.Option("--to", metavar="VALUE", help="The value before which the range ends.")] = ...,  # type: ignore[assignment]
    chunk: Annotated[int | None, typer.Option(min=1, help="About so many rows at a time (500000).")] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Give up another range that is not finished.")] = False,
    select: Select = None,
    exclude: Exclude = None,
    as_json: AsJson = False,
) -> None:
    """Deliver the rows of a range again; the mark stays. Killed and called again, it goes on where it was."""
    invocation: Invocation = ctx.obj
    chosen = one_job(invocation, words(jobs, select), exclude, console="stderr" if as_json else "stdout")
    session, store = invocation.session(), invocation.store()
    with showing(invocation, as_json=as_json), telling_of(invocation, chosen) as heard:
        receipt = heard.backfill(start, stop, session, store, chunk_rows=chunk, restart=restart)
    if as_json:
        print_json({"backfill": {**run_entry(receipt), "notes": list(receipt.notes)}})
        return
    print_line(run_line(receipt))
    for note in receipt.notes:
        print_line(f"  {note}")


reconcile_app = typer.Typer(add_completion=False)
FOUND_DIFFERENCES = 5


@reconcile_app.command()
def reconcile(
    ctx: typer.Context,
    jobs: OneJob = None,
    start: Annotated[str | None, typer.Option("--from", metavar="VALUE", help="The first value of the range.")] = None,
    stop: Annotated[
        str | None, typer.Option("--to", metavar="VALUE", help="The value before which the range ends.")
    ] = None,
    by: Annotated[
        Literal["keys", "hash"], typer.Option(help="Compare whole rows, or only which keys there are.")
    ] = "hash",
    sink: Annotated[str | None, typer.Option(help="Which of the job's tables, if it has several.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="A column of the key, if the file names none.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="A column that is not compared; may be repeated.")] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Put right what differs.")] = False,
    select: Select = None,
    exclude: Exclude = None,
    as_json: AsJson = False,
) -> None:
    """Compare source and table by key, at or below the mark. Exit 5 if they differ and nothing was repaired."""
    invocation: Invocation = ctx.obj
    chosen = one_job(invocation, words(jobs, select), exclude, console="stderr" if as_json else "stdout")
    session, store = invocation.session(), invocation.store()
    shown = showing(invocation, as_json=as_json)
    with shown, phase("comparing", chosen.name), telling_of(invocation, chosen) as heard:
        compare = partial(heard.reconcile, session, store, start=start, stop=stop, sink=sink, by=by)
        found = compare(key=key or (), ignore=ignore or (), repair=repair)
    if as_json:
        receipt = run_entry(found.receipt) if found.receipt else None
        print_json({"reconcile": {**asdict(found), "agrees": found.agrees, "receipt": receipt}})
    else:
        for line in _difference_lines(found):
            print_line(line)
    if not found.agrees:
        raise typer.Exit(FOUND_DIFFERENCES)


def _difference_lines(found: ReconcileResult) -> list[str]:
    what = f"{found.job} and {found.sink}, {found.bounds}: {found.compared} keys compared"
    counts = f"{found.missing} missing, {found.extra} extra, {found.different} different"
    same = not (found.missing or found.extra or found.different)
    return [
        f"{what}, all the same" if same else f"{what}, {counts}",
        *(f"  {note}" for note in found.notes),
        *(f"  {s.what}: {_key_text(s.key)}{' in ' + ', '.join(s.columns) if s.columns else ''}" for s in found.samples),
        *([f"  repaired: {counted(sum(found.receipt.rows_written.values()), 'row')}"] if found.receipt else []),
        *(["  Try: --repair"] if not found.agrees else []),
    ]


def _key_text(key: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in key.items())

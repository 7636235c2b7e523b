"""`floodmark marks`: show and history, which need no JVM, and set and reset, which fence the sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli import marks_import, marks_transfer, marks_upkeep
from floodmark.cli.invocation import Invocation
from floodmark.cli.output import AsJson, DryRun, Yes, agreed, print_json, print_line, print_table, shown
from floodmark.errors import JobNotFound, LeaseHeld

if TYPE_CHECKING:
    from collections.abc import Iterator

    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import JobRecord

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Show, move, copy and carry over the marks.")
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's name.")]


@app.command()
def show(
    ctx: typer.Context,
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Only this job.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show how far each job has read."""
    invocation: Invocation = ctx.obj
    store = invocation.store()
    records = [record for name in chosen(invocation, store, job) if (record := store.read(name)) is not None]
    rows = [row for record in records for row in mark_rows(record)]
    if as_json:
        print_json({"marks": rows})
        return
    if not rows:
        print_line(f"{job}: no mark" if job else "no marks yet")
    else:
        print_table(("job", "type", "value", "number", "modified"), [_cells(row) for row in rows])
    for record in records:
        if record.intent is not None:
            print_line(f"{record.job}: batch {record.intent.number} is open; the next run finishes it")


@app.command()
def history(
    ctx: typer.Context,
    job: JobArgument,
    last: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show where a job's mark has been, newest first."""
    invocation: Invocation = ctx.obj
    store = invocation.store()
    chosen(invocation, store, job)
    entries = [{**row, "origin": r.origin} for r in store.history(job, limit=last) for row in mark_rows(r, resets=True)]
    if as_json:
        print_json({"history": entries})
        return
    header = ("job", "type", "value", "number", "modified", "by")
    print_table(header, [(*_cells(entry), str(entry["origin"])) for entry in entries])


@app.command("set")
def set_(
    ctx: typer.Context,
    job: JobArgument,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="What the mark becomes; may lie below it.")],
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Put a job's mark somewhere else; the next run reads what lies above it."""
    invocation: Invocation = ctx.obj
    if _agreed(invocation, job, f"set the mark of '{job}' to {value}", yes=yes, dry_run=dry_run):
        [selected] = invocation.jobs([job])
        mark = selected.set_mark(value, invocation.session(), invocation.store())
        print_line(f"{job}: mark {shown(mark.show())}")


@app.command()
def reset(ctx: typer.Context, job: JobArgument, yes: Yes = False, dry_run: DryRun = False) -> None:
    """Forget a job's mark; the next run delivers everything again."""
    invocation: Invocation = ctx.obj
    if _agreed(invocation, job, f"forget the mark of '{job}' and deliver everything again", yes=yes, dry_run=dry_run):
        [selected] = invocation.jobs([job])
        selected.reset(invocation.session(), invocation.store())
        print_line(f"{job}: no mark")


app.command("copy")(marks_transfer.copy)
app.command("export")(marks_transfer.export)
app.command("import")(marks_import.import_)
app.command("init")(marks_upkeep.init)
app.command("prune")(marks_upkeep.prune)


def _agreed(invocation: Invocation, job: str, act: str, *, yes: bool, dry_run: bool) -> bool:
    """Whether to go on; refuses at once while another run holds the job's lease."""
    from floodmark.stores.owner import alive

    invocation.jobs([job])
    lease, record = invocation.store().lease(job), invocation.store().read(job)
    if lease is not None and alive(lease.owner):
        raise LeaseHeld(job, holder=str(lease.owner), since=lease.since.isoformat(timespec="seconds"))
    now = ", ".join(shown(mark.show()) for mark in record.marks.values()) if record else ""
    print_line(f"{job}: mark {now or 'none'}")
    return agreed(act, yes=yes, dry_run=dry_run)


def chosen(invocation: Invocation, store: MarkStore, job: str | None) -> list[str]:
    """The jobs with a record, or the one that was named: the store or the project has to know it."""
    stored = list(store.jobs())
    if job is None:
        return stored
    declared = invocation.document().values.get("jobs")
    names = [str(each.get("name")) for each in declared if isinstance(each, dict)] if isinstance(declared, list) else []
    if job not in (*stored, *names):
        raise JobNotFound(job, known=sorted({*stored, *names}))
    return [job]


def mark_rows(record: JobRecord, *, resets: bool = False) -> Iterator[dict[str, object]]:
    """One row for each source of the job; with `resets`, one also where there is no mark."""
    for source, mark in record.marks.items():
        changed = mark.modified_time or record.modified_time
        yield _row(record, mark.kind, mark.show(), changed.isoformat() if changed else None, record.sources.get(source))
    if resets and not record.marks:
        yield _row(record, None, None, record.modified_time.isoformat() if record.modified_time else None, None)


def _row(
    record: JobRecord, kind: str | None, value: object, changed: str | None, found: str | None
) -> dict[str, object]:
    facts = {"job": record.job, "type": kind, "value": value, "number": record.number}
    return {**facts, "modified_time": changed, "fingerprint": found}


def _cells(row: dict[str, object]) -> tuple[str, ...]:
    value = shown(row["value"])  # type: ignore[arg-type]
    return (str(row["job"]), str(row["type"] or ""), value, str(row["number"]), str(row["modified_time"])[:19])

"""`floodmark marks`: show and history, which need no JVM; set and reset, which fence the sinks; accept, init and prune.

Marks that go elsewhere, or come from there, are in `transfer`.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.marks import transfer
from floodmark.cli.output import (
    AsJson,
    DryRun,
    Exclude,
    Jobs,
    Select,
    Yes,
    confirm,
    print_json,
    print_line,
    print_table,
    words,
)
from floodmark.errors import ConfigError, JobNotFound, LeaseHeld, SinkBehind, SinkShared
from floodmark.hwm.mark import mark_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from floodmark.stores.contract import MarkStore
    from floodmark.stores.paged import PruneCounts
    from floodmark.stores.record import JobRecord


app = typer.Typer(add_completion=False, no_args_is_help=True, help="Show, move, copy and carry over the marks.")
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's name.")]


@app.command()
def show(
    ctx: typer.Context,
    jobs: Jobs = None,
    select: Select = None,
    exclude: Exclude = None,
    as_json: AsJson = False,
) -> None:
    """Show how far each job has read."""
    from floodmark.project.selection import is_plain

    invocation: Invocation = ctx.obj
    store, named = invocation.store(), words(jobs, select)
    if exclude or not all(map(is_plain, named)):
        names = [each.name for each in invocation.selected(named, exclude or ())]
    else:
        each_word: list[str | None] = [*named] or [None]
        names = [name for word in each_word for name in known_jobs(invocation, store, word)]
    records = [record for name in names if (record := store.read(name)) is not None]
    rows = [row for record in records for row in mark_rows(record)]
    if as_json:
        print_json({"marks": rows})
        return
    if not rows:
        print_line(f"{', '.join(named)}: no mark" if named else "no marks yet")
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
    known_jobs(invocation, store, job)
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
    if _confirm_change(invocation, job, f"set the mark of '{job}' to {value}", yes=yes, dry_run=dry_run):
        [target] = invocation.jobs([job])
        mark = target.set_mark(value, invocation.session(), invocation.store())
        print_line(f"{job}: mark {mark_text(mark.show())}")


@app.command()
def reset(ctx: typer.Context, job: JobArgument, yes: Yes = False, dry_run: DryRun = False) -> None:
    """Forget a job's mark; the next run delivers everything again."""
    invocation: Invocation = ctx.obj
    act = f"forget the mark of '{job}' and deliver everything again"
    if _confirm_change(invocation, job, act, yes=yes, dry_run=dry_run):
        [target] = invocation.jobs([job])
        target.reset(invocation.session(), invocation.store())
        print_line(f"{job}: no mark")


@app.command()
def accept(ctx: typer.Context, job: JobArgument, yes: Yes = False, dry_run: DryRun = False) -> None:
    """Go on from the mark although a sink lost batches that it had confirmed, or has another project's."""
    invocation: Invocation = ctx.obj
    act = f"accept what the sinks of '{job}' have now, with what is missing there"
    if _confirm_change(invocation, job, act, yes=yes, dry_run=dry_run):
        [target] = invocation.jobs([job])
        found = target.accept_sinks(invocation.session(), invocation.store())
        for each in found:
            print_line(f"{job}: {accepted_text(each)}: accepted")
        if not found:
            print_line(f"{job}: every sink has what it confirmed")


def accepted_text(found: SinkBehind | SinkShared) -> str:
    """What a sink lost, or whose batch it has."""
    if isinstance(found, SinkShared):
        return f"{found.sink} has batch {found.number} of another record of this job, {found.owner}"
    has = f"batch {found.recorded}" if found.recorded is not None else "nothing of this job"
    return f"{found.sink} has {has} where it had batch {found.confirmed}"


app.command("copy")(transfer.copy)
app.command("export")(transfer.export)
app.command("import")(transfer.import_)


@app.command()
def init(
    ctx: typer.Context,
    only_print: Annotated[bool, typer.Option("--print", help="Print the statements, and connect to nothing.")] = False,
) -> None:
    """Make the tables of the store, or print the statements for somebody who may."""
    from floodmark.stores.contract import PreparableStore

    invocation: Invocation = ctx.obj
    store = invocation.store()
    if not isinstance(store, PreparableStore):
        if only_print:
            raise ConfigError(f"store {store.describe()} has no statements to print.", hint="the first run makes it")
        print_line(f"{store.describe()}: nothing to prepare; the first run makes it")
    elif only_print:
        print_line(store.ddl().rstrip())
    else:
        store.prepare()
        print_line(f"{store.describe()}: ready")


@app.command()
def prune(
    ctx: typer.Context,
    orphans: Annotated[
        bool, typer.Option("--orphans", help="Also forget jobs that the project no longer has, marks and all.")
    ] = False,
    as_json: AsJson = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Drop history and receipts that are older than the project's `retention`; never a job's mark or open batch."""
    invocation: Invocation = ctx.obj
    store, project = invocation.store(), invocation.loaded_project()
    declared = {job.name for job in project.jobs}
    forgotten, still_open = _orphans(store, declared) if orphans else ([], [])
    jobs = [job for job in store.jobs() if job not in forgotten]
    retention, now = project.retention.build(), datetime.now(timezone.utc)
    counts = {job: retention.surplus(store, job, now) for job in jobs}
    if not as_json:
        _announce(counts, forgotten, still_open)
    has_work = bool(forgotten) or any(each.history or each.runs for each in counts.values())
    if has_work and not dry_run and (yes or typer.confirm("drop them?", abort=True)):
        counts = {job: retention.prune(store, job, now) for job in jobs}
        for job in jobs:
            retention.prune_logs(store, job, now)
        for job in forgotten:
            _forget(store, job)
            retention.forget_logs(store, job)
    if as_json:
        pruned = [{"job": job, "history": each.history, "runs": each.runs} for job, each in counts.items()]
        print_json({"pruned": pruned, "forgotten": forgotten, "open": still_open, "dry_run": dry_run})


def _orphans(store: MarkStore, declared: set[str]) -> tuple[list[str], list[str]]:
    """Jobs that the project no longer has; those with an open batch apart, since rows of it may be half written.

    Records of workflows, of alerts and of streams are no job's: no project file names them, so they stay.
    """
    records = {job: store.read(job) for job in store.jobs() if job not in declared}
    strangers = {job: record for job, record in records.items() if record is None or record.extras.is_of_a_job}
    is_open = [job for job, record in strangers.items() if record is not None and record.intent is not None]
    return [job for job in strangers if job not in is_open], is_open


def _announce(counts: dict[str, PruneCounts], forgotten: list[str], still_open: list[str]) -> None:
    for job, each in counts.items():
        if each.history or each.runs:
            print_line(f"{job}: {each.history} of its history, {each.runs} of its runs")
    for job in forgotten:
        print_line(f"{job}: everything; the project has no such job")
    for job in still_open:
        print_line(f"{job}: stays, although the project has no such job: a batch of it is open")
    if not forgotten and not any(each.history or each.runs for each in counts.values()):
        print_line("nothing to prune")


def _forget(store: MarkStore, job: str) -> None:
    from floodmark.stores.lease import hold

    with hold(store, job) as held:
        store.forget(job, lease=held.lease)


def _confirm_change(invocation: Invocation, job: str, act: str, *, yes: bool, dry_run: bool) -> bool:
    """Whether to go on; refuses at once while another run holds the job's lease."""
    from floodmark.stores.lease import alive

    invocation.jobs([job])
    lease, record = invocation.store().lease(job), invocation.store().read(job)
    if lease is not None and alive(lease.owner):
        raise LeaseHeld(job, holder=str(lease.owner), since=lease.since.isoformat(timespec="seconds"))
    now = ", ".join(mark_text(mark.show()) for mark in record.marks.values()) if record else ""
    print_line(f"{job}: mark {now or 'none'}")
    return confirm(act, yes=yes, dry_run=dry_run)


def known_jobs(invocation: Invocation, store: MarkStore, job: str | None) -> list[str]:
    """The jobs with a record, or the one that was named: the store or the project has to know it."""
    from floodmark.project.folder import gather

    stored = list(store.jobs())
    if job is None:
        return stored
    declared = gather(invocation.document()).values.get("jobs")
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
    value = mark_text(row["value"])  # type: ignore[arg-type]
    return (str(row["job"]), str(row["type"] or ""), value, str(row["number"]), str(row["modified_time"])[:19])

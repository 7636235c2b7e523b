"""`floodmark marks`: show and history, which need no JVM; set and reset, which fence the sinks; accept, init and prune.

Marks that go elsewhere, or come from there, are in `transfer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.marks import transfer
from floodmark.cli.output import (
    AsJson,
    DryRun,
    Exclude,
    Jobs,
    OneJob,
    Select,
    UsageError,
    Yes,
    confirm,
    counted,
    one_job,
    print_json,
    print_line,
    print_table,
    require_words,
    words,
)
from floodmark.cli.progress import showing
from floodmark.errors import ConfigError, JobNotFound, LeaseHeld, SinkBehind, SinkShared
from floodmark.hwm import HWM, FileListHWM
from floodmark.hwm.mark import mark_text
from floodmark.phases import phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from floodmark.stores.contract import MarkStore
    from floodmark.stores.paged import PruneCounts
    from floodmark.stores.record import JobRecord


app = typer.Typer(add_completion=False, no_args_is_help=True, help="Show, move, copy and carry over the marks.")


@app.command()
def show(
    ctx: typer.Context,
    jobs: Jobs = None,
    select: Select = None,
    exclude: Exclude = None,
    as_json: AsJson = False,
) -> None:
    """Show how far each job has read."""
    invocation: Invocation = ctx.obj
    store, named = invocation.store(), words(jobs, select)
    names = chosen_names(invocation, store, named, exclude or ())
    records = [record for name in names if (record := store.read(name)) is not None]
    rows = [row for record in records for row in mark_rows(record)]
    if as_json:
        print_json({"marks": [row.entry for row in rows]})
        return
    if not rows:
        print_line(f"{', '.join(named)}: no mark" if named else "no marks yet")
    else:
        print_table(("job", "type", "value", "number", "modified"), [row.cells() for row in rows])
    for record in records:
        if record.intent is not None:
            print_line(f"{record.job}: batch {record.intent.number} is open; the next run finishes it")


@app.command()
def history(
    ctx: typer.Context,
    jobs: Jobs = None,
    select: Select = None,
    exclude: Exclude = None,
    last: Annotated[int, typer.Option(min=1, help="How many of each job, newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show where a job's mark has been, newest first."""
    invocation: Invocation = ctx.obj
    store = invocation.store()
    names = chosen_names(invocation, store, require_words(words(jobs, select)), exclude or ())
    records = [record for name in names for record in store.history(name, limit=last)]
    rows = [(row, record.origin) for record in records for row in mark_rows(record, resets=True)]
    if as_json:
        print_json({"history": [{**row.entry, "origin": origin} for row, origin in rows]})
        return
    header = ("job", "type", "value", "number", "modified", "by")
    print_table(header, [(*row.cells(), str(origin)) for row, origin in rows])


@app.command("set")
def set_(
    ctx: typer.Context,
    jobs: OneJob = None,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="What the mark becomes; may lie below it.")] = ...,  # type: ignore[assignment]
    select: Select = None,
    exclude: Exclude = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Put the mark of one job somewhere else; the next run reads what lies above it."""
    invocation: Invocation = ctx.obj
    if not jobs and not select:
        raise UsageError("Missing argument 'VALUE'.", ctx=ctx)  # the one that is there is the job
    job = one_job(invocation, words(jobs, select), exclude)
    _require_movable(invocation, job.name, value)
    if _confirm_change(invocation, job.name, f"set the mark of '{job.name}' to {value}", yes=yes, dry_run=dry_run):
        with showing(invocation), phase("fencing the sinks", job.name):
            mark = job.set_mark(value, invocation.session(), invocation.store())
        print_line(f"{job.name}: mark {mark_text(mark.show())}")


def _require_movable(invocation: Invocation, job: str, value: str) -> None:
    """Before anybody is asked: what they would agree to has to be possible."""
    from floodmark.stores.record import JobRecord

    (invocation.store().read(job) or JobRecord(job)).mark_moved_to(value)


@app.command()
def reset(
    ctx: typer.Context,
    jobs: Jobs = None,
    select: Select = None,
    exclude: Exclude = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Forget the marks of jobs; the next run delivers everything again."""
    invocation: Invocation = ctx.obj
    for job in invocation.jobs(require_words(words(jobs, select)), exclude=exclude or ()):
        act = f"forget the mark of '{job.name}' and deliver everything again"
        if _confirm_change(invocation, job.name, act, yes=yes, dry_run=dry_run):
            with showing(invocation), phase("fencing the sinks", job.name):
                job.reset(invocation.session(), invocation.store())
            print_line(f"{job.name}: no mark")


@app.command()
def accept(
    ctx: typer.Context,
    jobs: Jobs = None,
    select: Select = None,
    exclude: Exclude = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Go on from the mark although a sink lost batches that it had confirmed, or has another project's."""
    invocation: Invocation = ctx.obj
    for job in invocation.jobs(require_words(words(jobs, select)), exclude=exclude or ()):
        act = f"accept what the sinks of '{job.name}' have now, with what is missing there"
        if _confirm_change(invocation, job.name, act, yes=yes, dry_run=dry_run):
            with showing(invocation), phase("asking the sinks", job.name):
                accepted = job.accept_sinks(invocation.session(), invocation.store())
            for each in accepted:
                print_line(f"{job.name}: {accepted_text(each)}: accepted")
            if not accepted:
                print_line(f"{job.name}: every sink has what it confirmed")


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

    lease, record = invocation.store().lease(job), invocation.store().read(job)
    if lease is not None and alive(lease.owner):
        raise LeaseHeld(job, holder=str(lease.owner), since=lease.since.isoformat(timespec="seconds"))
    now = ", ".join(mark_text(mark.show()) for mark in record.marks.values()) if record else ""
    print_line(f"{job}: mark {now or 'none'}")
    return confirm(act, yes=yes, dry_run=dry_run)


def chosen_names(invocation: Invocation, store: MarkStore, named: Sequence[str], exclude: Sequence[str]) -> list[str]:
    """The jobs that are meant; a name may be one that the store alone knows, and no word means all it has."""
    from floodmark.project.selection import is_plain

    if exclude or not all(map(is_plain, named)):
        return [each.name for each in invocation.selected(named, exclude)]
    each_word: list[str | None] = [*named] or [None]
    return [name for word in each_word for name in known_jobs(invocation, store, word)]


def known_jobs(invocation: Invocation, store: MarkStore, job: str | None) -> list[str]:
    """The jobs with a record, or the one that was named: the store or the project has to know it."""
    from floodmark.project.folder import gather

    stored = list(store.jobs())
    if job is None:
        return stored
    document = gather(invocation.document())
    declared = document.values.get("jobs")
    names = [str(each.get("name")) for each in declared if isinstance(each, dict)] if isinstance(declared, list) else []
    if job not in (*stored, *names):
        if document.mistakes:
            raise document.mistakes[0]  # it may be of a file that cannot be read
        raise JobNotFound(job, known=sorted({*stored, *names}))
    return [job]


@dataclass(frozen=True)
class MarkRow:
    """A mark as the document has it, and its value for people."""

    entry: dict[str, object]
    text: str

    def cells(self) -> tuple[str, ...]:
        row = self.entry
        return (str(row["job"]), str(row["type"] or ""), self.text, str(row["number"]), str(row["modified_time"])[:19])


def mark_rows(record: JobRecord, *, resets: bool = False) -> Iterator[MarkRow]:
    """One row for each source of the job; with `resets`, one also where there is no mark."""
    for source, mark in record.marks.items():
        changed = mark.modified_time or record.modified_time
        entry = _entry(record, mark.kind, mark.show(), changed, record.sources.get(source))
        yield MarkRow(entry, value_text(mark))
    if resets and not record.marks:
        yield MarkRow(_entry(record, None, None, record.modified_time, None), mark_text(None))


def value_text(mark: HWM[Any]) -> str:
    """A mark's value in a cell: of files how many were read, and the newest of them."""
    if not isinstance(mark, FileListHWM) or not mark.value:
        return mark_text(mark.show())
    newest, _ = max(mark.value.items(), key=lambda file: (file[1].modified_ns if file[1] else -1, file[0]))
    return f"{counted(len(mark.value), 'file')}, the newest {newest.rpartition('/')[2]}"


def _entry(
    record: JobRecord, kind: str | None, value: object, changed: datetime | None, found: str | None
) -> dict[str, object]:
    facts = {"job": record.job, "type": kind, "value": value, "number": record.number}
    return {**facts, "modified_time": changed.isoformat() if changed else None, "fingerprint": found}

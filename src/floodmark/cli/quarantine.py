"""`floodmark quarantine`: rows that broke a rule: what they are, and how they get to the sinks after all."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import (
    AsJson,
    DryRun,
    Exclude,
    Jobs,
    OneJob,
    Select,
    Yes,
    counted,
    one_job,
    print_json,
    print_line,
    print_table,
    require_words,
    words,
)
from floodmark.cli.progress import showing
from floodmark.cli.run import telling_of
from floodmark.errors import ConfigError
from floodmark.machine import file_name
from floodmark.phases import phase
from floodmark.probes.rows import cell
from floodmark.stores.opening import STREAMS_FOLDER, folder_beside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floodmark.jobs.quarantine import Quarantine, QuarantinedRow, ReplayResult, Selection


WHOLE_SECOND = re.compile(r"\.000000Z$")
SHOWN = ("row", "batch", "broken rules")
app = typer.Typer(add_completion=False, no_args_is_help=True, help="Show, replay and discard rows that broke a rule.")
Rule = Annotated[str | None, typer.Option(help="Only rows that broke this rule.")]
Number = Annotated[int | None, typer.Option("--batch", help="Only rows of this batch.")]
Ids = Annotated[list[str] | None, typer.Option("--id", help="Only this row; its first letters do; may be repeated.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="COLUMN=SQL", help="Set a column to an expression first; may be repeated."),
]


@app.command("list")
def list_(
    ctx: typer.Context, jobs: Jobs = None, select: Select = None, exclude: Exclude = None, as_json: AsJson = False
) -> None:
    """Show how many rows were put aside, by batch, broken rules and status."""
    invocation: Invocation = ctx.obj
    groups = [group for each in _quarantines(invocation, words(jobs, select), exclude) for group in each.groups()]
    if as_json:
        print_json({"quarantine": [asdict(group) for group in groups]})
    elif not groups:
        print_line("no row was ever put aside")
    else:
        cells = [(h.job, str(h.number), ", ".join(h.reasons), h.status, str(h.rows)) for h in groups]
        print_table(("job", "batch", "broken rules", "status", "rows"), cells)


@app.command()
def show(
    ctx: typer.Context,
    jobs: Jobs = None,
    select: Select = None,
    exclude: Exclude = None,
    rule: Rule = None,
    number: Number = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="How many of each job.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show rows that wait in the quarantine."""
    quarantines = _quarantines(ctx.obj, words(jobs, select), exclude)
    rows = {each.job: each.rows(_selection((), rule, number), limit=limit) for each in quarantines}
    if as_json:
        print_json({"rows": [{"job": job, **asdict(row)} for job, found in rows.items() for row in found]})
        return
    for job, found in rows.items():
        if not found:
            print_line(f"{job}: no open row")
            continue
        if len(rows) > 1:
            print_line(f"{job}:")
        _print_rows(found)


def _print_rows(rows: Sequence[QuarantinedRow]) -> None:
    records = [json.loads(row.row, parse_float=str) for row in rows]  # with all digits
    columns = list(dict.fromkeys(name for record in records for name in record))
    cells = [[WHOLE_SECOND.sub("Z", cell(record.get(name))) for name in columns] for record in records]
    whole = [(row.id[:8], str(row.number), ", ".join(row.reasons), *own) for row, own in zip(rows, cells, strict=True)]
    print_table((*SHOWN, *shown_columns(columns)), whole)


def shown_columns(columns: Sequence[str]) -> list[str]:
    """The table's own columns as a header beside ours."""
    return [f"{name} (column)" if name in SHOWN else name for name in columns]


@app.command()
def replay(
    ctx: typer.Context,
    jobs: Jobs = None,
    select: Select = None,
    exclude: Exclude = None,
    rule: Rule = None,
    number: Number = None,
    ids: Ids = None,
    changes: Set = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Judge open rows again and write the good ones to the job's sinks, each once."""
    from floodmark.jobs.quarantine import replay as replay_rows

    invocation: Invocation = ctx.obj
    selection, set_to = _selection(ids or (), rule, number), dict(map(_change, changes or ()))
    quarantines = _quarantines(invocation, require_words(words(jobs, select)), exclude, _console(as_json))
    if as_json and len(quarantines) != 1:
        names = ", ".join(each.job for each in quarantines)
        raise ConfigError(f"--json is for the replay of one job: {names}.", hint="name one job, or leave out --json")
    for each in quarantines:
        if _agreed(each, selection, "replay", yes=yes, dry_run=dry_run, quiet=as_json):
            shown = showing(invocation, as_json=as_json)
            with shown, phase("replaying", each.job), telling_of(invocation, each.of_job) as heard:
                done = replay_rows(heard, selection, set_to, invocation.session(), invocation.store())
            print_json({"replay": asdict(done)}) if as_json else print_line(_replay_line(done))


def _replay_line(done: ReplayResult) -> str:
    written = ", ".join(f"{sink} {rows}" for sink, rows in done.rows_written.items()) or "none"
    finished = f"; finished the earlier replays {', '.join(done.finished)}" if done.finished else ""
    counts = f"{counted(done.rows_selected, 'row')}, written: {written}, {done.rows_still_broken} still break a rule"
    return f"{done.job}: replay {done.replay}: {counts}{finished}"


@app.command()
def discard(
    ctx: typer.Context,
    jobs: Jobs = None,
    select: Select = None,
    exclude: Exclude = None,
    rule: Rule = None,
    number: Number = None,
    ids: Ids = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Give open rows up; they stay in the table as discarded."""
    invocation: Invocation = ctx.obj
    selection = _selection(ids or (), rule, number)
    for each in _quarantines(invocation, require_words(words(jobs, select)), exclude):
        if _agreed(each, selection, "discard", yes=yes, dry_run=dry_run, quiet=False):
            with showing(invocation), phase("discarding", each.job):
                rows = each.discard(selection, invocation.store())
            print_line(f"{each.job}: {counted(rows, 'row')} discarded")


@app.command()
def settle(
    ctx: typer.Context,
    jobs: OneJob = None,
    keep: Annotated[str, typer.Option(metavar="SQL", help="Events for which this holds count from now on.")] = ...,  # type: ignore[assignment]
    select: Select = None,
    exclude: Exclude = None,
    as_json: AsJson = False,
) -> None:
    """Decide between events that contradict each other (`on_conflict: quarantine`); the others are set aside."""
    from floodmark.medallion import settle_conflicts

    invocation: Invocation = ctx.obj
    job = one_job(invocation, words(jobs, select), exclude)
    with showing(invocation, as_json=as_json), phase("settling", job.name):
        settled = settle_conflicts(job, keep, invocation.session()(), invocation.store())
    if as_json:
        print_json({"set_aside": settled})
        return
    for sink, count in settled.items():
        print_line(f"{job.name}: {counted(count, 'event')} of {sink} set aside")


def _quarantines(
    invocation: Invocation,
    named: Sequence[str],
    exclude: Sequence[str] | None,
    console: Literal["stdout", "stderr"] = "stdout",
) -> list[Quarantine]:
    """Those of the selected jobs; a stream, which has none, is left out, unless it was named."""
    from floodmark.jobs.quarantine import Quarantine

    for name in named:
        _refuse_stream(invocation, name)
    jobs = invocation.jobs(named, exclude=exclude or (), console=console)
    streams = [job.name for job in invocation.loaded_project().jobs if not job.has_batches]
    session, store = invocation.session(), invocation.store()
    return [Quarantine.of(job, session, store) for job in jobs if job.name not in streams]


def _console(as_json: bool) -> Literal["stdout", "stderr"]:
    return "stderr" if as_json else "stdout"


def _refuse_stream(invocation: Invocation, name: str) -> None:
    """A stream that keeps something beside the marks is told from a name that nothing has."""
    known = [job for job in invocation.loaded_project().jobs if job.name == name]
    is_stream = any(not job.has_batches for job in known)
    if is_stream or (not known and (folder_beside(invocation.store()) / STREAMS_FOLDER / file_name(name)).is_dir()):
        raise ConfigError(
            f"'{name}' is a stream: it has no rules, and so no quarantine.",
            hint=f"what it gave up is in its dead letters: floodmark deadletters list {name}",
        )


def _selection(ids: list[str] | tuple[()], rule: str | None, number: int | None) -> Selection:
    from floodmark.jobs.quarantine import Selection

    return Selection(tuple(ids), rule, number)


def _change(text: str) -> tuple[str, str]:
    """`amount=abs(amount)` in two."""
    column, sign, expression = text.partition("=")
    if not sign or not column.strip() or not expression.strip():
        raise ConfigError(f"--set {text} sets nothing.", hint='write it as --set "amount=abs(amount)"')
    return column.strip(), expression.strip()


def _agreed(quarantine: Quarantine, selection: Selection, act: str, *, yes: bool, dry_run: bool, quiet: bool) -> bool:
    """Whether to go on, once it was said how many rows are meant."""
    if yes and not dry_run:
        return True
    job, rows = quarantine.job, quarantine.count(selection)
    if dry_run:
        print_json({"would": act, "rows": rows}) if quiet else print_line(f"{job}: would {act} {counted(rows, 'row')}")
        return False
    return typer.confirm(f"{act} {counted(rows, 'row')} of '{job}'?", abort=True)

"""`floodmark optimize`: the upkeep of the Delta tables that jobs fill."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import (
    AsJson,
    DryRun,
    Exclude,
    Select,
    complete_jobs,
    counted,
    print_json,
    print_line,
    print_table,
    words,
)
from floodmark.cli.progress import showing
from floodmark.errors import ConfigError, FloodmarkError, JobNotFound
from floodmark.phases import phase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from floodmark.medallion.upkeep import TableReport, Upkeep
    from floodmark.project.kinds import DeltaSink, Site


app = typer.Typer(add_completion=False)
Tables = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TABLE|JOB",
        help="Only these tables, or those of these jobs; as --select.",
        autocompletion=complete_jobs,
    ),
]
Zorder = Annotated[str | None, typer.Option(metavar="A,B", help="Order the rows by these columns.")]


@app.command()
def optimize(
    ctx: typer.Context,
    tables: Tables = None,
    select: Select = None,
    exclude: Exclude = None,
    zorder: Zorder = None,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Set the columns that new files keep statistics of.")
    ] = False,
    vacuum: Annotated[bool, typer.Option("--vacuum", help="Remove files that no reader needs any more.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Compact the tables; no row changes, and nothing that the slowest reader still needs is removed."""
    from floodmark.medallion import optimize as optimize_tables

    invocation: Invocation = ctx.obj
    columns = tuple(name.strip() for name in zorder.split(",")) if zorder else ()
    named, left_out = words(tables, select), exclude or ()
    upkeeps = [
        with_options(each, columns, statistics=statistics, vacuum=vacuum)
        for each in select_tables(invocation, named, left_out)
    ]
    with showing(invocation, as_json=as_json):
        with phase(f"optimizing {counted(len(upkeeps), 'table')}"):
            reports = optimize_tables(invocation.session(), upkeeps, invocation.store(), dry_run=dry_run)
        pruned = {} if dry_run or named or left_out else prune_logs(invocation)
    reports = [replace(each, error=each.error and invocation.scrub(each.error)) for each in reports]
    if as_json:
        print_json({"tables": [each.serialize() for each in reports], "dry_run": dry_run, "events": pruned})
    else:
        _print(reports)
        for job, said in pruned.items():
            print_line(f"{job}: {said}")
    raise typer.Exit(_exit_code(reports))


def prune_logs(invocation: Invocation) -> dict[str, str]:
    """Prune the logs of tables with history that say how long events are kept; by job, what was done, or why not."""
    from floodmark.cli.events import jobs_that_keep
    from floodmark.medallion import prune_events

    told: dict[str, str] = {}
    for job in jobs_that_keep(invocation.jobs(())):
        try:
            dropped = prune_events(job, None, invocation.session()(), invocation.store())
            told[job.name] = f"{counted(sum(dropped.values()), 'event')} dropped"
        except FloodmarkError as error:  # it is the report of this job, and the next one is tried
            told[job.name] = f"events were not pruned: {invocation.scrub(error.message)}"
    return told


def select_tables(invocation: Invocation, select: Sequence[str], exclude: Sequence[str] = ()) -> list[Upkeep]:
    """The tables of the project, or those of these names; without those that `exclude` names."""
    from floodmark.project.health import tables_of

    site = invocation.site()
    tables = tables_of(invocation.loaded_project(), site)
    chosen = {name for word in select for name in tables_meant(invocation, tables, word)} if select else {*tables}
    chosen -= {name for word in exclude for name in tables_meant(invocation, tables, word)}
    if tables and exclude and not chosen:
        raise ConfigError("--exclude leaves no table.", hint="leave one of its words out")
    return [upkeep_of(name, sink, site) for name, sink in tables.items() if name in chosen]


def tables_meant(invocation: Invocation, tables: Mapping[str, DeltaSink], word: str) -> list[str]:
    """A table by its name, or the tables of the jobs that a word of a selection means."""
    if word in tables:
        return [word]
    from floodmark.project.kinds import DeltaSink

    site = invocation.site()
    try:
        sinks = [sink for job in invocation.selected([word]) for sink in job.sinks]
    except JobNotFound as error:
        from floodmark.cli.rows import no_table

        known = [*tables, *(job.name for job in invocation.loaded_project().jobs)]
        raise no_table(f"no table or job '{word}'.", word, list(dict.fromkeys(known))) from error
    places = [sink.table or sink.place(site) for sink in sinks if isinstance(sink, DeltaSink)]
    return [name for name, sink in tables.items() if (sink.table or sink.place(site)) in places]


def upkeep_of(name: str, sink: DeltaSink, site: Site) -> Upkeep:
    """What the project file says of the table's upkeep."""
    from floodmark.hwm.parsing import seconds_in
    from floodmark.medallion.upkeep import DEFAULT_FILE_SIZE, Upkeep

    place, options = sink.place(site), sink.optimize
    vacuum = timedelta(seconds=seconds_in(options.vacuum, field="vacuum")) if options.vacuum else None
    size = options.target_file_size or DEFAULT_FILE_SIZE
    return Upkeep(name, place, sink.table, sink.zorder, sink.statistics, size, options.after_small_files, vacuum)


def with_options(upkeep: Upkeep, zorder: tuple[str, ...], *, statistics: bool, vacuum: bool) -> Upkeep:
    """The table's own settings with those of the command line over them; statistics and vacuum only if asked for."""
    from floodmark.medallion.upkeep import DEFAULT_VACUUM

    return replace(
        upkeep,
        zorder=zorder or upkeep.zorder,
        statistics=upkeep.statistics if statistics else (),
        vacuum=(upkeep.vacuum or DEFAULT_VACUUM) if vacuum else None,
    )


def _print(reports: Sequence[TableReport]) -> None:
    if not reports:
        print_line("no job fills a Delta table")
        return
    rows = [
        (
            each.table,
            f"{each.files_before} → {each.files_after}",
            f"{each.bytes_before} → {each.bytes_after}",
            f"{each.seconds:.1f}",
            each.error or each.note or ", ".join(each.done) or "nothing to do",
        )
        for each in reports
    ]
    print_table(("table", "files", "bytes", "s", "done"), rows)


def _exit_code(reports: Sequence[TableReport]) -> int:
    from floodmark.jobs.running import SOME_FAILED

    failed = sum(each.error is not None for each in reports)
    return 0 if not failed else 1 if failed == len(reports) else SOME_FAILED

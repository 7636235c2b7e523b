"""`floodmark diff`: what changed between two runs, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import AsJson, Select, print_json, print_line, scrub_document, short_mark

if TYPE_CHECKING:
    from floodmark.hwm import Json
    from floodmark.jobs.diff import Diff, JobChange, RuleChange, TableChange
    from floodmark.stores.record import Receipt


app = typer.Typer(add_completion=False)
First = Annotated[str, typer.Argument(metavar="RUN1", help="The id of a run, or how it begins.")]
Last = Annotated[str, typer.Argument(metavar="RUN2", help="Another one, of the same job or not.")]


@app.command()
def diff(ctx: typer.Context, run1: First, run2: Last, select: Select = None, as_json: AsJson = False) -> None:
    """Show what jobs did after the earlier of two runs and up to the later one: marks, rows, rules, tables."""
    from floodmark.jobs.diff import diff as between
    from floodmark.jobs.diff import jobs_that_ran
    from floodmark.project import select_jobs

    invocation: Invocation = ctx.obj
    site = invocation.site()
    store, declared = invocation.store(), select_jobs(invocation.loaded_project(), select or ())
    others = [] if select else jobs_that_ran(store)
    sinks = {job.name: [sink.build(site) for sink in job.sinks] for job in declared}
    found = between(store, run1, run2, {**sinks, **{name: [] for name in others if name not in sinks}})
    if as_json:
        changes: list[Json] = [change.serialize() for change in found.jobs]
        document: dict[str, Json] = {"from": _run(found.first), "to": _run(found.last), "jobs": changes}
        print_json(scrub_document(document, invocation.scrub))
        return
    for line in _lines(found, site.folder):
        print_line(invocation.scrub(line))


def _run(receipt: Receipt) -> dict[str, Json]:
    return {"run": receipt.run, "job": receipt.job, "started": receipt.started.isoformat(), "number": receipt.number}


def _lines(found: Diff, folder: Path) -> Iterator[str]:
    for word, receipt in (("after", found.first), ("up to", found.last)):
        yield f"{word} run {receipt.run} ({receipt.job}, {receipt.started:%Y-%m-%d %H:%M:%S})"
    if not found.jobs:
        yield "nothing ran in between"
    for change in found.jobs:
        failed = f", {change.failed_runs} failed" if change.failed_runs else ""
        yield f"{change.job}: {change.runs} {'run' if change.runs == 1 else 'runs'}{failed}, {change.seconds:.1f} s"
        yield f"  mark {short_mark(change.mark_before)} → {short_mark(change.mark_after)}"
        yield f"  {_rows(change)}"
        yield from (f"  rule {_rule(rule)}" for rule in change.rules)
        yield from (f"  {_table(table, folder)}" for table in change.tables)


def _rows(change: JobChange) -> str:
    written = ", ".join(f"{sink} {rows}" for sink, rows in change.rows_written.items()) or "none"
    aside = {
        "quarantined": change.rows_quarantined,
        "dropped": change.rows_dropped,
        "dead": change.rows_dead,
        "held back": change.rows_held_back,
    }
    return f"rows read {change.rows_read}, written: {written}" + "".join(f", {n} {word}" for word, n in aside.items())


def _rule(rule: RuleChange) -> str:
    before = f", before {rule.failed_before} of {rule.checked_before}" if rule.failed_before is not None else ", new"
    return f"{rule.name} ({rule.action}): {rule.failed} of {rule.checked} failed{before}"


def _table(table: TableChange, folder: Path) -> str:
    name = table.table.removeprefix(f"{folder}/")
    if table.to_version is None:
        return f"{name}: {table.unknown}"
    began = "none" if table.from_version is None else table.from_version
    commits = ", ".join(f"{times} {operation}" for operation, times in table.commits.items())
    parts = [f"{name}: version {began} → {table.to_version} ({commits})", _counts(table), *_columns(table)]
    return ", ".join([*parts, *([table.unknown] if table.unknown else [])])


def _counts(table: TableChange) -> str:
    rows, files = table.rows, table.files
    changed = f"rows +{_count_text(rows.inserted)} ~{_count_text(rows.updated)} -{_count_text(rows.deleted)}"
    return f"{changed}, files +{_count_text(files.added)} -{_count_text(files.removed)}"


def _count_text(count: int | None) -> str:
    return "?" if count is None else str(count)


def _columns(table: TableChange) -> Iterator[str]:
    columns = table.columns
    yield from (f"column +{name} {kind}" for name, kind in columns.added.items())
    yield from (f"column -{name} {kind}" for name, kind in columns.removed.items())
    yield from (f"column {name} {before} → {after}" for name, (before, after) in columns.changed.items())

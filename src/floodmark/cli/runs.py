"""`floodmark runs | diff`: what past runs did, and what changed between two of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import (
    STATUS_COLOURS,
    AsJson,
    Exclude,
    Jobs,
    Select,
    counted,
    print_json,
    print_line,
    print_table,
    run_entry,
    scrub_document,
    words,
)
from floodmark.errors import ConfigError, JobNotFound
from floodmark.hwm.mark import short_mark

if TYPE_CHECKING:
    from floodmark.hwm import Json
    from floodmark.jobs.diff import Diff, JobChange, RuleChange, TableChange
    from floodmark.sinks.contract import Sink
    from floodmark.stores.record import Receipt


runs_app = typer.Typer(add_completion=False)
Log = Annotated[
    str | None, typer.Option(metavar="RUN", help="Show the log of this run: its id, how it begins, or `last`.")
]


@runs_app.command()
def runs(
    ctx: typer.Context,
    jobs: Jobs = None,
    select: Select = None,
    exclude: Exclude = None,
    job: Annotated[str | None, typer.Option(help="Only the runs of this job.")] = None,
    last: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20,
    log: Log = None,
    as_json: AsJson = False,
) -> None:
    """Show what past runs did, newest first, or the log of one of them."""
    invocation: Invocation = ctx.obj
    if log is not None:
        print_log(invocation, log, job, as_json=as_json)
        return
    store = invocation.store()
    if jobs or select or exclude:
        names = [each.name for each in invocation.selected(words(jobs, select), exclude or ())]
        found = [each for name in names for each in store.runs(name, limit=last)]
        receipts: Sequence[Receipt] = sorted(found, key=lambda each: each.started, reverse=True)[:last]
    else:
        receipts = store.runs(job, limit=last)
    if job is not None and not receipts:
        require_known(invocation, job)
    if as_json:
        print_json({"runs": [_run_entry(receipt, invocation) for receipt in receipts]})
        return
    if not receipts:
        print_line("no runs yet")
        return
    print_runs(receipts, datetime.now(timezone.utc))
    for receipt in receipts:
        if receipt.error:
            print_line(invocation.scrub(f"{receipt.started:%Y-%m-%d %H:%M:%S} {receipt.job}: {receipt.error}"))


LONGEST_WHOLE_NAME = 14
"""With a longer name of a job, a terminal of 80 columns has no room for the ids beside it."""


def print_runs(receipts: Sequence[Receipt], now: datetime) -> None:
    """The runs as a table whose ids and numbers stay whole on a terminal of 80 columns."""
    header = ("run", "started", "job", "status", "read", "written", "mark", "s")
    has_short_names = all(len(each.job) <= LONGEST_WHOLE_NAME for each in receipts)
    whole = ("started", "read", "written", "s", *(("job",) if has_short_names else ()))
    print_table(header, [_run_row(each, now) for each in receipts], whole, STATUS_COLOURS)


def require_known(invocation: Invocation, job: str) -> None:
    """Raises JobNotFound for a job that neither the project nor the store has: it is not one without runs."""
    declared = [each.name for each in invocation.loaded_project().jobs]
    known = list(dict.fromkeys([*declared, *invocation.store().jobs()]))
    if job not in known:
        raise JobNotFound(job, known=known)


def print_log(invocation: Invocation, wanted: str, job: str | None, *, as_json: bool) -> None:
    """The lines that a run logged, also one that was killed; the newest run that has a log is `last`."""
    from floodmark.stores.run_logs import RunLogs

    logs = RunLogs.of(invocation.store())
    if logs is None:
        raise ConfigError("a store in memory keeps no logs.", hint="store: sqlite:///state/marks.db keeps them")
    name, run = logs.find(wanted, job)
    lines = logs.lines(name, run) or []
    if as_json:
        print_json(scrub_document({"run": run, "job": name, "lines": list(lines)}, invocation.scrub))
        return
    for line in lines:
        print_line(invocation.scrub(log_text(line)))


def log_text(line: Mapping[str, Json]) -> str:
    """One line of a log for people: when, how grave, what, and the facts."""
    apart = ("format", "timestamp", "level", "run", "job", "logger", "event", "exception")
    facts = " ".join(f"{name}={value}" for name, value in line.items() if name not in apart)
    head = f"{line.get('timestamp', '')} {line.get('level', ''):<7} {line.get('event', '')}"
    return "\n".join(filter(None, [f"{head} {facts}".strip(), str(line.get("exception") or "").rstrip()]))


def _run_entry(receipt: Receipt, invocation: Invocation) -> dict[str, object]:
    error = invocation.scrub(receipt.error) if receipt.error else None
    started = receipt.started.isoformat()
    more = {"run": receipt.run, "started": started, "number": receipt.number, "durations": dict(receipt.durations)}
    dates = {sink: "all" if each.whole else list(each.dates) for sink, each in receipt.restated.items()}
    more |= {"restated": dates, "resources": dict(receipt.resources)}
    return {**run_entry(receipt), "error": error, **more, "notes": list(receipt.notes)}


def _run_row(receipt: Receipt, now: datetime) -> tuple[str, ...]:
    counts = (str(receipt.rows_read), _written_text(receipt), _mark_text(receipt.mark_after, now))
    status = receipt.status.replace("_", " ")
    return (receipt.run, _moment_text(receipt.started, now), receipt.job, status, *counts, f"{receipt.seconds:.1f}")


def _written_text(receipt: Receipt) -> str:
    """One number where every sink has it, else those of the sinks in their order; `--json` names them."""
    counts = list(receipt.rows_written.values())
    return ", ".join(map(str, dict.fromkeys(counts) if len(set(counts)) == 1 else counts))


def _mark_text(mark: Json, now: datetime) -> str:
    """A moment is as short as when the run started; `floodmark marks show` has all of it."""
    try:
        return _moment_text(datetime.fromisoformat(mark), now) if isinstance(mark, str) else short_mark(mark)
    except ValueError:
        return short_mark(mark)


def _moment_text(moment: datetime, now: datetime) -> str:
    """Day and time, or the date alone if it is of another year."""
    return f"{moment:%m-%d %H:%M}" if moment.year == now.year else f"{moment:%Y-%m-%d}"


diff_app = typer.Typer(add_completion=False)
First = Annotated[str, typer.Argument(metavar="RUN1", help="The id of a run, or how it begins.")]
Last = Annotated[str, typer.Argument(metavar="RUN2", help="Another one, of the same job or not.")]


@diff_app.command()
def diff(
    ctx: typer.Context,
    run1: First,
    run2: Last,
    select: Select = None,
    exclude: Exclude = None,
    as_json: AsJson = False,
) -> None:
    """Show what jobs did after the earlier of two runs and up to the later one: marks, rows, rules, tables."""
    invocation: Invocation = ctx.obj
    found = diff_between(invocation, run1, run2, select or (), exclude or ())
    if as_json:
        changes: list[Json] = [change.serialize() for change in found.jobs]
        document: dict[str, Json] = {"from": _run_facts(found.first), "to": _run_facts(found.last), "jobs": changes}
        print_json(scrub_document(document, invocation.scrub))
        return
    for line in diff_lines(found, invocation.site().folder):
        print_line(invocation.scrub(line))


def _run_facts(receipt: Receipt) -> dict[str, Json]:
    return {"run": receipt.run, "job": receipt.job, "started": receipt.started.isoformat(), "number": receipt.number}


def diff_between(invocation: Invocation, run1: str, run2: str, select: Sequence[str], exclude: Sequence[str]) -> Diff:
    """What the selected jobs did between two runs; if none is selected, all that ran."""
    from floodmark.jobs.diff import diff as between

    return between(invocation.store(), run1, run2, sinks_compared(invocation, select, exclude))


def sinks_compared(
    invocation: Invocation, select: Sequence[str] = (), exclude: Sequence[str] = ()
) -> dict[str, list[Sink]]:
    """The sinks of the jobs that are compared; of a job that stands in no project file, none is known."""
    from floodmark.jobs.diff import jobs_that_ran

    site, store = invocation.site(), invocation.store()
    declared = invocation.selected(select, exclude)
    others = [] if select or exclude else jobs_that_ran(store)
    sinks = {job.name: [sink.build(site) for sink in job.sinks] for job in declared}
    return {**sinks, **{name: [] for name in others if name not in sinks}}


def diff_lines(found: Diff, folder: Path) -> Iterator[str]:
    """The changes for people."""
    for word, receipt in (("after", found.first), ("up to", found.last)):
        yield f"{word} run {receipt.run} ({receipt.job}, {receipt.started:%Y-%m-%d %H:%M:%S})"
    if not found.jobs:
        yield "nothing ran in between"
    for change in found.jobs:
        failed = f", {change.failed_runs} failed" if change.failed_runs else ""
        yield f"{change.job}: {change.runs} {'run' if change.runs == 1 else 'runs'}{failed}, {change.seconds:.1f} s"
        yield f"  mark {short_mark(change.mark_before)} → {short_mark(change.mark_after)}"
        yield f"  {_rows_text(change)}"
        yield from (f"  rule {_rule_text(rule)}" for rule in change.rules)
        yield from (f"  {_table_text(table, folder)}" for table in change.tables)


def _rows_text(change: JobChange) -> str:
    written = ", ".join(f"{sink} {rows}" for sink, rows in change.rows_written.items()) or "none"
    aside = {
        "quarantined": change.rows_quarantined,
        "dropped": change.rows_dropped,
        "dead": change.rows_dead,
        "held back": change.rows_held_back,
    }
    return f"rows read {change.rows_read}, written: {written}" + "".join(f", {n} {word}" for word, n in aside.items())


def _rule_text(rule: RuleChange) -> str:
    before = f", before {rule.failed_before} of {rule.checked_before}" if rule.failed_before is not None else ", new"
    return f"{rule.name} ({rule.action}): {rule.failed} of {rule.checked} failed{before}"


def _table_text(table: TableChange, folder: Path) -> str:
    """What became of a table, with the columns that changed; of a new table, how many it has."""
    name = table.table.removeprefix(f"{folder}/")
    if table.to_version is None:
        return f"{name}: {table.unknown}"
    began = "none" if table.from_version is None else table.from_version
    commits = ", ".join(f"{times} {operation}" for operation, times in table.commits.items())
    is_new = table.from_version is None and table.columns.added
    columns = [counted(len(table.columns.added), "column")] if is_new else _column_texts(table)
    parts = [f"{name}: version {began} → {table.to_version} ({commits})", _counts_text(table), *columns]
    return ", ".join([*parts, *([table.unknown] if table.unknown else [])])


def _counts_text(table: TableChange) -> str:
    rows, files = table.rows, table.files
    changed = f"rows +{_count_text(rows.inserted)} ~{_count_text(rows.updated)} -{_count_text(rows.deleted)}"
    return f"{changed}, files +{_count_text(files.added)} -{_count_text(files.removed)}"


def _count_text(count: int | None) -> str:
    return "?" if count is None else str(count)


def _column_texts(table: TableChange) -> Iterator[str]:
    columns = table.columns
    yield from (f"column +{name} {kind}" for name, kind in columns.added.items())
    yield from (f"column -{name} {kind}" for name, kind in columns.removed.items())
    yield from (f"column {name} {before} → {after}" for name, (before, after) in columns.changed.items())

"""`floodmark init | schema | lint | check`: the project file, written, described, judged offline and judged online."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import (
    AsJson,
    Exclude,
    Jobs,
    Select,
    painted,
    print_json,
    print_line,
    print_table,
    words,
)
from floodmark.errors import ConfigError

if TYPE_CHECKING:
    from floodmark.project.check import CheckResult
    from floodmark.project.findings import Finding
    from floodmark.project.lint import Report


init_app = typer.Typer(add_completion=False)

PROJECT = """\
# yaml-language-server: $schema=.floodmark/schema.json
# A Floodmark project. `floodmark lint` checks it, `floodmark plan` says what would happen, `floodmark run` does it.
# Relative paths are relative to this file; ${NAME} and ${NAME:default} come from the environment.

store: sqlite:///state/marks.db          # how far each job has read
namespace: default                       # several projects may share one store

spark:
  master: local[2]

jobs:
  - name: orders_to_lake
    source:
      type: files
      path: in/orders                    # put another file here, run again: only that file is read
      format: jsonl
      schema: "id long, customer string, amount decimal(10,2), ordered_at timestamp"
      settle: 0s                         # these files are complete; keep the default of 5s where others write
    transform:
      sql: select *, cast(amount * 100 as long) as cents from source
    sinks:                               # written in this order; each batch exactly once, through a kill at any instant
      - name: lake
        type: delta
        path: lake/orders
        mode: merge
        key: [id]
        sequence: [ordered_at]
        change_feed: true                # a job that reads this table can follow its updates (changes: feed)
    every: 5s                            # for `floodmark run --loop`
"""
FIRST_DAY = (
    '{"id": 1, "customer": "ada", "amount": "19.90", "ordered_at": "2026-01-01T09:00:00Z"}\n'
    '{"id": 2, "customer": "grace", "amount": "5.00", "ordered_at": "2026-01-01T10:30:00Z"}\n'
    '{"id": 3, "customer": "linus", "amount": "42.00", "ordered_at": "2026-01-01T11:15:00Z"}\n'
)
SECOND_DAY = (
    '{"id": 4, "customer": "ada", "amount": "7.25", "ordered_at": "2026-01-02T08:10:00Z"}\n'
    '{"id": 2, "customer": "grace", "amount": "6.00", "ordered_at": "2026-01-02T09:00:00Z"}\n'
)


@init_app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where; the current folder if left out.")] = Path(),
    origin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="Make jobs of what is there: postgresql://…, kafka://HOST:PORT/TOPIC, or a folder with files.",
        ),
    ] = None,
) -> None:
    """Write a project that runs at once with no server (files to Delta), or one over what is there."""
    files, variable = (contents(), None) if origin is None else found_there(origin, folder)
    taken = [name for name in files if (folder / name).exists()]
    if taken:
        raise ConfigError(
            f"{folder / taken[0]} is already there; nothing was written.", hint="floodmark init OTHER_DIR"
        )
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        print_line(f"wrote {folder / name}")
    enter = "" if folder == Path() else f"cd {folder} && "
    if variable is not None:
        print_line(f"The address is not written down: {variable} in the environment, or --env-file, gives it.")
    print_line(f"Next: {enter}floodmark {'run' if origin is None else 'check'}")


def found_there(origin: str, folder: Path) -> tuple[dict[str, str], str | None]:
    """The files of a project over a place, and the variable that has its address."""
    from floodmark.project.discovery import discover
    from floodmark.project.loading import schema_files

    found = discover(origin, folder)
    return {**found.files, **schema_files()}, found.variable


def contents() -> dict[str, str]:
    """Every file of the project, by its path."""
    from floodmark.project.loading import schema_files

    return {
        "floodmark.yaml": PROJECT,
        **schema_files(),
        "in/orders/2026-01-01.jsonl": FIRST_DAY,
        "in/orders/2026-01-02.jsonl": SECOND_DAY,
        ".gitignore": "/state/\n/lake/\n",
    }


schema_app = typer.Typer(add_completion=False)


@schema_app.command()
def schema(
    of_jobs: Annotated[bool, typer.Option("--jobs", help="Of a file in the folder jobs.")] = False,
) -> None:
    """Print the JSON Schema of the project file."""
    from floodmark.project.loading import job_file_schema, project_schema

    print_json(job_file_schema() if of_jobs else project_schema())


lint_app = typer.Typer(add_completion=False)
FOUND_ERRORS = 2
SEVERITY_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


@lint_app.command()
def lint(
    ctx: typer.Context, jobs: Jobs = None, select: Select = None, exclude: Exclude = None, as_json: AsJson = False
) -> None:
    """Check the project offline, and say what each pair of source and sink guarantees."""
    from floodmark.project.loading import renew_schemas

    invocation: Invocation = ctx.obj
    renew_schemas(invocation.document().folder)
    report = invocation.lint()
    if jobs or select or exclude:
        report = report.of([job.name for job in invocation.selected(words(jobs, select), exclude or ())])
    if as_json:
        findings = [_finding_entry(finding, invocation) for finding in report.findings]
        limits = [_finding_entry(limit, invocation) for limit in report.limits]
        guarantees = [asdict(each) for each in report.guarantees]
        print_json({"findings": findings, "guarantees": guarantees, "limits": limits})
    else:
        _print_findings(report.together(), invocation)
    if report.has_errors:
        raise typer.Exit(FOUND_ERRORS)


def _finding_entry(finding: Finding, invocation: Invocation) -> dict[str, object]:
    fields = {**asdict(finding), "severity": finding.severity}
    return {name: invocation.scrub(value) if isinstance(value, str) else value for name, value in fields.items()}


def _print_findings(report: Report, invocation: Invocation) -> None:
    for finding in report.findings:
        place = f"{finding.where}: " if finding.where else ""
        job = f"{finding.job}: " if finding.job else ""
        severity = painted(finding.severity, SEVERITY_COLOURS[finding.severity], sys.stdout)
        print_line(invocation.scrub(f"{place}{severity} {finding.rule} {job}{finding.message}"))
        print_line(invocation.scrub(f"  Try: {finding.hint}"))
    if report.guarantees:
        rows = [(each.job, f"{each.source} → {each.sink}", each.words) for each in report.guarantees]
        print_table(("job", "from → to", "guarantee"), rows)
    for limit in report.limits:
        print_line(invocation.scrub(f"{limit.job}: not guaranteed ({limit.rule}, {limit.severity}): {limit.message}"))
        print_line(invocation.scrub(f"  Try: {limit.hint}"))
    print_line(_summary([*report.findings, *report.limits]))


def _summary(printed: Sequence[Finding] | Sequence[CheckResult]) -> str:
    """How many of each severity were printed."""
    counts = Counter(each.severity for each in printed)
    words = [f"{counts[each]} {each if counts[each] == 1 else each + 's'}" for each in ("error", "warning", "note")]
    return ", ".join(words)


check_app = typer.Typer(add_completion=False)


@check_app.command()
def check(
    ctx: typer.Context, jobs: Jobs = None, select: Select = None, exclude: Exclude = None, as_json: AsJson = False
) -> None:
    """Ask every source and sink: connection, cursor, index, uniqueness, rights, retention. Changes nothing."""
    from floodmark.jobs.job import Job
    from floodmark.project.check import JobCheck, exit_code
    from floodmark.step.work import RunRequest

    invocation: Invocation = ctx.obj
    chosen = invocation.jobs(words(jobs, select), exclude=exclude or ())
    session, store = invocation.session(), invocation.store()
    master = invocation.loaded_project().master
    with_steps = [each for each in chosen if isinstance(each, Job)]  # a stream asks its brokers at every look
    checks = [JobCheck(each.step(session, store, RunRequest()), master) for each in with_steps]
    results = [result for each in checks for result in each.results()]
    if as_json:
        print_json({"checks": [_check_entry(result, invocation) for result in results]})
    else:
        for result in results:
            _print_check(result, invocation)
        fine = sum(result.severity == "ok" for result in results)
        print_line(f"{fine} ok, {_summary([each for each in results if each.severity != 'ok'])}")
    if code := exit_code(results):
        raise typer.Exit(code)


def _check_entry(result: CheckResult, invocation: Invocation) -> dict[str, object]:
    fields = {"severity": result.severity, **asdict(result)}
    return {name: invocation.scrub(value) if isinstance(value, str) else value for name, value in fields.items()}


def _print_check(result: CheckResult, invocation: Invocation) -> None:
    rule = f" {result.rule}" if result.rule else ""
    severity = painted(result.severity, SEVERITY_COLOURS.get(result.severity, "green"), sys.stdout)
    print_line(invocation.scrub(f"{result.job}: {result.part}: {severity}{rule}: {result.message}"))
    if result.rule:
        print_line(invocation.scrub(f"  Try: {result.hint}"))

"""`floodmark lint | check`: the project judged offline, and online."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import AsJson, OneJob, Select, print_json, print_line, print_table

if TYPE_CHECKING:
    from floodmark.project.check import CheckResult
    from floodmark.project.findings import Finding
    from floodmark.project.lint import Report


lint_app = typer.Typer(add_completion=False)
FOUND_ERRORS = 2


@lint_app.command()
def lint(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Check the project offline, and say what each pair of source and sink guarantees."""
    from floodmark.project.lint import lint as lint_document

    invocation: Invocation = ctx.obj
    report = lint_document(invocation.document())
    if as_json:
        findings = [_finding_entry(finding, invocation) for finding in report.findings]
        limits = [_finding_entry(limit, invocation) for limit in report.limits]
        guarantees = [asdict(each) for each in report.guarantees]
        print_json({"findings": findings, "guarantees": guarantees, "limits": limits})
    else:
        _print_findings(report, invocation)
    if report.has_errors:
        raise typer.Exit(FOUND_ERRORS)


def _finding_entry(finding: Finding, invocation: Invocation) -> dict[str, object]:
    fields = {**asdict(finding), "severity": finding.severity}
    return {name: invocation.scrub(value) if isinstance(value, str) else value for name, value in fields.items()}


def _print_findings(report: Report, invocation: Invocation) -> None:
    for finding in report.findings:
        place = f"{finding.where}: " if finding.where else ""
        job = f"{finding.job}: " if finding.job else ""
        print_line(invocation.scrub(f"{place}{finding.severity} {finding.rule} {job}{finding.message}"))
        print_line(invocation.scrub(f"  Try: {finding.hint}"))
    if report.guarantees:
        rows = [(each.job, f"{each.source} → {each.sink}", each.words) for each in report.guarantees]
        print_table(("job", "from → to", "guarantee"), rows)
    for limit in report.limits:
        print_line(invocation.scrub(f"{limit.job}: not guaranteed ({limit.rule}, {limit.severity}): {limit.message}"))
        print_line(invocation.scrub(f"  Try: {limit.hint}"))
    errors = sum(finding.severity == "error" for finding in report.findings)
    print_line(f"{errors} errors, {len(report.findings) - errors} warnings and notes")


check_app = typer.Typer(add_completion=False)


@check_app.command()
def check(ctx: typer.Context, job: OneJob = None, select: Select = None, as_json: AsJson = False) -> None:
    """Ask every source and sink: connection, cursor, index, uniqueness, rights, retention. Changes nothing."""
    from floodmark.project.check import JobCheck, exit_code
    from floodmark.step.work import RunRequest

    invocation: Invocation = ctx.obj
    jobs = invocation.jobs([*([job] if job else ()), *(select or ())])
    session, store = invocation.session(), invocation.store()
    results = [result for each in jobs for result in JobCheck(each.step(session, store, RunRequest())).results()]
    if as_json:
        print_json({"checks": [_check_entry(result, invocation) for result in results]})
    else:
        for result in results:
            _print_check(result, invocation)
    if code := exit_code(results):
        raise typer.Exit(code)


def _check_entry(result: CheckResult, invocation: Invocation) -> dict[str, object]:
    fields = {"severity": result.severity, **asdict(result)}
    return {name: invocation.scrub(value) if isinstance(value, str) else value for name, value in fields.items()}


def _print_check(result: CheckResult, invocation: Invocation) -> None:
    rule = f" {result.rule}" if result.rule else ""
    print_line(invocation.scrub(f"{result.job}: {result.part}: {result.severity}{rule}: {result.message}"))
    if result.rule:
        print_line(invocation.scrub(f"  Try: {result.hint}"))

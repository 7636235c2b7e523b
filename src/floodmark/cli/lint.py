"""`floodmark lint`: what can be said offline."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import AsJson, print_json, print_line, print_table

if TYPE_CHECKING:
    from floodmark.project.findings import Finding
    from floodmark.project.lint import Report


app = typer.Typer(add_completion=False)
FOUND_ERRORS = 2


@app.command()
def lint(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Check the project offline, and say what each pair of source and sink guarantees."""
    from floodmark.project.lint import lint as lint_document

    invocation: Invocation = ctx.obj
    report = lint_document(invocation.document())
    if as_json:
        findings = [_entry(finding, invocation) for finding in report.findings]
        limits = [_entry(limit, invocation) for limit in report.limits]
        guarantees = [asdict(each) for each in report.guarantees]
        print_json({"findings": findings, "guarantees": guarantees, "limits": limits})
    else:
        _print(report, invocation)
    if report.has_errors:
        raise typer.Exit(FOUND_ERRORS)


def _entry(finding: Finding, invocation: Invocation) -> dict[str, object]:
    fields = {**asdict(finding), "severity": finding.severity}
    return {name: invocation.scrub(value) if isinstance(value, str) else value for name, value in fields.items()}


def _print(report: Report, invocation: Invocation) -> None:
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

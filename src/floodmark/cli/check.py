"""`floodmark check`: what can be said online, before the first run."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import AsJson, OneJob, Select, print_json, print_line

if TYPE_CHECKING:
    from floodmark.project.check import CheckResult


app = typer.Typer(add_completion=False)


@app.command()
def check(ctx: typer.Context, job: OneJob = None, select: Select = None, as_json: AsJson = False) -> None:
    """Ask every source and sink: connection, cursor, index, uniqueness, rights, retention. Changes nothing."""
    from floodmark.project.check import JobCheck, exit_code
    from floodmark.step.work import RunRequest

    invocation: Invocation = ctx.obj
    jobs = invocation.jobs([*([job] if job else ()), *(select or ())])
    session, store = invocation.session(), invocation.store()
    results = [result for each in jobs for result in JobCheck(each.step(session, store, RunRequest())).results()]
    if as_json:
        print_json({"checks": [_entry(result, invocation) for result in results]})
    else:
        for result in results:
            _print(result, invocation)
    if code := exit_code(results):
        raise typer.Exit(code)


def _entry(result: CheckResult, invocation: Invocation) -> dict[str, object]:
    fields = {"severity": result.severity, **asdict(result)}
    return {name: invocation.scrub(value) if isinstance(value, str) else value for name, value in fields.items()}


def _print(result: CheckResult, invocation: Invocation) -> None:
    rule = f" {result.rule}" if result.rule else ""
    print_line(invocation.scrub(f"{result.job}: {result.part}: {result.severity}{rule}: {result.message}"))
    if result.rule:
        print_line(invocation.scrub(f"  Try: {result.hint}"))

"""`floodmark check`: what can be told online, before the first run."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import AsJson, OneJob, Select, print_json, print_line

if TYPE_CHECKING:
    from floodmark.project.check import Checked


app = typer.Typer(add_completion=False)


@app.command()
def check(ctx: typer.Context, job: OneJob = None, select: Select = None, as_json: AsJson = False) -> None:
    """Ask every source and sink: connection, cursor, index, uniqueness, rights, retention. Changes nothing."""
    from floodmark.project.check import JobCheck, exit_code
    from floodmark.step.work import RunRequest

    invocation: Invocation = ctx.obj
    jobs = invocation.jobs([*([job] if job else ()), *(select or ())])
    session, store = invocation.session(), invocation.store()
    lines = [line for each in jobs for line in JobCheck(each.step(session, store, RunRequest())).lines()]
    if as_json:
        print_json({"checks": [_entry(line, invocation) for line in lines]})
    else:
        for line in lines:
            _print(line, invocation)
    if code := exit_code(lines):
        raise typer.Exit(code)


def _entry(line: Checked, invocation: Invocation) -> dict[str, object]:
    fields = {"severity": line.severity, **asdict(line)}
    return {name: invocation.scrub(value) if isinstance(value, str) else value for name, value in fields.items()}


def _print(line: Checked, invocation: Invocation) -> None:
    rule = f" {line.rule}" if line.rule else ""
    print_line(invocation.scrub(f"{line.job}: {line.part}: {line.severity}{rule}: {line.message}"))
    if line.rule:
        print_line(invocation.scrub(f"  Try: {line.hint}"))

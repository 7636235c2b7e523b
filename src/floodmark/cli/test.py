"""`floodmark test`: the cases beside a project, run on local Spark without a server."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import AsJson, Exclude, Jobs, Select, print_json, print_line, words
from floodmark.cli.progress import showing
from floodmark.errors import ConfigError, JobNotFound

if TYPE_CHECKING:
    from floodmark.project.cases import Difference, PlacedCase


app = typer.Typer(add_completion=False)
FAILED = 1


@app.command("test")
def run_cases(
    ctx: typer.Context, jobs: Jobs = None, select: Select = None, exclude: Exclude = None, as_json: AsJson = False
) -> None:
    """Run the cases in tests/*.yaml: given rows of a source, expected rows of each sink. Exit 1 if one fails."""
    invocation: Invocation = ctx.obj
    names = [job.name for job in invocation.selected(words(jobs, select), exclude or ())]
    cases = cases_of(invocation, names)
    with showing(invocation, as_json=as_json):
        results = [(placed, wrong_of(invocation, placed)) for placed in cases]
    if as_json:
        print_json({"cases": [_entry(placed, wrong) for placed, wrong in results]})
    else:
        _print(results)
    raise typer.Exit(FAILED if any(wrong for _, wrong in results) else 0)


def cases_of(invocation: Invocation, names: list[str]) -> list[PlacedCase]:
    """The cases of these jobs. Raises ConfigError if there is none, or one is of a job that nobody has."""
    from floodmark.project.cases import CASE_FILES, read_cases

    known = [job.name for job in invocation.loaded_project().jobs]
    found = read_cases(invocation.document())
    for placed in found:
        if placed.case.job not in known:
            raise JobNotFound(placed.case.job, known=known)
    chosen = [placed for placed in found if placed.case.job in names]
    if not chosen:
        raise ConfigError("there is no case to run.", hint=f"write one into {CASE_FILES[0]}: job, given, expect")
    return chosen


def wrong_of(invocation: Invocation, placed: PlacedCase) -> list[Difference | str]:
    """What is wrong with a case, run now in a folder of its own."""
    from floodmark.project.trial import Trial

    [job] = invocation.jobs([placed.case.job], console="stderr")
    with tempfile.TemporaryDirectory(prefix="floodmark-test-") as folder:
        return list(Trial(placed.case, job, Path(folder), invocation.local_session()()).differences())


def _print(results: list[tuple[PlacedCase, list[Difference | str]]]) -> None:
    for placed, wrong in results:
        print_line(f"{placed.where}: {placed.case.name}: {'failed' if wrong else 'passed'}")
        for each in wrong:
            for line in [each] if isinstance(each, str) else each.lines():
                print_line(f"  {line}")
    failed, count = sum(bool(wrong) for _, wrong in results), len(results)
    print_line(f"{count} {'case' if count == 1 else 'cases'}: {count - failed} passed, {failed} failed")


def _entry(placed: PlacedCase, wrong: list[Difference | str]) -> dict[str, object]:
    lines = [line for each in wrong for line in ([each] if isinstance(each, str) else each.lines())]
    return {"case": placed.case.name, "job": placed.case.job, "where": placed.where, "differences": lines}

"""`floodmark plan`: what the next batches would be, in the words of their sources; nothing is touched."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, TypeGuard

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.mistakes import jobs_without_spark
from floodmark.cli.output import (
    AsJson,
    Exclude,
    Jobs,
    Select,
    counted,
    message_and_hint,
    print_failure,
    print_json,
    print_line,
    print_traceback,
    words,
)
from floodmark.cli.progress import showing
from floodmark.errors import FloodmarkError, SourceUnreadable
from floodmark.hwm.mark import files_read, mark_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from floodmark.hwm import Json
    from floodmark.jobs.job import Job, Plan
    from floodmark.project.mills import MillJob
    from floodmark.sinks.restatement import Restatement
    from floodmark.step.work import RunRequest


plan_app = typer.Typer(add_completion=False)
FOUND_CHANGES = 6
NO_TABLE = "there is no such table"
DATES_SHOWN = 20
FILES_SHOWN = 5
Detailed = Annotated[bool, typer.Option("--detailed-exitcode", help="Exit 6 if there is something to do.")]


@plan_app.command()
def plan(
    ctx: typer.Context,
    jobs: Jobs = None,
    select: Select = None,
    exclude: Exclude = None,
    start: Annotated[str | None, typer.Option("--from", metavar="VALUE", help="As if run with --from.")] = None,
    full_refresh: Annotated[bool, typer.Option("--full-refresh", help="As if run with --full-refresh.")] = False,
    max_rows: Annotated[int | None, typer.Option(metavar="N", min=1, help="As if run with --max-rows.")] = None,
    detailed_exitcode: Detailed = False,
    as_json: AsJson = False,
) -> None:
    """Show marks from and to, rows expected and schema changes; touches nothing."""
    from floodmark.step.work import RunRequest

    invocation: Invocation = ctx.obj
    chosen = with_mills(invocation, words(jobs, select), partial(jobs_without_spark, invocation, exclude=exclude or ()))
    with showing(invocation, as_json=as_json):
        plans = plans_of(invocation, chosen, RunRequest(start, full_refresh, max_rows))
    print_plans(plans, invocation, as_json=as_json)
    if detailed_exitcode and any(each.plan.has_work for each in plans):
        raise typer.Exit(FOUND_CHANGES)


def with_mills(
    invocation: Invocation,
    select: Sequence[str],
    jobs_of: Callable[[Sequence[str]], Sequence[Job]],
    console: Literal["stdout", "stderr"] = "stdout",
) -> list[Job | MillJob]:
    """The jobs that `jobs_of` finds for the words that name no mill, and then the selected mills."""
    project = invocation.loaded_project()
    if not project.mills:
        return list(jobs_of(select))
    from floodmark.project.mills import split_selection

    chosen, mills = split_selection(project, select)
    jobs = jobs_of(chosen) if chosen or (project.jobs and not select) else ()
    return [*jobs, *(mill.build(invocation.site(console)) for mill in mills)]


@dataclass(frozen=True)
class JobPlan:
    """What a job would do, or why that cannot be said."""

    plan: Plan
    error: Exception | None = None

    @property
    def exit_code(self) -> int:
        """As the error has it: a mistake in the project, or a decision that is needed, is told apart."""
        return self.error.exit_code if isinstance(self.error, FloodmarkError) else 1


def plans_of(invocation: Invocation, jobs: Sequence[Job | MillJob], request: RunRequest) -> list[JobPlan]:
    """What each job would do; one that cannot be planned does not hide the others."""
    invocation.store()  # one that cannot be opened fails them all, and is told once
    return [_plan_of(invocation, job, request) for job in jobs]


def _plan_of(invocation: Invocation, job: Job | MillJob, request: RunRequest) -> JobPlan:
    """One that reads a table which another job of the project has yet to make waits for it."""
    from floodmark.jobs.job import Plan

    try:
        return JobPlan(job.plan_request(request, invocation.session(), invocation.store()))
    except Exception as error:  # noqa: BLE001  (it is told with its job, and decides about the exit code)
        is_missing = isinstance(error, SourceUnreadable) and NO_TABLE in error.message
        makers = invocation.needed_jobs().get(job.name, ()) if is_missing else ()
        if not makers:
            return JobPlan(Plan(job.name, None, None), error)
        reason = f"{', '.join(makers)} {'has' if len(makers) == 1 else 'have'} yet to fill what it reads"
        return JobPlan(Plan(job.name, None, None, 0, held_reason=reason))


def print_plans(plans: Sequence[JobPlan], invocation: Invocation, *, as_json: bool) -> None:
    """The plans as one document or as lines, then what failed on stderr. Raises Exit if something did."""
    if as_json:
        print_json({"plans": [_plan_entry(each, invocation) for each in plans]})
    else:
        for line in (line for each in plans if each.error is None for line in _plan_lines(each.plan)):
            print_line(line)
    failures = [(each.plan.job, each.error, each.exit_code) for each in plans if each.error is not None]
    for job, error, _ in failures:
        message, hint = message_and_hint(error)
        print_failure(f"job '{job}' cannot be planned: {message}", hint, invocation)
        print_traceback(error, invocation)
    if failures:
        raise typer.Exit(max(code for _, _, code in failures))


def _plan_entry(planned: JobPlan, invocation: Invocation) -> dict[str, object]:
    error = invocation.scrub(message_and_hint(planned.error)[0]) if planned.error else None
    return {**asdict(planned.plan), "error": error}


def _plan_lines(plan: Plan) -> list[str]:
    held = f"  {plan.rows_held_back} held back: {plan.held_reason}"
    if not plan.has_work and plan.held_reason and not plan.rows_held_back:
        return [f"{plan.job}: nothing to read yet: {plan.held_reason}"]
    if not plan.has_work:
        what = "nothing to read yet" if plan.rows_held_back else "nothing new"
        return [f"{plan.job}: {what}, mark {mark_text(plan.mark_before)}", *([held] if plan.rows_held_back else [])]
    return [
        f"{plan.job}: {span_text(plan)}",
        *([f"  batch {plan.open_batch} is open and is finished first"] if plan.open_batch is not None else []),
        *([held] if plan.rows_held_back else []),
        *(f"  {restated_text(each)}" for each in plan.restated),
        *(f"  schema: {change}" for change in plan.schema_changes),
        *(f"  rule {rule}" for rule in plan.rules),
        *(f"  {note}" for note in plan.notes),
    ]


def span_text(plan: Plan) -> str:
    """What would be read: files by name, messages by their number, all else from mark to mark."""
    before, after, rows = plan.mark_before, plan.mark_after, plan.expected_rows
    if is_file_list(after) and (before is None or is_file_list(before)):
        new = [file.rpartition("/")[2] for file in after if file not in (before or ())]
        rest = f", and {len(new) - FILES_SHOWN} more" if len(new) > FILES_SHOWN else ""
        count = f" ({counted(rows, 'row')})" if rows is not None else ""
        return f"{counted(len(new), 'new file')}: {', '.join(new[:FILES_SHOWN])}{rest}{count}" if new else "no new file"
    if isinstance(after, dict) and "newest" in after:
        new_files = (files_read(after) or 0) - (files_read(before) or 0)
        return f"{counted(new_files, 'new file')}, the newest {str(after['newest']).rpartition('/')[2]}"
    if is_offsets(after) and rows is not None:
        known = before if isinstance(before, dict) else {}
        moved = sum(known.get(partition) != offset for partition, offset in after.items())
        return f"up to {counted(rows, 'message')} in {counted(moved, 'partition')}"
    count = "not known before reading" if rows is None else f"{rows:,}"
    return f"low {mark_text(before)}, high {mark_text(after)}, count {count}"


def is_file_list(mark: Json) -> TypeGuard[list[str]]:
    """Whether a mark is shown as the files that were read."""
    return isinstance(mark, list) and bool(mark) and all(isinstance(each, str) and "/" in each for each in mark)


def is_offsets(mark: Json) -> TypeGuard[dict[str, int]]:
    """Whether a mark is shown as the offsets of a topic's partitions."""
    return isinstance(mark, dict) and bool(mark) and all(each.isdecimal() for each in mark)


def restated_text(restated: Restatement) -> str:
    """What would be written anew, in words; a long list of dates is cut."""
    sink, what = restated.sink, restated.what
    if restated.whole:
        return f"{sink}: all {what} will be restated"
    if restated.count is None:
        return f"{sink}: rows whose {what.removesuffix('s')} is there already will be replaced"
    few = f"at most {restated.count}" if restated.at_most else str(restated.count)
    noun = what if restated.count != 1 else what.removesuffix("s")
    shown = ", ".join(map(str, restated.values[:DATES_SHOWN]))
    rest = f", and {len(restated.values) - DATES_SHOWN} more" if len(restated.values) > DATES_SHOWN else ""
    return f"{sink}: {few} {noun} will be restated{f': {shown}{rest}' if shown else ''}"

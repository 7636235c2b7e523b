"""`floodmark rollback`: tables and marks of jobs, back together to how a run left them, or to their last good state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import (
    AsJson,
    DryRun,
    Exclude,
    Jobs,
    Select,
    Yes,
    message_and_hint,
    print_failure,
    print_json,
    print_line,
    scrub_document,
    words,
)
from floodmark.cli.progress import showing
from floodmark.errors import ConfigError, FloodmarkError
from floodmark.phases import phase

if TYPE_CHECKING:
    from floodmark.cli.rollback.texts import RollbackText
    from floodmark.hwm import Json
    from floodmark.jobs.job import Job
    from floodmark.jobs.rollback import Rollback, Target, WayBack
    from floodmark.stores.record import JobRecord


app = typer.Typer(add_completion=False)
SOME_FAILED = 3
To = Annotated[
    str,
    typer.Option(metavar="RUN", help="The id of a run or how it begins, `last-good`, or the number of a job's batch."),
]


@app.command()
def rollback(
    ctx: typer.Context,
    jobs: Jobs = None,
    to: To = ...,  # type: ignore[assignment]
    select: Select = None,
    exclude: Exclude = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Put the Delta tables and the marks of jobs back to how a run left them, or to their last good state."""
    from floodmark.jobs.rollback import Rollback, Target
    from floodmark.step.work import RunRequest

    invocation: Invocation = ctx.obj
    store = invocation.store()
    chosen = invocation.selected(words(jobs, select), exclude or ()) if jobs or select or exclude else []
    names = [each.name for each in chosen]
    target = Target.parse(to, store)
    built = without_python(invocation, names or taking_part(invocation, target))
    steps = tuple(each.step(invocation.session(), store, RunRequest()) for each in built)
    command = RollbackCommand(invocation, Rollback(steps, target), as_json)
    raise typer.Exit(command.go(yes=yes, dry_run=dry_run))


def taking_part(invocation: Invocation, target: Target) -> list[str]:
    """The jobs that are meant where none is selected: those of the run, or all that ever ran."""
    declared = [job.name for job in invocation.loaded_project().jobs if job.has_batches]
    store = invocation.store()
    if target.jobs is None:
        ran = [name for name in declared if store.read(name) is not None]
        return ran or declared
    found = [name for name in declared if name in target.jobs]
    if not found:
        raise ConfigError(
            f"run '{target.text}' is of {', '.join(target.jobs)}: no job of this project took part in it.",
            hint="`--select JOB` puts a job back to how it was when that run had ended",
        )
    return found


def without_python(invocation: Invocation, names: Sequence[str]) -> Sequence[Job]:
    """The jobs without their Python functions: the deploy that is to be undone may have broken them."""

    project = invocation.loaded_project()
    bare = (j.model_copy(update={"transform": None}) if j.transform and j.transform.python else j for j in project.jobs)
    readable = project.model_copy(update={"listed": tuple(bare)})
    jobs = invocation.tools.build_jobs(readable, invocation.site(), names)
    if not jobs:
        raise ConfigError("the project has no jobs.", hint="add one under `jobs:`")
    return jobs


@dataclass
class RollbackCommand:
    """One call of `rollback`: the plan is shown, somebody agrees, and each job that went back gets a line."""

    invocation: Invocation
    rollback: Rollback
    as_json: bool
    texts: dict[str, RollbackText] = field(default_factory=dict)
    after: dict[str, JobRecord] = field(default_factory=dict)
    """What jobs that have gone back are at now."""

    def go(self, *, yes: bool, dry_run: bool) -> int:
        """The exit code; 3 if a job failed after another one had gone back."""
        ways = self.rollback.plan()
        self.texts = {way.job: self._text(way) for way in ways}
        warnings = [*self._warnings(ways)]
        self._say(line for each in self.texts.values() for line in each.lines())
        self._say(f"warning: {each}" for each in warnings)
        moving = [way.job for way in ways if way.moves]
        if moving and not dry_run:
            if not yes:
                typer.confirm(f"put {', '.join(moving)} back, tables and marks?", abort=True, err=self.as_json)
            self._carry_out(ways)
        left = [job for job in moving if job not in self.after] if self.after else []
        self._finish(warnings, moving, dry_run=dry_run)
        return SOME_FAILED if left else 0

    def _carry_out(self, ways: Sequence[WayBack]) -> None:
        """Each job in turn. A failure before the first is the command's own; after it, the rest stays."""
        try:
            with showing(self.invocation, as_json=self.as_json), phase("putting back"):
                for record in self.rollback.carry_out(ways):
                    self.after[record.job] = record
                    self._say([self.texts[record.job].result(record)])
        except FloodmarkError as error:
            if not self.after:
                raise
            message, _ = message_and_hint(error)
            back = ", ".join(self.after)
            print_failure(
                f"{message} {back} went back before.", "the same rollback again puts back the rest", self.invocation
            )

    def _finish(self, warnings: Sequence[str], moving: Sequence[str], *, dry_run: bool) -> None:
        if self.as_json:
            entries: list[Json] = [each.entry(self.after.get(job)) for job, each in self.texts.items()]
            document: dict[str, Json] = {"to": self.rollback.target.text, "dry_run": dry_run, "jobs": entries}
            print_json(scrub_document({**document, "warnings": [*warnings]}, self.invocation.scrub))
        elif not moving:
            print_line("nothing to put back")
        elif dry_run:
            print_line(f"would put {', '.join(moving)} back; nothing was changed")

    def _text(self, way: WayBack) -> RollbackText:
        from floodmark.cli.rollback.texts import RollbackText
        from floodmark.jobs.rollback import Past

        past = Past.of(self.invocation.store(), way.job)
        return RollbackText(way, past, self.rollback.target.text, self.invocation.document().folder)

    def _warnings(self, ways: Sequence[WayBack]) -> Iterator[str]:
        from floodmark.cli.rollback.texts import Readers
        from floodmark.lineage.flows import Parts

        site = self.invocation.site()
        parts = [Parts.of_model(model, site) for model in self.invocation.loaded_project().jobs]
        return Readers(parts, ways, self.invocation.store(), site.folder).warnings()

    def _say(self, lines: Iterable[str]) -> None:
        """For people; a program gets the document."""
        for line in lines if not self.as_json else ():
            print_line(self.invocation.scrub(line))

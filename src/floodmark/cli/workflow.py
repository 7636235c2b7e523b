"""`floodmark workflow run | validate`: the tasks of a Databricks-Jobs file."""

from __future__ import annotations

import signal
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.failures import message_and_hint, tell
from floodmark.cli.invocation import Invocation
from floodmark.cli.output import AsJson, print_json, print_line
from floodmark.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from floodmark.cli.notices import Notices
    from floodmark.jobs.workflow.attempt import Ended
    from floodmark.jobs.workflow.code import Library
    from floodmark.jobs.workflow.document import Workflow
    from floodmark.jobs.workflow.running import Finished, WorkflowRun

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Run or check the tasks of a Databricks-Jobs file.")
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The workflow's JSON file.")]


@app.command()
def run(
    ctx: typer.Context,
    file: FileArgument,
    task: Annotated[str | None, typer.Option(metavar="T", help="Only this task.")] = None,
    with_upstream: Annotated[bool, typer.Option("--with-upstream", help="And all it depends on.")] = False,
    with_downstream: Annotated[bool, typer.Option("--with-downstream", help="And all that depends on it.")] = False,
    loop: Annotated[bool, typer.Option("--loop", help="Run at every tick of its schedule until a signal.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run the tasks in their order; after a run that partly failed, those that are missing."""
    from floodmark.jobs.workflow import read_workflow

    workflow = read_workflow(file)
    chosen = part(workflow, task, with_upstream=with_upstream, with_downstream=with_downstream)
    if loop and chosen is not None:
        raise ConfigError("--loop runs the whole workflow.", hint="leave --task out")
    command = WorkflowCommand(ctx.obj, workflow, file, as_json)
    raise typer.Exit(command.loop() if loop else command.once(chosen))


@app.command()
def validate(ctx: typer.Context, file: FileArgument, as_json: AsJson = False) -> None:
    """Check the file, its order, its schedule and the code of every task; run nothing."""
    from floodmark.jobs.workflow import read_workflow
    from floodmark.jobs.workflow.graph import require_an_order
    from floodmark.jobs.workflow.schedule import utc_now

    workflow = read_workflow(file)
    command = WorkflowCommand(ctx.obj, workflow, file, as_json)
    library, unused = command.library(), [*workflow.unused(), *command.notices().unheard()]
    for each in workflow.tasks:
        library.action(each)
    order, schedule = require_an_order(workflow.needs(), file.name), workflow.due()
    due = schedule.next_after(utc_now()) if schedule else None
    if as_json:
        print_json({"workflow": workflow.name, "order": order, "next": due, "unused": unused})
        return
    print_line(f"{workflow.name}: {' → '.join(order)}")
    print_line(f"next: {due:%Y-%m-%d %H:%M:%S} UTC" if due else "no schedule")
    for name in unused:
        print_line(f"unused here: {name}")


def part(workflow: Workflow, task: str | None, *, with_upstream: bool, with_downstream: bool) -> frozenset[str] | None:
    """The tasks that are meant; None for all."""
    from floodmark.jobs.workflow.graph import downstream_of, upstream_of

    if task is None:
        if with_upstream or with_downstream:
            raise ConfigError("--with-upstream and --with-downstream need a task.", hint="add --task T")
        return None
    key, needs = workflow.task(task).task_key, workflow.needs()
    above = upstream_of(needs, key) if with_upstream else frozenset()
    return above | {key} | (downstream_of(needs, key) if with_downstream else frozenset())


class WorkflowCommand:
    """One call of `workflow run`: where tasks get their code, session and store, and where their ends are told."""

    def __init__(self, invocation: Invocation, workflow: Workflow, file: Path, as_json: bool) -> None:
        self.invocation, self.workflow, self.file, self.as_json = invocation, workflow, file, as_json

    def once(self, chosen: frozenset[str] | None) -> int:
        """One run; SIGTERM lets the tasks under way finish and skips the rest."""
        from floodmark.step.stopping import stopping_on

        with stopping_on(signal.SIGTERM) as stopping:
            finished = self.prepared(stopping.wait).go(chosen)
        self.told(finished)
        return finished.exit_code

    def loop(self) -> int:
        """A run at every tick, until a signal comes."""
        from floodmark.jobs.workflow.schedule import keep_schedule
        from floodmark.step.stopping import stopping_on

        self.invocation.start_logging("info")
        with stopping_on(signal.SIGTERM, signal.SIGINT) as stopping:
            prepared = self.prepared(stopping.wait)

            def run_at(tick: datetime) -> Finished:
                finished = prepared.go(tick=tick)
                self.told(finished)
                return finished

            return keep_schedule(self.workflow, self.invocation.store(), run_at, stopping.wait)

    def prepared(self, wait: Callable[[float], bool]) -> WorkflowRun:
        from floodmark.jobs.workflow.code import Surroundings
        from floodmark.jobs.workflow.running import WorkflowRun

        around = Surroundings(self.invocation.session(), self.invocation.store())
        return WorkflowRun(self.workflow, self.library(wait), around, wait, self.report, self.notices().began)

    def notices(self) -> Notices:
        """Where the file's notifications go."""
        from floodmark.cli.notices import Notices
        from floodmark.cli.watching import subscriptions_of
        from floodmark.jobs.kinds import Site

        project, site = self.invocation.loaded_project(), Site(self.invocation.document().folder)
        return Notices(self.workflow, subscriptions_of(project, site), self.invocation.scrub)

    def told(self, finished: Finished) -> None:
        """The end of a run, on the screen and through the alert channels."""
        self.summarise(finished)
        self.notices().ended(finished)

    def library(self, wait: Callable[[float], bool] = lambda _seconds: False) -> Library:
        """The code of the tasks: files beside the workflow and the project, its jobs and its registered functions."""
        from floodmark.jobs.python_names import load_name
        from floodmark.jobs.running import Outcome, Runner
        from floodmark.jobs.workflow.code import Library

        project, folder = self.invocation.loaded_project(), self.invocation.document().folder
        names = [job.name for job in project.jobs]

        def run_job(name: str) -> Outcome:
            (job,) = self.invocation.jobs([name], console="stderr" if self.as_json else "stdout")
            return Runner(self.invocation.store(), self.invocation.session()).run_patiently(job, wait)

        wanted = {key: name for key, name in project.tasks.items() if key in self.workflow.needs()}
        functions = {key: load_name(name, folder) for key, name in wanted.items()}
        folders = tuple(dict.fromkeys((self.file.absolute().parent, folder)))
        return Library(folders, run_job, names, functions)  # type: ignore[arg-type]

    def report(self, ended: Ended) -> None:
        """A line for each task that ended; a failure is told on stderr as every failure is."""
        outcome = ended.outcome
        if ended.error is None:
            if not self.as_json:
                note = f": {outcome.note}" if outcome.note else ""
                print_line(f"{outcome.task}: {outcome.state} ({outcome.seconds:.1f} s){note}")
            return
        message, hint = message_and_hint(ended.error)
        tell(f"task '{outcome.task}' {outcome.state}: {message}", hint, self.invocation)

    def summarise(self, finished: Finished) -> None:
        """The document, or the last line."""
        outcomes = [each.outcome for each in finished.ended]
        if self.as_json:
            told = [{**asdict(o), "error": o.error and self.invocation.scrub(o.error)} for o in outcomes]
            heading = {"workflow": finished.workflow, "run": finished.run, "seconds": finished.seconds}
            print_json({**heading, "resumed": list(finished.resumed), "tasks": told})
            return
        states = ("SUCCESS", "FAILED", "TIMEDOUT", "SKIPPED")
        counts = {state: sum(o.state == state for o in outcomes) for state in states}
        said = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        earlier = f", {len(finished.resumed)} done earlier" if finished.resumed else ""
        print_line(f"{finished.workflow}: {said or 'nothing to do'}{earlier} ({finished.seconds:.1f} s)")

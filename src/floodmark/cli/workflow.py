"""`floodmark workflow run | validate`: the tasks of a Databricks-Jobs file."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.health import AlertBeat
from floodmark.cli.interruption import STOPPING
from floodmark.cli.invocation import Invocation
from floodmark.cli.output import AsJson, message_and_hint, print_failure, print_json, print_line
from floodmark.cli.progress import saying
from floodmark.errors import ConfigError
from floodmark.health.alerts import Alert, Email, Subscription, send
from floodmark.jobs.workflow.code import Action, Library
from floodmark.phases import phase

if TYPE_CHECKING:
    from floodmark.jobs.workflow.document import Moment, NotifyingPart, Task, Workflow
    from floodmark.jobs.workflow.running import TaskEnd, WorkflowResult, WorkflowRun
    from floodmark.jobs.workflow.surroundings import Surroundings
    from floodmark.step.listeners import RunListener


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
    param: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A parameter of the job; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the tasks in their order; after a run that partly failed, those that are missing."""
    from floodmark.jobs.workflow import read_workflow

    workflow = read_workflow(file)
    chosen = part(workflow, task, with_upstream=with_upstream, with_downstream=with_downstream)
    if loop and chosen is not None:
        raise ConfigError("--loop runs the whole workflow.", hint="leave --task out")
    given = parameters_in(param or ())
    workflow.parameters_with(given)
    command = WorkflowCommand(ctx.obj, workflow, file, as_json, given)
    raise typer.Exit(command.loop() if loop else command.once(chosen))


@app.command()
def validate(ctx: typer.Context, file: FileArgument, as_json: AsJson = False) -> None:
    """Check the file, its order, its schedule and the code of every task; run nothing."""
    from floodmark.jobs.workflow import read_workflow
    from floodmark.jobs.workflow.document import require_an_order
    from floodmark.jobs.workflow.schedule import utc_now

    workflow = read_workflow(file)
    command = WorkflowCommand(ctx.obj, workflow, file, as_json)
    library, unused = command.library(), [*workflow.unused_fields(), *command.notices().unheard_wishes()]
    for each in workflow.tasks:
        library.action(each)
    order, schedule = require_an_order(workflow.needs(), file.name), workflow.active_schedule()
    due = schedule.next_after(utc_now()) if schedule else None
    if as_json:
        print_json({"workflow": workflow.name, "order": order, "next": due, "unused": unused})
        return
    print_line(f"{workflow.name}: {' → '.join(order)}")
    print_line(f"next: {due:%Y-%m-%d %H:%M:%S} UTC" if due else "no schedule")
    for name in unused:
        print_line(f"unused here: {name}")


def parameters_in(texts: Sequence[str]) -> dict[str, str]:
    """By name what was given for the job's parameters. Raises ConfigError for a text without a name."""
    pairs = [text.partition("=") for text in texts]
    for name, sign, _ in pairs:
        if not sign or not name:
            raise ConfigError(f"--param {name!r} has no value.", hint="write --param day=2026-11-02")
    return {name: value for name, _, value in pairs}


def part(workflow: Workflow, task: str | None, *, with_upstream: bool, with_downstream: bool) -> frozenset[str] | None:
    """The tasks that are meant; None for all."""
    from floodmark.jobs.workflow.document import downstream_of, upstream_of

    if task is None:
        if with_upstream or with_downstream:
            raise ConfigError("--with-upstream and --with-downstream need a task.", hint="add --task T")
        return None
    key, needs = workflow.task(task).task_key, workflow.needs()
    above = upstream_of(needs, key) if with_upstream else frozenset()
    return above | {key} | (downstream_of(needs, key) if with_downstream else frozenset())


class AnnouncedLibrary(Library):
    """The code of tasks; each says that it runs."""

    def action(self, task: Task) -> Action:
        do = super().action(task)

        def announce(around: Surroundings) -> str | None:
            with phase("running", task.task_key):
                return do(around)

        return announce


class WorkflowCommand:
    """One call of `workflow run`: where tasks get their code, session and store, and where their ends are reported."""

    def __init__(
        self,
        invocation: Invocation,
        workflow: Workflow,
        file: Path,
        as_json: bool,
        given: Mapping[str, str] | None = None,
    ) -> None:
        self.invocation, self.workflow, self.file, self.as_json = invocation, workflow, file, as_json
        self.given = given or {}
        self.alerts = AlertBeat(invocation)

    def once(self, chosen: frozenset[str] | None) -> int:
        """One run; SIGTERM lets the tasks under way finish and skips the rest."""
        from floodmark.patience import stop_on

        with stop_on(signal.SIGTERM, message=STOPPING) as stopping, saying(self.invocation, as_json=self.as_json):
            finished = self.workflow_run(stopping.wait).go(chosen)
        self.announce(finished)
        return finished.exit_code

    def loop(self) -> int:
        """A run at every tick, until a signal comes."""
        from floodmark.jobs.workflow.schedule import keep_schedule
        from floodmark.patience import stop_on

        self.invocation.start_logging("info")
        with stop_on(signal.SIGTERM, signal.SIGINT, message=STOPPING) as stopping:
            run = self.workflow_run(stopping.wait)

            def run_at(tick: datetime) -> WorkflowResult:
                finished = run.go(tick=tick)
                self.announce(finished)
                return finished

            return keep_schedule(self.workflow, self.invocation.store(), run_at, stopping.wait)

    def workflow_run(self, wait: Callable[[float], bool]) -> WorkflowRun:
        from floodmark.cli.run import listeners_of
        from floodmark.jobs.workflow.running import WorkflowRun
        from floodmark.jobs.workflow.surroundings import Surroundings

        around = Surroundings(self.invocation.session(), self.invocation.store())
        library, start = self.library(wait, listeners_of(self.invocation)), self.notices().announce_start
        return WorkflowRun(self.workflow, library, around, wait, self.report, start, given=self.given)

    def notices(self) -> Notices:
        """Where the file's notifications go."""
        from floodmark.project.health import subscriptions_of

        project, site = self.invocation.loaded_project(), self.invocation.site()
        return Notices(self.workflow, subscriptions_of(project, site), self.invocation.scrub)

    def announce(self, finished: WorkflowResult) -> None:
        """The end of a run, on the screen and through the alert channels, with what health finds then."""
        self.summarise(finished)
        self.notices().announce_end(finished)
        self.alerts.judge()

    def library(
        self, wait: Callable[[float], bool] = lambda _seconds: False, listeners: tuple[RunListener, ...] = ()
    ) -> Library:
        """The code of the tasks: files beside the workflow and the project, its jobs and its registered functions."""
        from floodmark.jobs.running import Outcome, Runner
        from floodmark.locations import load_name
        from floodmark.step.work import RunRequest

        project, folder = self.invocation.loaded_project(), self.invocation.document().folder
        names = [job.name for job in project.jobs]

        def run_job(name: str) -> Outcome:
            (job,) = self.invocation.jobs([name], console="stderr" if self.as_json else "stdout")
            request = RunRequest(listeners=listeners)
            return Runner(self.invocation.store(), self.invocation.session(), request).run_patiently(job, wait)

        wanted = {key: name for key, name in project.tasks.items() if key in self.workflow.needs()}
        functions = {key: load_name(name, folder) for key, name in wanted.items()}
        folders = tuple(dict.fromkeys((self.file.absolute().parent, folder)))
        return AnnouncedLibrary(folders, run_job, names, functions)  # type: ignore[arg-type]

    def report(self, ended: TaskEnd) -> None:
        """A line for each task that ended; a failure goes to stderr as every failure does."""
        outcome = ended.outcome
        if ended.error is None:
            if not self.as_json:
                note = f": {outcome.note}" if outcome.note else ""
                print_line(f"{outcome.task}: {outcome.state} ({outcome.seconds:.1f} s){note}")
            return
        message, hint = message_and_hint(ended.error)
        print_failure(f"task '{outcome.task}' {outcome.state}: {message}", hint, self.invocation)

    def summarise(self, finished: WorkflowResult) -> None:
        """The document, or the last line."""
        outcomes = [each.outcome for each in finished.ends]
        if self.as_json:
            told = [{**asdict(o), "error": o.error and self.invocation.scrub(o.error)} for o in outcomes]
            heading = {"workflow": finished.workflow, "run": finished.run, "seconds": finished.seconds}
            print_json({**heading, "resumed": list(finished.resumed_tasks), "tasks": told})
            return
        states = ("SUCCESS", "EXCLUDED", "FAILED", "TIMEDOUT", "SKIPPED")
        counts = {state: sum(o.state == state for o in outcomes) for state in states}
        said = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        earlier = f", {len(finished.resumed_tasks)} done earlier" if finished.resumed_tasks else ""
        print_line(f"{finished.workflow}: {said or 'nothing to do'}{earlier} ({finished.seconds:.1f} s)")


ERROR_SHOWN = 300


@dataclass(frozen=True)
class Notices:
    """What a workflow's file asks to be told, through the alert channels of the project.

    Every channel hears what the file asks for; a channel for mail writes to the file's addresses as well.

    A failure is told when it begins and when it ends, not again by every run that fails in the same tasks.
    """

    workflow: Workflow
    subscriptions: Sequence[Subscription]
    scrub: Callable[[str], str] = str

    def announce_start(self) -> None:
        """A run has its lease and is about to begin."""
        self._tell(self.workflow, "on_start", _note("run_started", self._name, "it begins"))

    def announce_end(self, finished: WorkflowResult) -> None:
        """A run is over: tell of the workflow, and of each task that has wishes of its own."""
        self._tell_workflow(finished)
        for each in finished.ends:
            self._tell_task(each, was_failed=each.outcome.task in finished.failed_before)

    def unheard_wishes(self) -> list[str]:
        """What the file asks for and nobody would hear, as `validate` shows it."""
        is_unheard = self.workflow.notifies() and not self.subscriptions
        return ["notifications (the project file has no `alerts`: nobody would be told)"] if is_unheard else []

    @property
    def _name(self) -> str:
        return f"workflow {self.workflow.name}"

    def _tell_workflow(self, finished: WorkflowResult) -> None:
        failed = frozenset(each.outcome.task for each in finished.failures)
        if failed and failed != finished.failed_before:
            reasons = "; ".join(f"{each.outcome.task} {self._reason(each)}" for each in finished.failures)
            self._tell(self.workflow, "on_failure", _trouble(self._name, reasons))
        elif finished.failed_before and finished.exit_code == 0:
            self._tell(self.workflow, "on_failure", _over(_trouble(self._name, "")))
        if finished.exit_code == 0:
            said = f"{len(finished.ends)} tasks done in {finished.seconds:.1f} s"
            self._tell(self.workflow, "on_success", _note("run_succeeded", self._name, said))

    def _tell_task(self, ended: TaskEnd, *, was_failed: bool) -> None:
        task, outcome = self.workflow.task(ended.outcome.task), ended.outcome
        name = f"task {self.workflow.name}.{outcome.task}"
        if outcome.state in ("FAILED", "TIMEDOUT") and not was_failed:
            self._tell(task, "on_failure", _trouble(name, self._reason(ended)))
        elif outcome.state == "SUCCESS":
            if was_failed:
                self._tell(task, "on_failure", _over(_trouble(name, "")))
            said = f"done in {outcome.seconds:.1f} s"
            self._tell(task, "on_success", _note("run_succeeded", name, said))

    def _tell(self, who: NotifyingPart, moment: Moment, alert: Alert) -> None:
        if who.wants(moment):
            send([alert], [_with_addresses(each, who.addresses(moment)) for each in self.subscriptions])

    def _reason(self, ended: TaskEnd) -> str:
        return f"{ended.outcome.state}: {self.scrub(ended.outcome.error or '')[:ERROR_SHOWN]}"


def _trouble(subject: str, message: str) -> Alert:
    now = datetime.now(timezone.utc)
    return Alert(f"failed_run:{subject}", "failed_run", subject, "critical", "open", message, now)


def _note(kind: str, subject: str, message: str) -> Alert:
    return Alert(f"{kind}:{subject}", kind, subject, "info", "note", message, datetime.now(timezone.utc))


def _over(trouble: Alert) -> Alert:
    return replace(trouble, status="resolved", message="it is well again")


def _with_addresses(subscription: Subscription, addresses: Sequence[str]) -> Subscription:
    """The channel, writing to these as well if it is one for mail."""
    channel = subscription.channel
    if not isinstance(channel, Email):
        return subscription
    return replace(subscription, channel=replace(channel, to=tuple(dict.fromkeys((*channel.to, *addresses)))))

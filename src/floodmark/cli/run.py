"""`floodmark run`: carry out the next batches, once or in a loop."""

from __future__ import annotations

import signal
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from floodmark.cli.interruption import STOPPING
from floodmark.cli.invocation import Invocation
from floodmark.cli.mistakes import stop_at_mistakes
from floodmark.cli.output import (
    AsJson,
    DryRun,
    Exclude,
    Jobs,
    Select,
    coloured_run_line,
    counted,
    message_and_hint,
    print_failure,
    print_json,
    print_line,
    run_entry,
    words,
)
from floodmark.cli.plan import with_mills
from floodmark.cli.progress import LOOPING, Progress, showing
from floodmark.errors import ConfigError, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from floodmark.cli.health import AlertBeat
    from floodmark.jobs.job import Job
    from floodmark.jobs.retention import Cleaner
    from floodmark.jobs.running import Outcome, Runnable, Runner
    from floodmark.patience import StopRequest
    from floodmark.project.mills import MillJob
    from floodmark.step.listeners import RunListener
    from floodmark.step.work import RunRequest
    from floodmark.stores.record import Receipt


run_app = typer.Typer(add_completion=False)
STATUSES = ("done", "nothing_new", "held_back", "failed", "skipped")
Start = Annotated[str | None, typer.Option("--from", metavar="VALUE", help="Read from this value on, inclusive.")]
HIGHEST_PORT = 65535
MetricsAddress = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Where a loop shows its numbers to Prometheus.")
]
AtOnce = Annotated[
    int, typer.Option("--jobs", metavar="N", min=1, help="Run so many jobs at once, where they share no table.")
]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Only those jobs whose last run failed.")]
Every = Annotated[str | None, typer.Option(metavar="5s", help="How often a loop looks; implies --loop.")]


@run_app.command()
def run(
    ctx: typer.Context,
    jobs: Jobs = None,
    select: Select = None,
    exclude: Exclude = None,
    retry_failed: RetryFailed = False,
    loop: Annotated[bool, typer.Option("--loop", help="Run again and again until SIGTERM or Ctrl-C.")] = False,
    every: Every = None,
    max_rows: Annotated[int | None, typer.Option(metavar="N", min=1, help="Read about so many rows at most.")] = None,
    dry_run: DryRun = False,
    start: Start = None,
    full_refresh: Annotated[bool, typer.Option("--full-refresh", help="Rebuild the targets from the source.")] = False,
    finish: Annotated[bool, typer.Option("--finish", help="Finish a half-written batch with the new code.")] = False,
    abandon: Annotated[bool, typer.Option("--abandon", help="Give a half-written batch up and read again.")] = False,
    at_once: AtOnce = 1,
    metrics_addr: MetricsAddress = None,
    as_json: AsJson = False,
) -> None:
    """Run the jobs, each after those that fill what it reads; one that fails does not stop the others."""
    from floodmark.cli.health import AlertBeat
    from floodmark.step.work import RunRequest

    options = RunRequest(start, full_refresh, max_rows, finish, abandon)
    loops = loop or every is not None
    refuse_contradictions(options, loops=loops, dry_run=dry_run)
    if loops and at_once > 1:
        raise ConfigError("--jobs is for one run: a loop runs its jobs in turn.", hint="leave out --jobs or --loop")
    stop_at_mistakes(ctx.obj, words(jobs, select), exclude or ())
    alerts = AlertBeat(ctx.obj)
    with nullcontext() if dry_run else alerts.telling_of_outage():
        command = RunCommand(ctx.obj, options, as_json, at_once, alerts)
        chosen = words(jobs, select)
        if retry_failed:
            failed = failed_jobs(command.invocation, chosen, exclude or ())
            if not failed:
                command.summarise([])
                return
            chosen, exclude = failed, None
        console: Literal["stdout", "stderr"] = "stderr" if as_json else "stdout"
        jobs_of = partial(command.invocation.jobs, exclude=exclude or (), console=console)
        with showing(command.invocation, as_json=as_json):  # a module may need Spark while it is imported
            built = with_mills(command.invocation, chosen, jobs_of, console)
        if dry_run:
            command.plan(built)
            return
        if metrics_addr is not None and not loops:
            raise ConfigError(
                "--metrics-addr shows the numbers of a loop.", hint="add --loop, or `floodmark health --metrics`"
            )
        with command.metrics_at(metrics_addr, [job.name for job in built]):
            code = command.loop(built, every) if loops else command.once(built)
    raise typer.Exit(code)


def failed_jobs(invocation: Invocation, select: Sequence[str], exclude: Sequence[str]) -> list[str]:
    """Of the selected jobs and mills, those whose last run failed."""
    from floodmark.project.mills import split_selection

    project, store = invocation.loaded_project(), invocation.store()
    chosen, mills = split_selection(project, select)
    jobs = invocation.selected(chosen, exclude) if chosen or not select else ()
    last = {each.name: list(store.runs(each.name, limit=1)) for each in (*jobs, *mills)}
    return [job for job, runs in last.items() if runs and runs[0].status == "failed"]


def refuse_contradictions(options: RunRequest, *, loops: bool, dry_run: bool) -> None:
    """Options that cannot be meant together."""
    if options.finish and options.abandon:
        raise ConfigError("--finish and --abandon contradict each other.", hint="give one of them")
    if options.full_refresh and options.start is not None:
        raise ConfigError("--full-refresh and --from contradict each other.", hint="give one of them")
    once = options.full_refresh or options.start is not None or options.finish or options.abandon
    if loops and (once or dry_run):
        raise ConfigError(
            "a loop takes no --from, --full-refresh, --finish, --abandon or --dry-run.",
            hint="run once with them, then start the loop",
        )


class RunCommand:
    """One call of `run`: where jobs get their store and session, and where their outcomes are printed."""

    def __init__(
        self, invocation: Invocation, options: RunRequest, as_json: bool, at_once: int, alerts: AlertBeat
    ) -> None:
        self.invocation, self.as_json, self.at_once = invocation, as_json, at_once
        self.options = replace(options, listeners=listeners_of(invocation))
        self.totals: dict[str, Receipt] = {}
        self.alerts = alerts
        self.count: Callable[[Receipt], None] = lambda _receipt: None

    def plan(self, jobs: Sequence[Job | MillJob]) -> None:
        """Low, high and count of each job; nothing is touched."""
        from floodmark.cli.plan import plans_of, print_plans

        print_plans(plans_of(self.invocation, jobs, self.options), self.invocation, as_json=self.as_json)

    def once(self, jobs: Sequence[Job | MillJob]) -> int:
        """Each job once; SIGTERM lets those that run finish and skips the rest."""
        from floodmark.jobs.running import exit_code
        from floodmark.patience import stop_on

        outcomes: list[Outcome] = []
        with stop_on(signal.SIGTERM, message=STOPPING) as stopping, self.showing():
            cleaner = self.cleaner()
            for outcome in self.outcomes(jobs, stopping):
                outcomes.append(outcome)
                self.report(outcome)
                cleaner.after(outcome.receipt)
        places = {job.name: place for place, job in enumerate(jobs)}
        self.summarise(sorted((each.receipt for each in outcomes), key=lambda receipt: places[receipt.job]))
        self.judge_alerts(outcomes)
        return exit_code(outcomes)

    def judge_alerts(self, outcomes: Sequence[Outcome]) -> None:
        """At the end; a run that lost the store left no receipt there by which it could be judged."""
        for error in [each.error for each in outcomes if isinstance(each.error, StoreUnreachable)][:1]:
            self.alerts.tell_of_outage(error)
        self.alerts.judge()

    def outcomes(self, jobs: Sequence[Job | MillJob], stopping: StopRequest) -> Iterator[Outcome]:
        """How each job ended, as it ends: in turn, or so many at once as were asked for, and mills after them."""
        from floodmark.jobs.running import run_each

        runner = self.runner(self.options)
        if self.at_once == 1:
            return run_each(jobs, runner, stopping.wait)
        from floodmark.jobs.side_by_side import SideBySide
        from floodmark.lineage import earlier_jobs
        from floodmark.project.mills import MillJob

        mills = [mill for mill in jobs if isinstance(mill, MillJob)]
        own, interrupt = [job for job in jobs if not isinstance(job, MillJob)], self.invocation.session().interrupt
        at_once = SideBySide(runner, stopping.wait, self.at_once, earlier_jobs(own), interrupt).run(own)
        return chain(at_once, run_each(mills, runner, stopping.wait))

    def showing(self, progress: Progress | None = None) -> AbstractContextManager[None]:
        return showing(self.invocation, as_json=self.as_json, progress=progress)

    def loop(self, jobs: Sequence[Runnable], every: str | None) -> int:
        """All jobs at their own beat until a signal comes; the current batch is finished first."""
        from floodmark.jobs.running import Loop
        from floodmark.patience import stop_on

        runner = replace(self.runner(replace(self.options, waits_for_settling=False)), notes_looks=True)
        self.invocation.start_logging("info")
        progress = Progress(idle_words=LOOPING)
        with stop_on(signal.SIGTERM, signal.SIGINT, message=STOPPING) as stopping, self.showing(progress):
            cleaner = self.cleaner()
            loop = Loop(lambda job: self.add_up(runner.run(job), cleaner), stopping, self.report)
            loop.status = lambda text: setattr(progress, "idle_words", text or LOOPING)
            code = loop.go(jobs, every)
        self.summarise(list(self.totals.values()))
        return code

    def runner(self, options: RunRequest) -> Runner:
        """Runs jobs with this command's store and session."""
        from floodmark.jobs.running import Runner

        return Runner(self.invocation.store(), self.invocation.session(), options)

    def cleaner(self) -> Cleaner:
        """Drops what the project's `retention` no longer keeps."""
        from floodmark.jobs.retention import Cleaner

        return Cleaner(self.invocation.store(), self.invocation.loaded_project().retention.build())

    def add_up(self, outcome: Outcome, cleaner: Cleaner) -> Outcome:
        """The same outcome, added to the totals of its job."""
        from floodmark.jobs.running import total

        job = outcome.receipt.job
        cleaner.after(outcome.receipt)
        self.count(outcome.receipt)
        self.alerts.after_run(outcome.receipt)
        self.totals[job] = total(self.totals[job], outcome.receipt) if job in self.totals else outcome.receipt
        return outcome

    def report(self, outcome: Outcome) -> None:
        """One line for a job that ended; a failure goes to stderr as every failure does."""
        if outcome.error is None:
            if not self.as_json:
                print_line(coloured_run_line(outcome.receipt))
            return
        message, hint = message_and_hint(outcome.error)
        named = message if f"'{outcome.receipt.job}'" in message else f"job '{outcome.receipt.job}': {message}"
        print_failure(named, hint, self.invocation)

    def summarise(self, receipts: Sequence[Receipt]) -> None:
        """The document, or the last line."""
        scrubbed = [replace(each, error=each.error and self.invocation.scrub(each.error)) for each in receipts]
        if self.as_json:
            print_json({"runs": [run_entry(each) for each in scrubbed]})
            return
        counts = {status: sum(each.outcome == status for each in receipts) for status in STATUSES}
        states = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in counts.items() if count)
        rows = sum(each.rows_read for each in receipts)
        print_line(f"{counted(len(receipts), 'job')}: {states or 'none ran'}; {counted(rows, 'row')} read")

    @contextmanager
    def metrics_at(self, address: str | None, jobs: Sequence[str]) -> Iterator[None]:
        """Show the numbers of this process and its jobs there as long as it lives."""
        if address is None:
            yield
            return
        from prometheus_client import start_http_server

        from floodmark.cli.health import stored_numbers
        from floodmark.health.metrics import LoopMetrics

        host, port = host_and_port(address)
        metrics = LoopMetrics(stored_numbers(self.invocation, jobs))
        self.count = metrics.count
        try:
            server, thread = start_http_server(port, host, metrics.registry)
        except OSError as error:
            raise ConfigError(
                f"{address} cannot be listened on: {error.strerror}.", hint="give another port"
            ) from error
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def listeners_of(invocation: Invocation) -> tuple[RunListener, ...]:
    """Who the project says is to be told of its runs."""
    project = invocation.loaded_project()
    if project.openlineage is None:
        return ()
    from floodmark.lineage.flows import Parts
    from floodmark.lineage.run_events import run_events_of

    site = invocation.site()
    parts = [Parts.of_model(job, site) for job in project.jobs]
    return (run_events_of(project.openlineage, parts, site, invocation.store().namespace),)


@contextmanager
def telling_of(invocation: Invocation, job: Job) -> Iterator[Job]:
    """The job, of whose batches those are told whom the project names, for an act that is no run."""
    from floodmark.step.listeners import telling

    listeners = listeners_of(invocation)
    if not listeners:
        yield job
        return
    with telling(listeners, job.name) as with_open_run:
        yield replace(job, listeners=with_open_run)


def host_and_port(address: str) -> tuple[str, int]:
    """`127.0.0.1:9090` in two; `:9090` and `9090` are of this machine alone."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > HIGHEST_PORT:
        raise ConfigError(f"--metrics-addr {address} has no port.", hint="write it as 127.0.0.1:9090")
    return host.strip("[]") or "127.0.0.1", int(port)

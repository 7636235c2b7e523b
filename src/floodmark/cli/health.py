"""`floodmark health | alerts`: what is judged without a JVM, which alerts are open, whether channels work."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import (
    AsJson,
    Exclude,
    Jobs,
    Select,
    counted,
    print_json,
    print_line,
    print_table,
    words,
)
from floodmark.errors import ConfigError, FloodmarkError, StoreUnreachable
from floodmark.health.report import subjects_text
from floodmark.logs import get_logger

if TYPE_CHECKING:
    from floodmark.health.alerts import HealthMemory
    from floodmark.health.metrics import StoredNumbers
    from floodmark.health.report import Finding, Report, TableWatch
    from floodmark.health.tables import TableLooks
    from floodmark.project.models import JobModel
    from floodmark.stores.record import Receipt


log = get_logger(__name__)
health_app = typer.Typer(add_completion=False)


@health_app.command()
def health(
    ctx: typer.Context,
    jobs: Jobs = None,
    select: Select = None,
    exclude: Exclude = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Send no alert, and remember nothing.")] = False,
    as_metrics: Annotated[bool, typer.Option("--metrics", help="Print numbers for Prometheus; judge nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Judge freshness, counts, quality, marks and pace; exit 1 if something is CRITICAL."""
    if as_metrics:
        print_line(metrics_text(ctx.obj).rstrip("\n"))
        return
    if jobs or select or exclude:
        report = examine_some(ctx.obj, words(jobs, select), exclude or ())
    elif quiet:
        report = examine_and_alert(ctx.obj, quiet=True)
    else:
        with AlertBeat(ctx.obj).telling_of_outage():
            report = examine_and_alert(ctx.obj)
    document = report.serialize()
    if as_json:
        print_json(document)
    else:
        _print(report)
    raise typer.Exit(1 if report.overall == "CRITICAL" else 0)


def metrics_text(invocation: Invocation, tables: TableLooks | None = None) -> str:
    """The numbers, for a collector of text files, a job that pushes them, or a page that is scraped."""
    from floodmark.health.metrics import exposition, metrics
    from floodmark.health.tables import TableLooks
    from floodmark.project.backlog import rows_behind
    from floodmark.project.health import watch_of

    project, site, store = invocation.loaded_project(), invocation.site(), invocation.store()
    tables = tables or TableLooks()
    behind = rows_behind(project.jobs, site, store, tables=tables)
    return exposition(metrics(watch_of(project, site), store, datetime.now(timezone.utc), behind, tables))


def stored_numbers(invocation: Invocation, jobs: Collection[str]) -> StoredNumbers:
    """Of these jobs, the tables that they fill and those that no job fills: what a loop shows beside what it counts."""
    from floodmark.health.metrics import StoredNumbers
    from floodmark.project.backlog import rows_behind
    from floodmark.project.health import PATIENCE_SECONDS, watch_of
    from floodmark.project.kinds import DeltaSink

    project, site, store = invocation.loaded_project(), invocation.site(), invocation.store()
    watch, own = watch_of(project, site), [job for job in project.jobs if job.name in jobs]

    def filled_by(job: JobModel) -> list[TableWatch]:
        places = {sink.place(site) for sink in job.sinks if isinstance(sink, DeltaSink)}
        return [table for table in watch.tables if table.where in places]

    tables = {job.name: filled_by(job) for job in own}
    others = {table.where for job in project.jobs if job not in own for table in filled_by(job)}
    others -= {table.where for filled in tables.values() for table in filled}
    own_watch = replace(
        watch,
        tables=tuple(table for table in watch.tables if table.where not in others),
        jobs=tuple(job for job in watch.jobs if job.name in jobs),
    )
    return StoredNumbers(own_watch, store, tables, lambda: rows_behind(own, site, store, PATIENCE_SECONDS))


def examine_some(invocation: Invocation, select: Sequence[str], exclude: Sequence[str]) -> Report:
    """Look at some jobs and their tables; nobody is alerted, since the others were not looked at."""
    from floodmark.project.health import examine_project

    project = invocation.loaded_project().with_listed(invocation.selected(select, exclude))
    limits = {name: own for name, own in project.health.tables.items() if not own.path}
    narrow = project.model_copy(update={"health": project.health.model_copy(update={"tables": limits})})
    return examine_project(narrow, invocation.site(), invocation.store(), datetime.now(timezone.utc))[0]


def examine_and_alert(invocation: Invocation, *, quiet: bool = False, asks_sources: bool = True) -> Report:
    """Look at everything; unless it is to be quiet, send channels what they have not heard, and remember it."""
    from floodmark.health.alerts import announce, remember, send, summary
    from floodmark.project.health import examine_project, subscriptions_of

    project, site, store = invocation.loaded_project(), invocation.site(), invocation.store()
    report, before = examine_project(project, site, store, datetime.now(timezone.utc), asks_sources=asks_sources)
    if not quiet:
        subscriptions = subscriptions_of(project, site)
        after = announce(report, before, subscriptions)
        send([summary(report)], subscriptions)
        remember(store, after)
    return report


WORST = {"CRITICAL": 0, "WARNING": 1, "UNKNOWN": 2}
"""Problems in the order in which people want to know of them."""
ALERT_SECONDS = 60.0


@dataclass
class AlertBeat:
    """Judges a project's alerts beside its runs: after every call of `run`, and in a loop after a run, once a minute
    at most, or at once when a job failed or works again. A look or a channel that fails never fails a run."""

    invocation: Invocation
    clock: Callable[[], float] = time.monotonic
    _last: float | None = None
    _failed: set[str] = field(default_factory=set)
    _outage: HealthMemory | None = None
    """Who heard that the store is lost: only this process knows, so a next one tells of it again, and of no end."""

    def after_run(self, receipt: Receipt) -> None:
        """A tick of a loop."""
        has_failed, had_failed = receipt.status == "failed", receipt.job in self._failed
        (self._failed.add if has_failed else self._failed.discard)(receipt.job)
        is_due = self._last is None or self.clock() - self._last >= ALERT_SECONDS
        if is_due or has_failed != had_failed:
            self.judge()

    def judge(self) -> None:
        """Look at everything, and send what is new; nothing, where nobody asked to hear of it."""
        if not self.invocation.loaded_project().alerts:
            return
        self._last = self.clock()
        try:
            examine_and_alert(self.invocation, asks_sources=False)  # the run has just asked them
        except FloodmarkError as error:
            log.warning("alerts could not be judged", reason=error.message)
            if isinstance(error, StoreUnreachable):
                self.tell_of_outage(error)
        else:
            self._tell_of_store()

    @contextmanager
    def telling_of_outage(self) -> Iterator[None]:
        """A store that is lost within the block is told to the channels, and stays the error that it is."""
        try:
            yield
        except StoreUnreachable as error:
            self.tell_of_outage(error)
            raise

    def tell_of_outage(self, error: StoreUnreachable) -> None:
        """As a failed run: there is no memory to judge by, and every run fails."""
        from floodmark.health.alerts import HealthMemory
        from floodmark.health.report import Finding

        self._outage = self._outage or HealthMemory(deliveries={})
        message = self.invocation.scrub(error.message)
        self._tell_of_store(Finding("processing_offsets", "mark store", "CRITICAL", message, {}, "failed_run"))

    def _tell_of_store(self, *findings: Finding) -> None:
        """That it is lost; without a finding, that it is back, to those who heard of the loss."""
        from floodmark.health.alerts import announce
        from floodmark.health.report import Report
        from floodmark.project.health import subscriptions_of

        if self._outage is None:
            return
        subscriptions = subscriptions_of(self.invocation.loaded_project(), self.invocation.site())
        self._outage = announce(Report(datetime.now(timezone.utc), findings), self._outage, subscriptions)


def _print(report: Report) -> None:
    print_line(report.overall)
    healthy = sum(finding.status == "HEALTHY" for finding in report.findings)
    problems = sorted((each for each in report.findings if each.status != "HEALTHY"), key=lambda e: WORST[e.status])
    rows = finding_rows(problems)
    if rows:
        print_table(("status", "check", "subject", "found"), rows)
    if healthy:
        print_line(f"{counted(healthy, 'check')} healthy{', and nothing else' if not rows else ''}")
    for advice in report.advice():
        print_line(f"Try: {advice}")


def finding_rows(findings: Sequence[Finding]) -> list[tuple[str, str, str, str]]:
    """What is said of several subjects in the same words, once."""
    same: dict[tuple[str, str, str], list[str]] = {}
    for each in findings:
        same.setdefault((each.status, each.check, each.message), []).append(each.subject)
    return [(status, check, subjects_text(names), message) for (status, check, message), names in same.items()]


alerts_app = typer.Typer(add_completion=False, no_args_is_help=True, help="List the open alerts, or try the channels.")


@alerts_app.command("list")
def list_alerts(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show the alerts that are open."""
    from floodmark.health.alerts import recall

    invocation: Invocation = ctx.obj
    known = recall(invocation.store()).alerts
    if as_json:
        print_json({"alerts": [{"id": each, "severity": severity} for each, severity in known.items()]})
    elif known:
        print_table(("severity", "alert"), [(severity, each) for each, severity in known.items()])
    else:
        print_line("no alert is open")


@alerts_app.command()
def test(ctx: typer.Context) -> None:
    """Send a trial alert through every channel."""
    from floodmark.health.alerts import Alert, send
    from floodmark.project.health import subscriptions_of

    invocation: Invocation = ctx.obj
    subscriptions = subscriptions_of(invocation.loaded_project(), invocation.site())
    if not subscriptions:
        raise ConfigError("the project has no `alerts`.", hint="add one: alerts: [{to: log}]")
    trial = Alert("test:floodmark", "test", "floodmark", "critical", "open", "a trial", datetime.now(timezone.utc))
    failed = 0
    for each in subscriptions:
        failures = send([trial], [type(each)(each.channel)])
        print_line(f"{each.channel.describe()}: {'failed' if failures else 'sent'}")
        failed += len(failures)
    raise typer.Exit(1 if failed else 0)

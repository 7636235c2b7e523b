"""`floodmark health | alerts`: what is judged without a JVM, which alerts are open, whether channels work."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import AsJson, print_json, print_line, print_table
from floodmark.errors import ConfigError

if TYPE_CHECKING:
    from floodmark.health.report import Report


health_app = typer.Typer(add_completion=False)


@health_app.command()
def health(
    ctx: typer.Context,
    quiet: Annotated[bool, typer.Option("--quiet", help="Send no alert, and remember nothing.")] = False,
    as_metrics: Annotated[bool, typer.Option("--metrics", help="Print numbers for Prometheus; judge nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Judge freshness, counts, quality, marks and pace; exit 1 if something is CRITICAL."""
    if as_metrics:
        print_metrics(ctx.obj)
        return
    report = examine_project(ctx.obj, quiet=quiet)
    document = report.serialize()
    if as_json:
        print_json(document)
    else:
        _print(report)
    raise typer.Exit(1 if report.overall == "CRITICAL" else 0)


def print_metrics(invocation: Invocation) -> None:
    """The numbers, for a collector of text files or a job that pushes them."""
    from floodmark.health.metrics import exposition, metrics
    from floodmark.project.check import rows_behind
    from floodmark.project.health import watch_of

    project, site, store = invocation.loaded_project(), invocation.site(), invocation.store()
    behind = rows_behind(project.jobs, site, store)
    found = metrics(watch_of(project, site), store, datetime.now(timezone.utc), behind)
    print_line(exposition(found).rstrip("\n"))


def examine_project(invocation: Invocation, *, quiet: bool = False) -> Report:
    """Look at everything; unless it is to be quiet, send alerts of what is new and remember it."""
    from floodmark.health.alerts import HealthMemory, judge, recall, remember, send, summary
    from floodmark.health.checks import examine, row_counts
    from floodmark.project.check import sinks_behind
    from floodmark.project.health import subscriptions_of, watch_of

    project, site, store = invocation.loaded_project(), invocation.site(), invocation.store()
    before = recall(store)
    behind = sinks_behind(project.jobs, site, store)
    report = examine(watch_of(project, site), store, datetime.now(timezone.utc), before.counts, behind)
    if not quiet:
        alerts, known = judge(report, before.alerts)
        send([*alerts, summary(report)], subscriptions_of(project, site))
        remember(store, HealthMemory(row_counts(report), known))
    return report


def _print(report: Report) -> None:
    print_line(report.overall)
    rows = [(finding.status, finding.check, finding.subject, finding.message) for finding in report.findings]
    if rows:
        print_table(("status", "check", "subject", "found"), rows)
    for advice in report.recommendations():
        print_line(f"Try: {advice}")


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

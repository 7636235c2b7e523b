"""`floodmark alerts list | test`: what is open, and whether the channels work."""

from __future__ import annotations

from datetime import datetime, timezone

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import AsJson, print_json, print_line, print_table
from floodmark.errors import ConfigError

app = typer.Typer(add_completion=False, no_args_is_help=True, help="List the open alerts, or try the channels.")


@app.command("list")
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


@app.command()
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

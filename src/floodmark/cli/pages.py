"""`floodmark report | serve`: the project to look at, as one file or live in a browser; no JVM."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.health import metrics_text
from floodmark.cli.invocation import Invocation
from floodmark.cli.output import AsJson, print_json, print_line
from floodmark.errors import ConfigError

if TYPE_CHECKING:
    from floodmark.jobs.diff import Diff
    from floodmark.web.access import Gate
    from floodmark.web.pages import Pages
    from floodmark.web.snapshot import KnownProject, Snapshot


report_app = typer.Typer(add_completion=False)
Output = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where the report is written.")]


@report_app.command()
def report(ctx: typer.Context, output: Output = Path("report.html"), as_json: AsJson = False) -> None:
    """Write one HTML file: tables, marks, lag, runs, rules, rows put aside, and what the last run changed."""
    from floodmark.machine import replace_file
    from floodmark.web.rendering import report_html

    invocation: Invocation = ctx.obj
    snapshot = snapshot_of(invocation)
    replace_file(output, invocation.scrub(report_html(snapshot, last_changes(invocation, snapshot))))
    if as_json:
        print_json({"report": str(output), "overall_status": snapshot.report.overall, "jobs": len(snapshot.jobs)})
    else:
        count = len(snapshot.jobs)
        print_line(f"{output}: {snapshot.report.overall}, {count} {'job' if count == 1 else 'jobs'}")


def last_changes(invocation: Invocation, snapshot: Snapshot) -> Diff | None:
    """What `floodmark diff` says of the last run and the one before it; None while there are no two."""
    from floodmark.cli.runs import sinks_compared
    from floodmark.jobs.diff import diff_of

    call = snapshot.last_call()
    last = [run for run in call if run.run]
    before = next((run for run in snapshot.runs[len(call) :] if run.run), None)
    if not last or before is None:
        return None
    return diff_of(invocation.store(), before, last[-1], sinks_compared(invocation))


def snapshot_of(invocation: Invocation, known: KnownProject | None = None, **depth: int) -> Snapshot:
    """The project as it stands now."""
    from floodmark.web.snapshot import take_snapshot

    project, site, store = invocation.loaded_project(), invocation.site(), invocation.store()
    return take_snapshot(project, site, store, datetime.now(timezone.utc), invocation.scrub, known, **depth)


serve_app = typer.Typer(add_completion=False)
Host = Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen; any but this machine needs a token.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")]
TokenFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Holds the token that logs in; with one, pages may act too.")
]


@serve_app.command()
def serve(ctx: typer.Context, host: Host = "127.0.0.1", port: Port = 8484, token_file: TokenFile = None) -> None:
    """Show jobs, runs, marks, lineage and rows put aside in a browser, until Ctrl-C."""
    from floodmark.web.access import Gate, is_loopback, read_token

    invocation: Invocation = ctx.obj
    token = read_token(token_file) if token_file else None
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"{host} can be reached from elsewhere, and there is no token.",
            hint="openssl rand -hex 32 > token && floodmark serve --host … --token-file token",
        )
    gate = Gate(token, frozenset({host}) if is_loopback(host) else frozenset())
    listen(pages_of(invocation, gate), host, port)


def pages_of(invocation: Invocation, gate: Gate) -> Pages:
    """The pages of this project; they look with this command's store."""
    from floodmark.web.acts import Acts
    from floodmark.web.pages import Pages
    from floodmark.web.snapshot import KnownProject

    document = invocation.document()  # now: a project file that is wrong is told before anybody listens
    invocation.loaded_project()
    options = [f"--project={document.file.absolute()}"]
    options += [f"--target={invocation.target}"] if invocation.target else []
    options += [f"--env-file={invocation.env_file.absolute()}"] if invocation.env_file else []
    known = KnownProject()
    return Pages(
        look=lambda: snapshot_of(invocation, known, runs_of_a_job=1),  # a job's own page reads the others
        store=invocation.store,
        gate=gate,
        acts=Acts(tuple(options), document.folder) if gate.token else None,
        changes=lambda snapshot: last_changes(invocation, snapshot),
        metrics=lambda: metrics_text(invocation, known.tables).encode(),
        scrub=invocation.scrub,
        log_lines=lambda job, run: log_lines(invocation, job, run),
    )


def log_lines(invocation: Invocation, job: str, run: str) -> list[str]:
    """The log of a run for people; nothing if none is kept on this machine."""
    from floodmark.cli.runs import log_text
    from floodmark.stores.run_logs import RunLogs

    logs = RunLogs.of(invocation.store())
    return [log_text(line) for line in (logs.lines(job, run) if logs else None) or ()]


def listen(pages: Pages, host: str, port: int) -> None:
    """Answer until a signal comes. The address is printed once it is taken."""
    try:
        import uvicorn
    except ImportError as error:
        raise ConfigError("`floodmark serve` needs a web server.", hint="pip install 'floodmark[web]'") from error
    import socket

    from floodmark.web.pages import application

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        taken = socket.create_server((host.strip("[]"), port), family=family)
    except OSError as error:
        raise ConfigError(
            f"{host}:{port} cannot be listened on: {error.strerror}.", hint="give another --port"
        ) from error
    shown = f"[{host}]" if ":" in host else host
    print_line(f"http://{shown}:{taken.getsockname()[1]}/ (Ctrl-C ends it)")
    pages.prepare()
    config = uvicorn.Config(application(pages), log_level="warning", access_log=False, server_header=False)
    try:
        uvicorn.Server(config).run(sockets=[taken])
    finally:
        pages.close()

"""`floodmark events`: the logs behind tables with history (`scd1`, `scd2`)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import (
    AsJson,
    Exclude,
    Jobs,
    Select,
    Yes,
    counted,
    one_job,
    print_json,
    print_line,
    words,
)
from floodmark.cli.progress import showing
from floodmark.errors import ConfigError
from floodmark.phases import phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floodmark.jobs.job import Job
    from floodmark.sinks.scd.maintenance import Moment

app = typer.Typer(add_completion=False, no_args_is_help=True)
Before = Annotated[
    str | None,
    typer.Option(metavar="MOMENT", help="A value of the sequence, such as 2024-01-01T00:00:00Z; else `keep_events`."),
]


@app.callback()
def events() -> None:
    """The logs behind tables with history."""


@app.command()
def prune(
    ctx: typer.Context,
    jobs: Jobs = None,
    select: Select = None,
    exclude: Exclude = None,
    before: Before = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Drop events below a moment; the tables stay as they are, and what arrives below it later is refused."""
    from floodmark.medallion import prune_events

    invocation: Invocation = ctx.obj
    chosen = pruned_jobs(invocation, words(jobs, select), exclude or (), before)
    what = f"events before {before}" if before else "events older than keep_events"
    if not yes:
        typer.confirm(f"drop {what} of {', '.join(each.name for each in chosen)}?", abort=True)
    moment = moment_of(before) if before is not None else None
    session, store = invocation.session(), invocation.store()
    dropped = {}
    for each in chosen:
        with showing(invocation, as_json=as_json), phase("pruning events", each.name):
            dropped[each.name] = prune_events(each, moment, session(), store)
    if as_json:
        print_json({"dropped": dropped})
        return
    for name, by_sink in dropped.items():
        for sink, count in by_sink.items():
            print_line(f"{name}: {counted(count, 'event')} dropped from the log of {sink}")


def pruned_jobs(invocation: Invocation, named: Sequence[str], exclude: Sequence[str], before: str | None) -> list[Job]:
    """The one job that has events before a moment, or all selected ones that say for how long they keep events."""
    if not named and before is not None:
        raise ConfigError("--before is a moment of one job's events.", hint="name the job")
    if before is not None:
        return [one_job(invocation, named, exclude)]
    chosen = jobs_that_keep(invocation.jobs(named, exclude=exclude))
    if not chosen:
        raise ConfigError("nothing says how far back events are kept.", hint="give --before, or `keep_events: 400d`")
    return chosen


def jobs_that_keep(jobs: Sequence[Job]) -> list[Job]:
    """Those with a log that says for how long events are kept."""
    from floodmark.sinks.scd import Scd1

    return [job for job in jobs if any(isinstance(sink, Scd1) and sink.keep_events for sink in job.sinks)]


def moment_of(text: str) -> Moment:
    """A time with its zone, or the text itself: a number, a date, whatever the sequence is."""
    is_time = "-" in text[1:] and ("T" in text or ":" in text)
    return datetime.fromisoformat(text.replace("Z", "+00:00")) if is_time else text

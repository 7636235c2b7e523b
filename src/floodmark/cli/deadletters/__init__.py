"""`floodmark deadletters`: list and show what was given up, replay it through its stream or job, or discard it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.deadletters_acts import discard_of_job, known, replay_of_job
from floodmark.cli.deadletters_found import StreamLetters, found, found_one
from floodmark.cli.deadletters_job import JobLetters
from floodmark.cli.deadletters_shown import Letter
from floodmark.cli.invocation import Invocation
from floodmark.cli.output import AsJson, DryRun, Yes, agreed, print_json, print_line, print_table
from floodmark.errors import ConfigError

if TYPE_CHECKING:
    from floodmark.streams.dead_letters import DeadLetter
    from floodmark.streams.replaying import Replayed

app = typer.Typer(add_completion=False, no_args_is_help=True, help="List, show, replay and discard dead letters.")

State = Annotated[
    Path | None, typer.Option(help="The state folder of a stream, or of several; else that beside the marks.")
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A stream (its group.id), or a job.")]
Letters = Annotated[list[str] | None, typer.Argument(metavar="[LETTER]...", help="As list shows them; else all open.")]
ERROR_WIDTH = 60


@app.command("list")
def list_(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this stream or job.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also those that were replayed or discarded.")] = False,
    state: State = None,
    as_json: AsJson = False,
) -> None:
    """List the records that were given up, by stream and job."""
    invocation: Invocation = ctx.obj
    letters = [each for holder in found(invocation, state, name) for each in holder.all()]
    shown = [each for each in letters if everything or each.status == "open"]
    if as_json:
        print_json({"dead_letters": [{**each.entry(), "error": invocation.scrub(each.error)} for each in shown]})
    elif not shown:
        print_line("no dead letters")
    else:
        header = ("of", "letter", "status", "at", "attempts", "error")
        print_table(header, [_cells(each, invocation) for each in shown])


@app.command()
def show(ctx: typer.Context, name: Name, letter: Letters = None, state: State = None, as_json: AsJson = False) -> None:
    """Show letters whole: key, headers, value, and why they failed."""
    invocation: Invocation = ctx.obj
    every = {each.letter: each for each in found_one(invocation, state, name).all()}
    chosen = [every[each] for each in known(every, letter, name) if letter or every[each].status == "open"]
    documents = [{**each.entry(), "error": invocation.scrub(each.error), **each.whole} for each in chosen]
    if as_json:
        print_json({"dead_letters": documents})
        return
    for document in documents:
        for what, value in document.items():
            print_line(f"{what:>10}  {'(none)' if value is None else value}")
        print_line("")


@app.command()
def replay(
    ctx: typer.Context,
    name: Name,
    letter: Letters = None,
    origin: Annotated[
        str | None, typer.Option("--from", metavar="MODULE:STREAM", help="Of a stream: the stream, as Python.")
    ] = None,
    state: State = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Run letters again, through the stream in this process or through the job on Spark; what fails stays open."""
    invocation: Invocation = ctx.obj
    holder = found_one(invocation, state, name)
    if isinstance(holder, JobLetters):
        _refuse_origin(origin, holder)
        failed = replay_of_job(invocation, holder, letter, yes=yes, dry_run=dry_run, as_json=as_json)
        raise typer.Exit(1 if failed else 0)
    letters = _open_ones(holder, letter)
    if origin is None:
        raise ConfigError(
            f"the steps of stream '{name}' are in your program.",
            hint=f"floodmark deadletters replay {name} --from MODULE:STREAM, where STREAM is what from_kafka returned",
        )
    if agreed(f"replay {len(letters)} dead letters of '{name}'", yes=yes or as_json, dry_run=dry_run):
        told = _replayed(holder, letters, origin)
        _tell(told, invocation, name, as_json=as_json)
        raise typer.Exit(1 if told.failed else 0)


@app.command()
def discard(
    ctx: typer.Context,
    name: Name,
    letter: Letters = None,
    state: State = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Close letters without running them; they stay in `list --all`."""
    holder = found_one(ctx.obj, state, name)
    if isinstance(holder, JobLetters):
        discard_of_job(ctx.obj, holder, letter, yes=yes, dry_run=dry_run)
        return
    letters = _open_ones(holder, letter)
    if agreed(f"discard {len(letters)} dead letters of '{name}'", yes=yes, dry_run=dry_run):
        for each in letters:
            holder.letters.resolve(each.record, "discarded", at=time.time())
        print_line(f"{name}: {len(letters)} discarded")


def _replayed(holder: StreamLetters, letters: list[DeadLetter], origin: str) -> Replayed:
    from floodmark.jobs.python_names import load_name
    from floodmark.streams.kafka_stream import KafkaStream
    from floodmark.streams.replaying import replay as run_again

    stream = load_name(origin, Path.cwd())
    if not isinstance(stream, KafkaStream):
        raise ConfigError(f"{origin} is a {type(stream).__name__}.", hint="name what from_kafka returned")
    if stream.group != holder.name:
        raise ConfigError(
            f"{origin} is the stream of group '{stream.group}', and the letters are of '{holder.name}'.",
            hint="name the stream that gave them up",
        )
    with holder.letters.replayed_by_one():
        return run_again(holder.letters, letters, stream.program(), as_list=stream.settings.rows_at_once is not None)


def _tell(told: Replayed, invocation: Invocation, name: str, *, as_json: bool) -> None:
    failed = {str(record): invocation.scrub(str(failure)) for record, failure in told.failed.items()}
    healed, dropped = [str(each) for each in told.healed], [str(each) for each in told.dropped]
    if as_json:
        print_json({"healed": healed, "dropped": dropped, "failed": failed})
        return
    print_line(f"{name}: {len(healed)} healed, {len(dropped)} dropped, {len(failed)} failed again")
    for letter, why in failed.items():
        print_line(f"{letter}: {why}")


def _refuse_origin(origin: str | None, holder: JobLetters) -> None:
    if origin is not None:
        raise ConfigError(f"'{holder.name}' is a job, which knows its steps.", hint="leave --from out")


def _open_ones(holder: StreamLetters, named: Sequence[str] | None) -> list[DeadLetter]:
    """The letters to act on: those that were named, or all that are open."""
    opened = {str(each.record): each for each in holder.letters.opened()}
    return [opened[letter] for letter in known(opened, named, holder.name)]


def _cells(letter: Letter, invocation: Invocation) -> tuple[str, ...]:
    error = " ".join(invocation.scrub(f"{letter.step}: {letter.error}").split())
    cut = error if len(error) <= ERROR_WIDTH else f"{error[: ERROR_WIDTH - 1]}…"
    return (letter.of, letter.letter, letter.status, letter.at, str(letter.attempts), cut)

"""`floodmark deadletters`: list and show what was given up, replay it through its stream or job, or discard it."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.deadletters.letters import Holder, JobLetters, Letter, StreamLetters, letter_holder, letter_holders
from floodmark.cli.invocation import Invocation
from floodmark.cli.output import (
    AsJson,
    DryRun,
    Exclude,
    Select,
    Yes,
    confirm,
    counted,
    print_json,
    print_line,
    print_table,
    words,
)
from floodmark.cli.progress import showing
from floodmark.cli.run import telling_of
from floodmark.errors import ConfigError
from floodmark.phases import phase

if TYPE_CHECKING:
    from floodmark.streams.healer.dead_letters import DeadLetter, ReplayReport


app = typer.Typer(add_completion=False, no_args_is_help=True, help="List, show, replay and discard dead letters.")
State = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="The state folder of a stream, or of several; else that beside the marks."),
]
Name = Annotated[
    str | None, typer.Argument(metavar="NAME", help="A stream (its group.id) or a job; as --select, in place of it.")
]
Letters = Annotated[list[str] | None, typer.Argument(metavar="LETTER", help="As list shows them; else all open.")]
ERROR_WIDTH = 60


@app.command("list")
def list_(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Only these streams and jobs; as --select.")
    ] = None,
    select: Select = None,
    exclude: Exclude = None,
    everything: Annotated[bool, typer.Option("--all", help="Also those that were replayed or discarded.")] = False,
    state: State = None,
    as_json: AsJson = False,
) -> None:
    """List the records that were given up, by stream and job."""
    invocation: Invocation = ctx.obj
    letters = [
        each
        for holder in letter_holders(invocation, state, words(names, select), exclude or ())
        for each in holder.all()
    ]
    chosen = [each for each in letters if everything or each.status == "open"]
    if as_json:
        print_json({"dead_letters": [{**each.entry(), "error": invocation.scrub(each.error)} for each in chosen]})
    elif not chosen:
        print_line("no dead letters")
    else:
        header = ("of", "letter", "status", "at", "attempts", "error")
        print_table(header, [_cells(each, invocation) for each in chosen])


@app.command()
def show(
    ctx: typer.Context,
    name: Name = None,
    letter: Letters = None,
    select: Select = None,
    exclude: Exclude = None,
    state: State = None,
    as_json: AsJson = False,
) -> None:
    """Show letters whole: key, headers, value, and why they failed."""
    invocation: Invocation = ctx.obj
    holders, named = _selected_letters(invocation, state, arguments_of(name, letter), select, exclude)
    documents = [document for each in holders for document in _documents(each, named, invocation)]
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
    name: Name = None,
    letter: Letters = None,
    select: Select = None,
    exclude: Exclude = None,
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
    holders, named = _selected_letters(invocation, state, arguments_of(name, letter), select, exclude)
    if as_json or any(isinstance(each, StreamLetters) for each in holders):
        holders = [letter_holder(holders)]
    act = partial(replay_of_one, invocation, named=named, origin=origin, yes=yes, dry_run=dry_run, as_json=as_json)
    raise typer.Exit(1 if sum(map(act, holders)) else 0)


@app.command()
def discard(
    ctx: typer.Context,
    name: Name = None,
    letter: Letters = None,
    select: Select = None,
    exclude: Exclude = None,
    state: State = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Close letters without running them; they stay in `list --all`."""
    holders, named = _selected_letters(ctx.obj, state, arguments_of(name, letter), select, exclude)
    for holder in holders:
        if isinstance(holder, JobLetters):
            discard_of_job(ctx.obj, holder, named, yes=yes, dry_run=dry_run)
            continue
        letters = _open_letters_of_stream(holder, named)
        if confirm(f"discard {counted(len(letters), 'dead letter')} of '{holder.name}'", yes=yes, dry_run=dry_run):
            for each in letters:
                holder.letters.resolve(each.record, "discarded", at=time.time())
            print_line(f"{holder.name}: {len(letters)} discarded")


def _selected_letters(
    invocation: Invocation,
    state: Path | None,
    arguments: Sequence[str],
    select: Sequence[str] | None,
    exclude: Sequence[str] | None,
) -> tuple[list[Holder], list[str]]:
    """Whose letters are meant, and which of them; beside --select, every argument is a letter.

    Raises ConfigError where letters are named and several have some, or a plain name is that of several.
    """
    named, letters = (select, arguments) if select else (arguments[:1], arguments[1:])
    if not named:
        raise ConfigError("no stream or job is named.", hint="name one, or `--select` some")
    holders = letter_holders(invocation, state, named, exclude or ())
    is_about_one = bool(letters) or len({each.name for each in holders}) == 1
    return ([letter_holder(holders)] if is_about_one else list(filter(_has_open, holders))), list(letters)


def _has_open(holder: Holder) -> bool:
    return any(each.status == "open" for each in holder.all())


def arguments_of(name: str | None, letters: Sequence[str] | None) -> list[str]:
    """What stands behind the command, in its order."""
    return [*([name] if name else []), *(letters or ())]


def _documents(holder: Holder, named: Sequence[str], invocation: Invocation) -> list[dict[str, object]]:
    every = {each.letter: each for each in holder.all()}
    chosen = [every[each] for each in letters_meant(every, named, holder.name) if named or every[each].status == "open"]
    return [{**each.entry(), "error": invocation.scrub(each.error), **each.details} for each in chosen]


def replay_of_one(
    invocation: Invocation,
    holder: Holder,
    named: Sequence[str],
    origin: str | None,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Run the open letters of a stream or of a job again; how many failed again."""
    if isinstance(holder, StreamLetters):
        return replay_of_stream(invocation, holder, named, origin, yes=yes, dry_run=dry_run, as_json=as_json)
    _refuse_origin(origin, holder)
    return replay_of_job(invocation, holder, named, yes=yes, dry_run=dry_run, as_json=as_json)


def replay_of_stream(
    invocation: Invocation,
    holder: StreamLetters,
    named: Sequence[str],
    origin: str | None,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Run letters through the stream's own steps in this process; how many failed again."""
    letters, name = _open_letters_of_stream(holder, named), holder.name
    if origin is None:
        raise ConfigError(
            f"the steps of stream '{name}' are in your program.",
            hint=f"floodmark deadletters replay {name} --from MODULE:STREAM, where STREAM is what from_kafka returned",
        )
    if not confirm(f"replay {counted(len(letters), 'dead letter')} of '{name}'", yes=yes or as_json, dry_run=dry_run):
        return 0
    result = _replay_stream(holder, letters, origin)
    _report_stream(result, invocation, name, as_json=as_json)
    return len(result.failures)


def replay_of_job(
    invocation: Invocation, holder: JobLetters, named: Sequence[str] | None, *, yes: bool, dry_run: bool, as_json: bool
) -> int:
    """Run letters through the job's own transform into its own sinks; how many failed again."""
    from floodmark.jobs.dead_letters import replay_letters

    letters = _runnable(holder, named)
    if not confirm(_act("replay", letters, holder), yes=yes or as_json, dry_run=dry_run):
        return 0
    [job] = invocation.jobs([holder.name], console="stderr" if as_json else "stdout")
    ids = [each.id for each in letters if each.id] if named else ()
    with showing(invocation, as_json=as_json), phase("replaying", job.name), telling_of(invocation, job) as heard:
        replay_letters(heard, ids, invocation.session(), invocation.store())
    return _report(holder, letters, invocation, as_json=as_json)


def discard_of_job(
    invocation: Invocation, holder: JobLetters, named: Sequence[str] | None, *, yes: bool, dry_run: bool
) -> None:
    """Close letters of a job without running them."""
    from floodmark.jobs.dead_letters import discard_letters

    letters = [each for each in _open_letters(holder, named) if each.id]
    if confirm(_act("discard", letters, holder), yes=yes, dry_run=dry_run):
        [job] = invocation.jobs([holder.name])
        ids = [each.id for each in letters if each.id]
        with showing(invocation), phase("discarding", job.name):
            discarded = discard_letters(job, ids, invocation.session(), invocation.store()) if ids else 0
        print_line(f"{holder.name}: {discarded} discarded")


def _runnable(holder: JobLetters, named: Sequence[str] | None) -> list[Letter]:
    """The open letters that hold their record. Raises ConfigError if none does, or one that was named does not."""
    opened = _open_letters(holder, named)
    mute = [each.letter for each in opened if not each.can_run]
    if mute and (named or len(mute) == len(opened)):
        raise ConfigError(
            f"letter {mute[0]} of '{holder.name}' holds its text alone, not the record that could be run again.",
            hint="fix it at the source; Kafka messages, lines of JSON and records of fm.heal can be replayed",
        )
    return [each for each in opened if each.can_run]


def _open_letters(holder: JobLetters, named: Sequence[str] | None) -> list[Letter]:
    opened = [each for each in holder.all() if each.status == "open"]
    meant = letters_meant({each.letter for each in opened}, named, holder.name)
    return [each for each in opened if each.letter in meant]


def letters_meant(letters: Collection[str], named: Sequence[str] | None, of: str) -> Collection[str]:
    """The letters that were named, or all. Raises ConfigError for a name that none has."""
    for letter in named or ():
        if letter not in letters:
            raise ConfigError(f"'{of}' has no such letter: {letter}.", hint=f"floodmark deadletters list {of} --all")
    return named or letters


def _act(act: str, letters: Sequence[Letter], holder: JobLetters) -> str:
    return f"{act} {counted(len(letters), 'dead letter')} of '{holder.name}'"


def _report(holder: JobLetters, letters: Sequence[Letter], invocation: Invocation, *, as_json: bool) -> int:
    """Say what became of the letters; how many are still open."""
    meant = {each.id for each in letters}
    now = [each for each in holder.all() if each.id in meant]
    failed = {each.letter: invocation.scrub(each.error) for each in now if each.status == "open"}
    replayed = [each.letter for each in now if each.status == "replayed"]
    if as_json:
        print_json({"replayed": replayed, "failed": failed})
        return len(failed)
    print_line(f"{holder.name}: {len(replayed)} replayed, {len(failed)} failed again")
    for letter, why in failed.items():
        print_line(f"{letter}: {why}")
    return len(failed)


def _refuse_origin(origin: str | None, holder: JobLetters) -> None:
    if origin is not None:
        raise ConfigError(f"'{holder.name}' is a job, which knows its steps.", hint="leave --from out")


def _replay_stream(holder: StreamLetters, letters: list[DeadLetter], origin: str) -> ReplayReport:
    from floodmark.locations import load_name
    from floodmark.streams.healer.dead_letters import replay as run_again
    from floodmark.streams.healer.dead_letters import require_settled
    from floodmark.streams.kafka import KafkaStream

    stream = load_name(origin, Path.cwd())
    if not isinstance(stream, KafkaStream):
        raise ConfigError(f"{origin} is a {type(stream).__name__}.", hint="name what from_kafka returned")
    if stream.group != holder.name:
        raise ConfigError(
            f"{origin} is the stream of group '{stream.group}', and the letters are of '{holder.name}'.",
            hint="name the stream that gave them up",
        )
    require_settled(letters, stream.store.read(stream.group))
    with holder.letters.lock_replay():
        return run_again(holder.letters, letters, stream.program(), as_list=stream.settings.rows_at_once is not None)


def _report_stream(result: ReplayReport, invocation: Invocation, name: str, *, as_json: bool) -> None:
    failed = {str(record): invocation.scrub(str(failure)) for record, failure in result.failures.items()}
    healed, dropped = [str(each) for each in result.healed_records], [str(each) for each in result.dropped_records]
    if as_json:
        print_json({"healed": healed, "dropped": dropped, "failed": failed})
        return
    print_line(f"{name}: {len(healed)} healed, {len(dropped)} dropped, {len(failed)} failed again")
    for letter, why in failed.items():
        print_line(f"{letter}: {why}")


def _open_letters_of_stream(holder: StreamLetters, named: Sequence[str] | None) -> list[DeadLetter]:
    """The letters to act on: those that were named, or all that are open."""
    opened = {str(each.record): each for each in holder.letters.open_letters()}
    return [opened[letter] for letter in letters_meant(opened, named, holder.name)]


def _cells(letter: Letter, invocation: Invocation) -> tuple[str, ...]:
    error = " ".join(invocation.scrub(f"{letter.step}: {letter.error}").split())
    cut = error if len(error) <= ERROR_WIDTH else f"{error[: ERROR_WIDTH - 1]}…"
    return (letter.of, letter.letter, letter.status, letter.at, str(letter.attempts), cut)

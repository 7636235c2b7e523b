"""Replaying and discarding the dead letters of a job: which are meant, and what is told of them afterwards."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from floodmark.cli.output import agreed, print_json, print_line
from floodmark.errors import ConfigError

if TYPE_CHECKING:
    from floodmark.cli.deadletters_job import JobLetters
    from floodmark.cli.deadletters_shown import Letter
    from floodmark.cli.invocation import Invocation


def replay_of_job(
    invocation: Invocation, holder: JobLetters, named: Sequence[str] | None, *, yes: bool, dry_run: bool, as_json: bool
) -> int:
    """Run letters through the job's own transform into its own sinks; how many failed again."""
    from floodmark.jobs.dead_letters import replay_letters

    letters = _runnable(holder, named)
    if not agreed(_act("replay", letters, holder), yes=yes or as_json, dry_run=dry_run):
        return 0
    [job] = invocation.jobs([holder.name], console="stderr" if as_json else "stdout")
    ids = [each.id for each in letters if each.id] if named else ()
    replay_letters(job, ids, invocation.session(), invocation.store())
    return _told(holder, letters, invocation, as_json=as_json)


def discard_of_job(
    invocation: Invocation, holder: JobLetters, named: Sequence[str] | None, *, yes: bool, dry_run: bool
) -> None:
    """Close letters of a job without running them."""
    from floodmark.jobs.dead_letters import discard_letters

    letters = [each for each in _opened(holder, named) if each.id]
    if agreed(_act("discard", letters, holder), yes=yes, dry_run=dry_run):
        [job] = invocation.jobs([holder.name])
        ids = [each.id for each in letters if each.id]
        discarded = discard_letters(job, ids, invocation.session(), invocation.store()) if ids else 0
        print_line(f"{holder.name}: {discarded} discarded")


def known(letters: Collection[str], named: Sequence[str] | None, of: str) -> Collection[str]:
    """The letters that were named, or all. Raises ConfigError for a name that none has."""
    for letter in named or ():
        if letter not in letters:
            raise ConfigError(f"'{of}' has no such letter: {letter}.", hint=f"floodmark deadletters list {of} --all")
    return named or letters


def _opened(holder: JobLetters, named: Sequence[str] | None) -> list[Letter]:
    opened = [each for each in holder.all() if each.status == "open"]
    meant = known({each.letter for each in opened}, named, holder.name)
    return [each for each in opened if each.letter in meant]


def _runnable(holder: JobLetters, named: Sequence[str] | None) -> list[Letter]:
    """The open letters that hold their record. Raises ConfigError if none does, or one that was named does not."""
    opened = _opened(holder, named)
    mute = [each.letter for each in opened if not each.can_run]
    if mute and (named or len(mute) == len(opened)):
        raise ConfigError(
            f"letter {mute[0]} of '{holder.name}' holds its text alone, not the record that could be run again.",
            hint="mend it at the source; Kafka messages, lines of JSON and records of fm.heal can be replayed",
        )
    return [each for each in opened if each.can_run]


def _act(act: str, letters: Sequence[Letter], holder: JobLetters) -> str:
    return f"{act} {len(letters)} dead letters of '{holder.name}'"


def _told(holder: JobLetters, letters: Sequence[Letter], invocation: Invocation, *, as_json: bool) -> int:
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

"""Where dead letters lie: of streams in their state folders, of jobs in the Delta tables that the project names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from floodmark.errors import ConfigError
from floodmark.probes.set_aside import SetAsideRow, rows_set_aside
from floodmark.project.selection import Selection, Tagged, is_plain
from floodmark.stores.opening import HIDDEN_FOLDER, STREAMS_FOLDER, folder_beside
from floodmark.streams.healer.dead_letters import DeadLetter, DeadLetters, letters_below, text_of

if TYPE_CHECKING:
    from floodmark.cli.invocation import Invocation


@dataclass(frozen=True)
class Letter:
    """A dead letter as the command line shows it, of a stream or of a job.

    `details` is what only `show` prints; `id` and `can_run` are those of a job's letter.
    """

    of: str
    kind: str
    letter: str
    status: str
    at: str
    attempts: int
    step: str
    error: str
    details: Mapping[str, object] = field(default_factory=dict)
    id: str | None = None
    can_run: bool = True

    def entry(self) -> dict[str, object]:
        """As `list --json` prints it."""
        names = ("of", "kind", "letter", "status", "at", "attempts", "step", "error")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class JobLetters:
    """The letters of a job: what its source could not parse, and what its transform failed on."""

    name: str
    path: str
    kind = "job"

    def all(self) -> list[Letter]:
        return [_letter_of_job(self.name, row) for row in rows_set_aside(self.path, self.name, "dead_letter")]


@dataclass(frozen=True)
class StreamLetters:
    """The letters of a stream."""

    name: str
    letters: DeadLetters
    tags: tuple[str, ...] = ()
    kind = "stream"

    def all(self) -> list[Letter]:
        return [_letter_of_stream(self.name, each) for each in self.letters.all()]


Holder: TypeAlias = "StreamLetters | JobLetters"


def letter_holders(
    invocation: Invocation, state: Path | None, named: Sequence[str], exclude: Sequence[str] = ()
) -> list[Holder]:
    """Everything that can have dead letters here, or what these words mean of it.

    `job:NAME` and `stream:NAME` tell two of a name apart. Raises ConfigError for a word that means none of them.
    """
    everything: list[Holder] = [*_streams(invocation, state), *_jobs(invocation)]
    chosen = [each for word in named for each in _holders_meant(invocation, everything, word)] if named else everything
    left_out = [each for word in exclude for each in _holders_meant(invocation, everything, word)]
    return [each for each in everything if each in chosen and each not in left_out]


def _holders_meant(invocation: Invocation, everything: Sequence[Holder], word: str) -> list[Holder]:
    if is_plain(word):
        chosen = [each for each in everything if word in (each.name, f"{each.kind}:{each.name}")]
    else:
        jobs = invocation.loaded_project().jobs if _has_project(invocation) else ()
        streams = [each for each in everything if isinstance(each, StreamLetters)]
        tagged: list[Tagged] = [*jobs, *(each for each in streams if each.name not in {job.name for job in jobs})]
        names = {each.name for each in Selection([word]).of(tagged, invocation.needed_jobs)}
        chosen = [each for each in everything if each.name in names]
    if not chosen:
        known = ", ".join(each.name for each in everything) or "(none has any)"
        raise ConfigError(
            f"no stream or job '{word}' with dead letters.",
            hint=f"one of: {known}; a stream elsewhere is found by --state FOLDER",
        )
    return chosen


def letter_holder(chosen: Sequence[Holder]) -> Holder:
    """The one that a command is about. Raises ConfigError where several are meant."""
    if len(chosen) == 1:
        return chosen[0]
    names = [each.name for each in chosen]
    if len(set(names)) == 1:
        both = " or ".join(f"{each.kind}:{each.name}" for each in chosen)
        raise ConfigError(f"'{names[0]}' is the name of several that have dead letters.", hint=f"write {both}")
    count = f"{len(names)} streams and jobs are named, and this is about one"
    raise ConfigError(f"{count}{': ' if names else ''}{', '.join(names)}.", hint="name one stream or job")


def _streams(invocation: Invocation, state: Path | None) -> list[StreamLetters]:
    if state is not None and not state.is_dir():
        raise ConfigError(
            f"there is no folder {state}.", hint="give the `state` folder of the stream, or that above it"
        )
    above = [state] if state else [folder / STREAMS_FOLDER for folder in _beside_the_marks(invocation)]
    return [StreamLetters(letters.stream, letters) for folder in above for letters in letters_below(folder)]


def _beside_the_marks(invocation: Invocation) -> list[Path]:
    """Where streams keep their state when nobody says another place."""
    if not _has_project(invocation):
        return [Path(), HIDDEN_FOLDER]
    return [folder_beside(invocation.store())]


def _jobs(invocation: Invocation) -> list[JobLetters]:
    if not _has_project(invocation):
        return []

    site = invocation.site()
    jobs = invocation.loaded_project().jobs
    return [JobLetters(job.name, site.path(job.places_aside()["dead_letters"])) for job in jobs if job.dead_letters]


def _has_project(invocation: Invocation) -> bool:
    """A stream needs no project file; one that was named has to be there."""
    from floodmark.stores.project import FILE_NAME

    here = Path.cwd()
    return invocation.project is not None or any((up / FILE_NAME).is_file() for up in (here, *here.parents))


def _letter_of_job(name: str, row: SetAsideRow) -> Letter:
    place = {"file": row.file, "line": row.line, "text": row.text}
    return Letter(
        of=name,
        kind=JobLetters.kind,
        letter=row.name,
        status=row.status,
        at=str(row.batch_time),
        attempts=row.attempts,
        step=str(row.source),
        error="; ".join(row.reasons),
        details={"number": row.number, "source": row.source, **place, "record": row.record},
        id=row.id,
        can_run=row.record is not None,
    )


def _letter_of_stream(name: str, letter: DeadLetter) -> Letter:
    headers = [] if letter.headers is None else [[header, text_of(value)] for header, value in letter.headers]
    return Letter(
        of=name,
        kind=StreamLetters.kind,
        letter=str(letter.record),
        status=letter.status,
        at=_moment(letter.last_at),
        attempts=letter.attempts,
        step=letter.step,
        error=letter.error,
        details={
            "first_at": _moment(letter.first_at),
            "timestamp": _moment(letter.timestamp / 1000),
            "key": text_of(letter.key),
            "headers": headers,
            "value": text_of(letter.value),
        },
    )


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")

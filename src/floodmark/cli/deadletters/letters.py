"""Where dead letters lie: of streams in their state folders, of jobs in the Delta tables that the project names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from floodmark.cli.deadletters_job import JobLetters
from floodmark.cli.deadletters_shown import Letter
from floodmark.errors import ConfigError
from floodmark.stores.contract import Housed
from floodmark.streams.dead_letters import DeadLetter, DeadLetters

if TYPE_CHECKING:
    from floodmark.cli.invocation import Invocation

HIDDEN = Path(".floodmark")


@dataclass(frozen=True)
class StreamLetters:
    """The letters of a stream."""

    name: str
    letters: DeadLetters
    kind = "stream"

    def all(self) -> list[Letter]:
        return [_of_stream(self.name, each) for each in self.letters.all()]


def found(invocation: Invocation, state: Path | None, name: str | None) -> list[StreamLetters | JobLetters]:
    """Everything that can have dead letters here, or only what has that name; `job:NAME` tells two of a name apart."""
    everything: list[StreamLetters | JobLetters] = [*_streams(invocation, state), *_jobs(invocation)]
    chosen = [each for each in everything if name in (None, each.name, f"{each.kind}:{each.name}")]
    if name is not None and not chosen:
        known = ", ".join(each.name for each in everything) or "(none has any)"
        raise ConfigError(
            f"no stream or job '{name}' with dead letters.",
            hint=f"one of: {known}; a stream elsewhere is found by --state FOLDER",
        )
    return chosen


def found_one(invocation: Invocation, state: Path | None, name: str) -> StreamLetters | JobLetters:
    """The stream or job of that name."""
    chosen = found(invocation, state, name)
    if len(chosen) > 1:
        both = " or ".join(f"{each.kind}:{each.name}" for each in chosen)
        raise ConfigError(f"'{name}' is the name of several that have dead letters.", hint=f"write {both}")
    return chosen[0]


def _streams(invocation: Invocation, state: Path | None) -> list[StreamLetters]:
    if state is not None and not state.is_dir():
        raise ConfigError(
            f"there is no folder {state}.", hint="give the `state` folder of the stream, or that above it"
        )
    above = [state] if state else [folder / "streams" for folder in _beside_the_marks(invocation)]
    roots = [root for each in above if each.is_dir() for root in (each, *sorted(each.iterdir()))]
    return [StreamLetters(unquote(root.name), DeadLetters(root / "dead")) for root in roots if (root / "dead").is_dir()]


def _beside_the_marks(invocation: Invocation) -> list[Path]:
    """Where streams keep their state when nobody says another place."""
    if not _has_project(invocation):
        return [Path(), HIDDEN]
    store = invocation.store()
    return [store.folder if isinstance(store, Housed) else HIDDEN]


def _jobs(invocation: Invocation) -> list[JobLetters]:
    if not _has_project(invocation):
        return []
    from floodmark.jobs.kinds import Site

    site = Site(invocation.document().folder)
    jobs = invocation.loaded_project().jobs
    return [JobLetters(job.name, site.path(job.dead_letters.path)) for job in jobs if job.dead_letters]


def _has_project(invocation: Invocation) -> bool:
    """A stream needs no project file; one that was named has to be there."""
    from floodmark.jobs.project_file import FILE_NAME

    here = Path.cwd()
    return invocation.project is not None or any((up / FILE_NAME).is_file() for up in (here, *here.parents))


def _of_stream(name: str, letter: DeadLetter) -> Letter:
    headers = [] if letter.headers is None else [[header, _shown(value)] for header, value in letter.headers]
    return Letter(
        of=name,
        kind=StreamLetters.kind,
        letter=str(letter.record),
        status=letter.status,
        at=_moment(letter.last_at),
        attempts=letter.attempts,
        step=letter.step,
        error=letter.error,
        whole={
            "first_at": _moment(letter.first_at),
            "timestamp": _moment(letter.timestamp / 1000),
            "key": _shown(letter.key),
            "headers": headers,
            "value": _shown(letter.value),
        },
    )


def _shown(value: bytes | None) -> str | None:
    """Text where it is text; else what Python writes for the bytes."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return repr(value)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")

"""Where dead letters lie: of streams in their state folders, of jobs in the Delta tables that the project names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

from floodmark.errors import ConfigError, SourceUnreadable
from floodmark.stores.opening import HIDDEN_FOLDER, folder_beside
from floodmark.streams.healer.dead_letters import DeadLetter, DeadLetters

if TYPE_CHECKING:
    from floodmark.cli.invocation import Invocation


# A dead letter as the command line shows it, of a stream or of a job.
@dataclass(frozen=True)
class Letter:
    """`whole` is what only `show` prints; `id` and `can_run` are those of a job's letter."""

    of: str
    kind: str
    letter: str
    status: str
    at: str
    attempts: int
    step: str
    error: str
    whole: Mapping[str, object] = field(default_factory=dict)
    id: str | None = None
    can_run: bool = True

    def entry(self) -> dict[str, object]:
        """As `list --json` prints it."""
        named = ("of", "kind", "letter", "status", "at", "attempts", "step", "error")
        return {name: getattr(self, name) for name in named}


# The dead letters of a job, read from its Delta table without a JVM: what each is now, by all that was noted of it.
Row: TypeAlias = "Mapping[str, Any]"


@dataclass(frozen=True)
class JobLetters:
    """The letters of a job: what its source could not parse, and what its transform failed on."""

    name: str
    path: str
    kind = "job"

    def all(self) -> list[Letter]:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            rows = DeltaTable(self.path).to_pyarrow_table().to_pylist()
        except TableNotFoundError:
            return []
        except (DeltaError, OSError) as error:
            raise SourceUnreadable(f"delta table {self.path}", reason=str(error).splitlines()[0]) from error
        mine = [row for row in rows if row["job"] == self.name]
        return [_letter(self.name, first, last) for first, last in _followed(mine)]


def _followed(rows: Iterable[Row]) -> Iterator[tuple[Row, Row]]:
    """The first and the last that was noted of each letter, by the batch that met it and its place."""
    found: dict[str, tuple[Row, Row]] = {}
    for row in sorted(rows, key=lambda row: (row["number"], _status(row) != "open")):
        known = row.get("id") or _letter_name(row)
        first, _ = found.get(known, (row, row))
        found[known] = (first, row)
    yield from sorted(found.values(), key=lambda both: _place(both[0]))


def _letter(name: str, first: Row, last: Row) -> Letter:
    told = ("source", "file", "line", "text", "record")
    return Letter(
        of=name,
        kind=JobLetters.kind,
        letter=_letter_name(first),
        status=_status(last),
        at=str(last["batch_time"]),
        attempts=last.get("attempts") or 1,
        step=str(last["source"]),
        error=str(last["reason"]),
        whole={"number": first["number"], **{what: last.get(what) for what in told}},
        id=last.get("id"),
        can_run=last.get("record") is not None,
    )


def _letter_name(row: Row) -> str:
    """Batch and place; a record whose place has no line is told apart by the beginning of its id."""
    place = f"{row['file']}:{row['line']}"
    return f"{row['number']}:{place if row['line'] is not None or not row.get('id') else row['id'][:8]}"


def _status(row: Row) -> str:
    """Tables of earlier versions know no other."""
    return row.get("status") or "open"


def _place(row: Row) -> tuple[object, ...]:
    return (row["number"], str(row["file"]), row["line"] or 0)


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
        return [Path(), HIDDEN_FOLDER]
    return [folder_beside(invocation.store())]


def _jobs(invocation: Invocation) -> list[JobLetters]:
    if not _has_project(invocation):
        return []
    from floodmark.project.kinds import Site

    site = Site(invocation.document().folder)
    jobs = invocation.loaded_project().jobs
    return [JobLetters(job.name, site.path(job.dead_letters.path)) for job in jobs if job.dead_letters]


def _has_project(invocation: Invocation) -> bool:
    """A stream needs no project file; one that was named has to be there."""
    from floodmark.project.file import FILE_NAME

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

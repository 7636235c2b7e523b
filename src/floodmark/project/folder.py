"""A project of several files as one document: jobs in files of their own, defaults for all of them, SQL beside them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from floodmark.errors import ConfigError, FieldInvalid, UnknownField
from floodmark.inputs import LARGEST_DOCUMENT, read_text
from floodmark.inputs.yaml import parse
from floodmark.project.file import Document

if TYPE_CHECKING:
    from floodmark.hwm import Json
    from floodmark.inputs.yaml import Place


DEFAULT_FILES = ("jobs/**/*.yaml", "jobs/**/*.yml")
"""What a project without `include` takes in: nothing has to be there."""
FILE_FIELDS = ("jobs", "defaults")
JOB_NAME = "{job}"
"""Stands for the job's own name in a default, so that two jobs do not share a folder."""


def gather(document: Document) -> Document:
    """The document with all that its folder holds: included jobs, defaults, SQL.

    A file that cannot be read is left out, and the reason is among its `mistakes`. The same document, if this was done
    before.
    """
    return document if document.is_whole else _Gathering(document).whole()


def without(document: Document, places: Collection[Place]) -> tuple[Document, dict[str, str]]:
    """The whole document without what is wrong at these places: a job, or a field of the file.

    A job whose mistake is its name, which an earlier one has, gets another one; by that, the name in the file.
    """
    jobs = _listed(document.values.get("jobs", []))
    renamed = {place[1] for place in places if place[:1] == ("jobs",) and place[2:] == ("name",)}
    dropped = {place[1] for place in places if place[:1] == ("jobs",) and len(place) > 1 and place[2:] != ("name",)}
    kept = [position for position in range(len(jobs)) if position not in dropped]
    names: dict[str, str] = {}
    own: list[Json] = []
    for position in kept:
        job = jobs[position]
        if position in renamed and isinstance(job, dict):
            name = f"{job['name']}.{position}"
            names[name], job = str(job["name"]), {**job, "name": name}
        own.append(job)
    fields = {place[0] for place in places if place and (place[0] != "jobs" or len(place) == 1)}
    values = {name: value for name, value in document.values.items() if name not in fields}
    places_now: dict[Place, Place] = {("jobs", position): ("jobs", new) for new, position in enumerate(kept)}
    values |= {"jobs": own} if "jobs" in values else {}
    lines, homes = _moved(document.lines, places_now), _moved(document.homes, places_now)
    return replace(document, values=values, lines=lines, homes=homes, mistakes=()), names


AnyValue = TypeVar("AnyValue")


def _moved(by_place: Mapping[Place, AnyValue], places: Mapping[Place, Place]) -> dict[Place, AnyValue]:
    """What is known of places, at those where the jobs stand now."""
    others = {place: value for place, value in by_place.items() if place[:1] != ("jobs",) or len(place) == 1}
    moved = {(*places[p[:2]], *p[2:]): value for p, value in by_place.items() if p[:2] in places}
    return others | moved


def included_files(document: Document, wrong: list[ConfigError]) -> list[Path]:
    """The files that the project takes in, by name; a pattern without files is a mistake."""
    patterns = document.values.get("include")
    if patterns is None:
        return _matching(document.folder, DEFAULT_FILES, but=document.file)
    texts = [str(document.expand(each, ("include", place))) for place, each in enumerate(_listed(patterns))]
    for place, text in enumerate(texts):
        if not _matching(document.folder, [text], but=document.file):
            where, reason = document.where(("include", place)), f"matches no file: {_listed(patterns)[place]}"
            wrong.append(FieldInvalid("include", where=where, reason=reason))
    return _matching(document.folder, texts, but=document.file)


def _matching(folder: Path, patterns: Sequence[str], *, but: Path) -> list[Path]:
    files = {file for pattern in patterns for file in _files(folder, pattern) if file != but}
    return sorted(files)


def _files(folder: Path, pattern: str) -> Iterator[Path]:
    if Path(pattern).is_absolute():
        folder, pattern = Path(Path(pattern).anchor), str(Path(pattern).relative_to(Path(pattern).anchor))
    return (file for file in folder.glob(pattern) if file.is_file())


@dataclass
class _Gathering:
    """Puts the document together, value by value, and remembers which file each came from."""

    document: Document
    jobs: list[Json] = field(default_factory=list)
    lines: dict[Place, int] = field(default_factory=dict)
    homes: dict[Place, str] = field(default_factory=dict)
    wrong: list[ConfigError] = field(default_factory=list)

    def whole(self) -> Document:
        root = self.document
        self.lines = {place: line for place, line in root.lines.items() if place[:1] != ("jobs",) or len(place) == 1}
        jobs = root.values.get("jobs", [])
        if not isinstance(jobs, list | dict):
            return replace(root, is_whole=True)  # what is wrong with it is the models' to say
        self._take(jobs, root, ("jobs",), {})
        for file in self._included():
            with self._noting_mistakes():
                self._include(file)
        values = {**root.values, "jobs": self.jobs} if self.jobs or "jobs" in root.values else root.values
        return replace(
            root, values=values, lines=self.lines, homes=self.homes, is_whole=True, mistakes=tuple(self.wrong)
        )

    def _included(self) -> list[Path]:
        with self._noting_mistakes():
            return included_files(self.document, self.wrong)
        return []

    @contextmanager
    def _noting_mistakes(self) -> Iterator[None]:
        """One file that is wrong hides no mistake in another."""
        try:
            yield
        except ConfigError as error:
            self.wrong.append(error)

    def _include(self, file: Path) -> None:
        name = _relative_name(file, self.document.folder)
        values, lines = parse(read_text(file, hint="check its rights", largest=LARGEST_DOCUMENT), name)
        part = replace(self.document, file=self.document.folder / name, lines=lines, homes={(): name})
        if isinstance(values, list):
            self._take(values, part, (), {})
        elif isinstance(values, dict) and "jobs" in values:
            self._file_of_jobs(values, part)
        elif isinstance(values, dict):
            self._take([{"name": file.stem, **values}], part, None, {})
        elif values is not None:
            raise ConfigError(f"{name}:1 holds no job.", hint="write its fields, or a list of jobs")

    def _file_of_jobs(self, values: dict[str, Json], part: Document) -> None:
        for name in values:
            if name not in FILE_FIELDS:
                raise UnknownField(name, where=part.where((name,)), known=FILE_FIELDS)
        jobs, defaults = values["jobs"], values.get("defaults") or {}
        if not isinstance(jobs, list | dict):
            raise FieldInvalid("jobs", where=part.where(("jobs",)), reason="should be a list of jobs")
        if not isinstance(defaults, dict):
            raise FieldInvalid("defaults", where=part.where(("defaults",)), reason="should have fields of a job")
        self._take(jobs, part, ("jobs",), defaults)

    def _take(
        self, jobs: list[Json] | dict[str, Json], part: Document, above: Place | None, defaults: Mapping[str, Json]
    ) -> None:
        """Add the jobs of one file; `above` is where they stand in it, None for a file that is one job."""
        if above is not None and isinstance(jobs, dict) and _has_jobs_by_name(jobs):
            self.wrong.append(_not_a_list(next(iter(jobs)), part.where(above)))
            return
        if isinstance(jobs, dict) or above is None:
            self._add(jobs if isinstance(jobs, dict) else jobs[0], part, above or (), part.lines, defaults)
            return
        lines: dict[Place, dict[Place, int]] = {}
        for at, line in part.lines.items():
            lines.setdefault(at[: len(above) + 1], {})[at] = line
        for position, job in enumerate(jobs):
            inside = (*above, position)
            self._add(job, part, inside, lines.get(inside, {}), defaults)

    def _add(
        self, job: Json, part: Document, inside: Place, lines: Mapping[Place, int], defaults: Mapping[str, Json]
    ) -> None:
        place: Place = ("jobs", len(self.jobs))
        self.homes[place] = part.file_of(inside)
        self.lines |= {(*place, *at[len(inside) :]): line for at, line in lines.items() if at[: len(inside)] == inside}
        if isinstance(job, dict) and "python" not in job:
            job = self._with_defaults(job, place, defaults, part)
            job = self._with_defaults(job, place, _fields(self.document.values.get("defaults")), self.document)
            with self._noting_mistakes():
                job = self._with_sql(job, place)
        self.jobs.append(job)

    def _with_defaults(
        self, job: dict[str, Json], place: Place, defaults: Mapping[str, Json], part: Document
    ) -> dict[str, Json]:
        """Tags add up, fields of fields are laid over each other, all else is the job's own if it says anything."""
        merged = dict(job)
        for name, default in defaults.items():
            value = _with_job_name(default, str(job.get("name", "")))
            if name not in job:
                merged[name] = value
                self._remember((*place, name), ("defaults", name), part)
            elif name == "tags":
                merged[name] = [*_listed(value), *(each for each in _listed(job[name]) if each not in _listed(value))]
            elif isinstance(value, dict) and isinstance(own := job[name], dict):
                merged[name] = {**value, **own}
        return merged

    def _remember(self, place: Place, origin: Place, part: Document) -> None:
        self.homes[place] = part.file_of(origin)
        self.lines[place] = part.lines.get(origin, 1)

    def _with_sql(self, job: dict[str, Json], place: Place) -> dict[str, Json]:
        """The text of `transform: {file: …}` in place of its name, so that everybody reads it as if it stood here."""
        transform = job.get("transform")
        if not isinstance(transform, dict) or not isinstance(transform.get("file"), str) or "sql" in transform:
            return job
        at = (*place, "transform", "file")
        gathering = replace(self.document, lines=self.lines, homes=self.homes)
        file = self.document.folder / str(gathering.expand(transform["file"], at))
        if not file.is_file():
            where = gathering.where(at)
            reason, hint = f"names no file: {transform['file']}", f"write {file}, or fix the path"
            raise FieldInvalid("transform.file", where=where, reason=reason, hint=hint)
        inside: Place = (*place, "transform", "sql")
        self.homes[inside], self.lines[inside] = _relative_name(file, self.document.folder), 1
        return {**job, "transform": {**transform, "sql": read_text(file, hint="check `transform: {file: …}`")}}


def _has_jobs_by_name(values: Mapping[str, Json]) -> bool:
    """`jobs: {orders: {…}}`, as other tools have it; names of Python are one word each."""
    return bool(values) and all(isinstance(each, dict) for each in values.values())


def _not_a_list(name: str, where: str) -> FieldInvalid:
    hint = f"write `- name: {name}` in place of `{name}:`, and indent the fields of the job as far as `name`"
    return FieldInvalid("jobs", where=where, reason="has to be a list, in which each job has its name", hint=hint)


def _relative_name(file: Path, folder: Path) -> str:
    """The file as seen from the project's folder."""
    return str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file)


def _fields(value: Json) -> Mapping[str, Json]:
    """The defaults; what is wrong with something else in their place, the models say."""
    return value if isinstance(value, dict) else {}


def _listed(value: Json) -> list[Json]:
    return value if isinstance(value, list) else [value]


def _with_job_name(value: Json, job: str) -> Json:
    """A default with the job's own name in it, where it asks for that."""
    if isinstance(value, str):
        return value.replace(JOB_NAME, job)
    if isinstance(value, list):
        return [_with_job_name(each, job) for each in value]
    return {name: _with_job_name(each, job) for name, each in value.items()} if isinstance(value, dict) else value

"""Which jobs a command is about, in the words of `--select` and `--exclude`: names, patterns, tags, neighbours."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol, TypeAlias, TypeVar

from floodmark.errors import JobNotFound

TAG = "tag:"
NEAR = "+"
Needs: TypeAlias = Callable[[], Mapping[str, Collection[str]]]
"""By job, those that fill what it reads; asked for only where a word has a `+`."""


class Tagged(Protocol):
    """What these words need of a job."""

    @property
    def name(self) -> str: ...
    @property
    def tags(self) -> Sequence[str]: ...


AnyJob = TypeVar("AnyJob", bound=Tagged)


@dataclass(frozen=True)
class Selection:
    """What a person named: everything, if no word is given; a job that `exclude` names is left out."""

    words: Sequence[str] = ()
    exclude: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.words or self.exclude)

    def of(self, jobs: Sequence[AnyJob], needs: Needs) -> list[AnyJob]:
        """The jobs that are meant, in the order in which they are given. Raises JobNotFound for a word without any."""
        meant = {name for word in self.words for name in _names_for(word, jobs, needs)}
        left_out = {name for word in self.exclude for name in _names_for(word, jobs, needs)}
        return [job for job in jobs if (not self.words or job.name in meant) and job.name not in left_out]


def is_plain(word: str) -> bool:
    """Whether the word can only be the name of one job."""
    return not word.startswith((TAG, NEAR)) and not word.endswith(NEAR) and not set(word) & set("*?[")


def _names_for(word: str, jobs: Sequence[Tagged], needs: Needs) -> set[str]:
    """`orders`, `orders_*`, `tag:nightly`; `+orders` with what it is made of, `orders+` with what is made of it."""
    pattern = word.removeprefix(NEAR).removesuffix(NEAR)
    named = set(_matching_names(pattern, jobs))
    if not named:
        known = [f"{TAG}{tag}" for job in jobs for tag in job.tags] if pattern.startswith(TAG) else []
        raise JobNotFound(pattern, known=list(dict.fromkeys(known)) or [job.name for job in jobs])
    upstream = _reached(named, needs()) if word.startswith(NEAR) else set()
    downstream = _reached(named, _turned(needs())) if word.endswith(NEAR) else set()
    return named | upstream | downstream


def _matching_names(pattern: str, jobs: Sequence[Tagged]) -> Iterator[str]:
    tag = pattern.removeprefix(TAG) if pattern.startswith(TAG) else None
    for job in jobs:
        words = job.tags if tag is not None else (job.name,)
        if any(fnmatchcase(each, pattern if tag is None else tag) for each in words):
            yield job.name


def _reached(names: Collection[str], edges: Mapping[str, Collection[str]]) -> set[str]:
    reached: set[str] = set()
    front = set(names)
    while front:
        front = {other for name in front for other in edges.get(name, ())} - reached
        reached |= front
    return reached


def _turned(needs: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """By job, those that read what it fills."""
    turned: dict[str, list[str]] = {name: [] for name in needs}
    for name, others in needs.items():
        for other in others:
            turned[other].append(name)
    return turned

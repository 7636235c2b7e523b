"""What a process function gets besides elements: providers by type, opened once per task and closed with it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeAlias, TypeVar, get_origin

from floodmark.errors import ConfigError
from floodmark.mill.codec.reading import shown_type

Provider: TypeAlias = "object | Callable[[], object]"
Wanted: TypeAlias = Any
"""A type, or a type hint such as Callable[[int], str]."""


@dataclass(frozen=True)
class Position:
    """Where an element stands in its stream."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"partition {self.partition}, offset {self.offset}"


@dataclass(frozen=True)
class Attempt:
    """Injected by its type: batch and position are the same when a crash makes a call happen again."""

    batch: int
    position: Position


@dataclass(frozen=True)
class Injector:
    """Instances, which are sent to the tasks, and factories, which are called once in each of them."""

    providers: Mapping[Wanted, Provider] = field(default_factory=dict)

    def __contains__(self, wanted: Wanted) -> bool:
        return wanted in self.providers

    def check(self, wanted: Wanted) -> None:
        """Raises ConfigError for a provider that cannot give what it is asked for, or cannot be sent."""
        provider = self.providers[wanted]
        if not _is_instance(provider, wanted) and not callable(provider):
            raise ConfigError(
                f"the injector's provider of {shown_type(wanted)} is {type(provider).__name__}.",
                hint=f"give an instance of {shown_type(wanted)}, or a function without arguments that makes one",
            )
        _require_sendable(provider, wanted)

    @contextmanager
    def opened(self, wanted: frozenset[Wanted]) -> Iterator[Mapping[Wanted, object]]:
        """What these types stand for in one task; what factories made is closed at the end, if it can be."""
        with ExitStack() as open_things:
            yield {each: self._given(each, open_things) for each in wanted}

    def _given(self, wanted: Wanted, open_things: ExitStack) -> object:
        provider = self.providers[wanted]
        if _is_instance(provider, wanted) or not callable(provider):
            return provider
        made = provider()
        if isinstance(made, AbstractContextManager):
            return open_things.enter_context(made)
        if callable(close := getattr(made, "close", None)):
            open_things.callback(close)
        return made


def _is_instance(provider: object, wanted: Wanted) -> bool:
    """A hint that is no class, like Callable[…], takes what is given as it is."""
    if isinstance(wanted, type) and get_origin(wanted) is None:
        return isinstance(provider, wanted)
    origin = get_origin(wanted)
    return isinstance(provider, origin) if isinstance(origin, type) else True


def _require_sendable(provider: object, wanted: Wanted) -> None:
    from pyspark import cloudpickle

    try:
        cloudpickle.dumps(provider)  # type: ignore[no-untyped-call]  # pyspark ships it without types
    except Exception as error:
        raise ConfigError(
            f"the injector's {shown_type(wanted)} cannot be sent to Spark's tasks: {type(error).__name__}: {error}.",
            hint=f"give a function that makes one, as in {{{shown_type(wanted)}: lambda: connect(…)}}: "
            "it is called once per task",
        ) from error


# The mapping that a process function gets: partners by the very element, so equal twins keep their own.
Left = TypeVar("Left")
Right = TypeVar("Right")


class Pairing(Mapping[Left, list[Right]], Generic[Left, Right]):
    """Left elements and their partners, in order. Elements need be neither frozen nor hashable.

    An element is looked up by identity, else by equality: of equal elements the first one answers.
    """

    def __init__(self, pairs: Sequence[tuple[Left, list[Right]]]) -> None:
        self._pairs = pairs

    def __getitem__(self, left: Left) -> list[Right]:
        if self._pairs and self._pairs[0][0] is left:  # nearly always there is only this one
            return self._pairs[0][1]
        found = self._by_identity.get(id(left))
        if found is None:
            found = self._equal(left)
        if found is None:
            raise KeyError(f"{left!r} was not given to this call")
        return found

    def __iter__(self) -> Iterator[Left]:
        return (left for left, _ in self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def __contains__(self, left: object) -> bool:
        return id(left) in self._by_identity or self._equal(left) is not None

    def __repr__(self) -> str:
        return f"Pairing({self._pairs!r})"

    @cached_property
    def _by_identity(self) -> dict[int, list[Right]]:
        return {id(left): rights for left, rights in self._pairs}  # the pairs keep the elements alive

    def _equal(self, left: object) -> list[Right] | None:
        try:
            return self._by_equality.get(left)
        except TypeError:  # unhashable, here or in the index
            return next((rights for other, rights in self._pairs if other == left), None)

    @cached_property
    def _by_equality(self) -> dict[Hashable, list[Right]]:
        """Made at the first question by equality, which most functions never ask."""
        return dict(reversed(self._pairs))

"""What a process function gets besides its master element: providers by type, opened once per task and closed with it,
and mappings from an element to its partners."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeAlias, TypeVar, get_origin

from floodmark.errors import ConfigError
from floodmark.spark.schemas import type_name

Left = TypeVar("Left")
Right = TypeVar("Right")
Provider: TypeAlias = "object | Callable[[], object]"
InjectedType: TypeAlias = Any
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
    """Given to a function that asks for it by its type; it is the same when a crash makes a call happen again.

    >>> def ship_once(order: Order, attempt: Attempt) -> Shipment:
    ...     key = f"{attempt.batch}:{attempt.position}"  # a service can tell a repeated call by it
    ...     return Shipment(order.id)
    """

    batch: int
    position: Position


@dataclass(frozen=True)
class Injector:
    """Instances, which are sent to the tasks, and factories, which are called once in each of them."""

    providers: Mapping[InjectedType, Provider] = field(default_factory=dict)

    def __contains__(self, hint: InjectedType) -> bool:
        return hint in self.providers

    def check(self, hint: InjectedType) -> None:
        """Raises ConfigError for a provider that cannot give what it is asked for, or cannot be sent."""
        provider = self.providers[hint]
        if not _is_instance(provider, hint) and not callable(provider):
            raise ConfigError(
                f"the injector's provider of {type_name(hint)} is {type(provider).__name__}.",
                hint=f"give an instance of {type_name(hint)}, or a function without arguments that makes one",
            )
        _require_sendable(provider, hint)

    @contextmanager
    def open(self, hints: frozenset[InjectedType]) -> Iterator[Mapping[InjectedType, object]]:
        """What these types stand for in one task; what factories made is closed at the end, if it can be."""
        with ExitStack() as open_things:
            yield {each: self._provide(each, open_things) for each in hints}

    def _provide(self, hint: InjectedType, open_things: ExitStack) -> object:
        provider = self.providers[hint]
        if _is_instance(provider, hint) or not callable(provider):
            return provider
        made = provider()
        if isinstance(made, AbstractContextManager):
            return open_things.enter_context(made)
        if callable(close := getattr(made, "close", None)):
            open_things.callback(close)
        return made


def _is_instance(provider: object, hint: InjectedType) -> bool:
    """A hint that is no class, like Callable[…], takes what is given as it is."""
    if isinstance(hint, type) and get_origin(hint) is None:
        return isinstance(provider, hint)
    origin = get_origin(hint)
    return isinstance(provider, origin) if isinstance(origin, type) else True


def _require_sendable(provider: object, hint: InjectedType) -> None:
    from pyspark import cloudpickle

    try:
        cloudpickle.dumps(provider)  # type: ignore[no-untyped-call]  # pyspark ships it without types
    except Exception as error:
        raise ConfigError(
            f"the injector's {type_name(hint)} cannot be sent to Spark's tasks: {type(error).__name__}: {error}.",
            hint=f"give a function that makes one, as in {{{type_name(hint)}: lambda: connect(…)}}: "
            "it is called once per task",
        ) from error


class Pairing(Mapping[Left, list[Right]], Generic[Left, Right]):
    """The mapping of a process function: left elements and their partners, in order.

    An element is looked up by identity, so equal twins keep their own partners and elements need be neither frozen nor
    hashable; else by equality, where of equal elements the first one answers.
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

"""The mapping that a process function gets: partners by the very element, so equal twins keep their own."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Generic, TypeVar

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

"""A map that cannot be changed: equal to a plain dict with the same entries, and hashable."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, NoReturn, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class FrozenMap(Mapping[K, V]):
    """The entries of a map as they were when it was made."""

    __slots__ = ("_entries", "_hash")
    _entries: dict[K, V]
    _hash: int | None

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        object.__setattr__(self, "_entries", dict(entries or {}))
        object.__setattr__(self, "_hash", None)

    def plus(self, entries: Mapping[K, V]) -> FrozenMap[K, V]:
        """A map with these entries added or replaced."""
        grown = FrozenMap[K, V]()
        object.__setattr__(grown, "_entries", {**self._entries, **entries})  # one copy, of what may be a million
        return grown

    def __getitem__(self, key: K) -> V:
        return self._entries[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def keys(self) -> KeysView[K]:
        return self._entries.keys()

    def items(self) -> ItemsView[K, V]:
        return self._entries.items()

    def values(self) -> ValuesView[V]:
        return self._entries.values()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FrozenMap):
            return self._entries == other._entries
        return self._entries == other

    def __hash__(self) -> int:
        if self._hash is None:
            object.__setattr__(self, "_hash", hash(frozenset(self._entries.items())))
        return hash(self._hash)

    def __repr__(self) -> str:
        return repr(self._entries)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a FrozenMap cannot be changed: {name}")

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenMap, (dict(self._entries),)

"""Marks that are a map, where each key rises on its own: partitions of a topic, several topics, several tables."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

from floodmark.errors import MarkInvalid
from floodmark.hwm.columns import VersionHWM
from floodmark.hwm.mark import HWM, Json, register
from floodmark.hwm.parsing import display_int, from_json_text, strict_int

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, eq=False, repr=False)
class FrozenMap(Mapping[K, V]):
    """The entries of a map as they were when it was made: equal to a plain dict with the same ones, and hashable.

    >>> older = FrozenMap({0: 7})
    >>> newer = older.plus({1: 3})
    >>> newer == {0: 7, 1: 3}, newer.entries_since(older)
    (True, {1: 3})
    """

    entries: InitVar[Mapping[K, V] | None] = None
    _entries: dict[K, V] = field(init=False, default_factory=dict)
    _growth: list[tuple[weakref.ref[FrozenMap[K, V]], Mapping[K, V]]] = field(init=False, default_factory=list)
    """The one map that this one grew from, while somebody has it still, and what was added to it."""

    def __post_init__(self, entries: Mapping[K, V] | None) -> None:
        self._entries.update(entries or {})

    def plus(self, entries: Mapping[K, V]) -> FrozenMap[K, V]:
        """A map with these entries added or replaced."""
        grown = FrozenMap(self._entries)  # the one copy, of what may be a million
        grown._entries.update(entries)
        grown._growth.append((weakref.ref(self), dict(entries)))
        return grown

    def entries_since(self, older: FrozenMap[K, V]) -> Mapping[K, V] | None:
        """The entries that the older map has not, or has otherwise; None if it has keys that this one has not."""
        for before, entries in self._growth:
            if before() is older:
                return entries
        added = {key: value for key, value in self.items() if key not in older or older[key] != value}
        is_superset = len(self) == len(older) + sum(key not in older for key in added)
        return added if is_superset else None

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
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(frozenset(self._entries.items()))

    def __repr__(self) -> str:
        return repr(self._entries)

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenMap, (dict(self._entries),)


_EMPTY: FrozenMap[Any, Any] = FrozenMap()


class KeyValueHWM(HWM[FrozenMap[int, V]], Generic[V]):
    """A value for each key. The higher value of a key wins, and a key that an update does not name stays.

    `entity` is what the keys belong to, also spelled `topic`. Your own kind says how to `read` and `write` a value.

    >>> mark = fm.hwm.KeyValueIntHWM("events", {0: 7, 1: 3}, topic="events")
    >>> mark.update({0: 5, 1: 4}).dump()
    {'0': 7, '1': 4}
    """

    entity_alias: ClassVar[str | None] = "topic"
    empty: ClassVar[object] = _EMPTY

    @abstractmethod
    def read(self, value: object) -> V:
        """One value in its one true form; raises MarkInvalid."""

    def write(self, value: V) -> Json:
        """One value as JSON that `read` takes back; left alone, the value itself is JSON."""
        return value  # type: ignore[return-value]

    def display(self, value: V) -> Json:
        """One value for people."""
        return self.write(value)

    def at_or_below(self, low: V, high: V) -> bool:
        """The order of two values of one key."""
        return bool(low <= high)  # type: ignore[operator]

    def parse(self, value: object) -> FrozenMap[int, V]:
        entries = from_json_text(self.kind, value)
        if not isinstance(entries, Mapping):
            raise MarkInvalid(self.kind, value, reason="not a map from keys to values")
        found: dict[int, V] = {}
        for given_key, given in entries.items():
            key, parsed = self._entry(given_key, given)
            if key in found:
                raise MarkInvalid(self.kind, {given_key: given}, reason=f"key {key} is there twice")
            found[key] = parsed
        return FrozenMap(found)

    def dump(self) -> Json:
        return {str(key): self.write(value) for key, value in self.value.items()}

    def show(self) -> Json:
        return {str(key): self.display(value) for key, value in sorted(self.value.items())}

    def reaches(self, value: FrozenMap[int, V]) -> bool:
        return not self._higher(value)

    def joined(self, value: FrozenMap[int, V]) -> FrozenMap[int, V]:
        return self.value.plus(self._higher(value))

    def _higher(self, value: FrozenMap[int, V]) -> dict[int, V]:
        own = self.value
        return {k: v for k, v in value.items() if k not in own or not self.at_or_below(v, own[k])}

    def _entry(self, key: object, value: object) -> tuple[int, V]:
        try:
            return strict_int(self.kind, key), self.read(value)
        except MarkInvalid as error:
            raise MarkInvalid(self.kind, {key: value}, reason=f"{error.value!r} is {error.reason}") from error


@register
class KeyValueIntHWM(KeyValueHWM[int]):
    """A whole number for each key. For Kafka it is the next offset to read: 110 means that 0 to 109 were read.

    >>> KeyValueIntHWM("orders", {0: 110, 1: 90}).update({1: 120})
    KeyValueIntHWM(name='orders', value={'0': 110, '1': 120})
    """

    kind: ClassVar[str] = "key_value_int"

    def read(self, value: object) -> int:
        return strict_int(self.kind, value)

    def display(self, value: int) -> Json:
        return display_int(value)


TopicOffsets = FrozenMap[str, FrozenMap[int, int]]


@register
class TopicOffsetsHWM(HWM[TopicOffsets]):
    """The next offsets of several topics, a `KeyValueIntHWM` for each, that are read and committed together.

    >>> TopicOffsetsHWM("both", {"orders": {0: 110}}).update({"payments": {0: 7}})
    TopicOffsetsHWM(name='both', value={'orders': {'0': 110}, 'payments': {'0': 7}})
    """

    kind: ClassVar[str] = "topic_offsets"
    entity_alias: ClassVar[str | None] = "topics"
    empty: ClassVar[object] = FrozenMap[str, Any]()

    def parse(self, value: object) -> TopicOffsets:
        topics = from_json_text(self.kind, value)
        if not isinstance(topics, Mapping) or not all(isinstance(topic, str) for topic in topics):
            raise MarkInvalid(self.kind, value, reason="not a map from topics to their partitions' next offsets")
        return FrozenMap({topic: self._partitions(topic, offsets).value for topic, offsets in topics.items()})

    def dump(self) -> Json:
        return {topic: self._partitions(topic, offsets).dump() for topic, offsets in self.value.items()}

    def show(self) -> Json:
        return {topic: self._partitions(topic, offsets).show() for topic, offsets in sorted(self.value.items())}

    def reaches(self, value: TopicOffsets) -> bool:
        return all(self.of(topic).covers(offsets) for topic, offsets in value.items())

    def joined(self, value: TopicOffsets) -> TopicOffsets:
        return self.value.plus({topic: self.of(topic).update(offsets).value for topic, offsets in value.items()})

    def of(self, topic: str) -> KeyValueIntHWM:
        """The mark of one topic, under its name; empty where it has none."""
        return self._partitions(topic, self.value.get(topic, {}))

    def _partitions(self, topic: str, offsets: object) -> KeyValueIntHWM:
        return KeyValueIntHWM(topic, offsets, modified_time=self.modified_time)


TableVersions = FrozenMap[str, int]


@register
class TableVersionsHWM(HWM[TableVersions]):
    """The last version of each of several tables that was read; every table rises on its own.

    >>> TableVersionsHWM("inputs", {"/lake/orders": 3}).update({"/lake/prices": 1})
    TableVersionsHWM(name='inputs', value={'/lake/orders': 3, '/lake/prices': 1})
    """

    kind: ClassVar[str] = "table_versions"
    entity_alias: ClassVar[str | None] = "tables"
    empty: ClassVar[object] = FrozenMap[str, int]()

    def parse(self, value: object) -> TableVersions:
        tables = from_json_text(self.kind, value)
        if not isinstance(tables, Mapping) or not all(isinstance(table, str) for table in tables):
            raise MarkInvalid(self.kind, value, reason="not a map from tables to their versions")
        versions = {
            table: VersionHWM(table, version, modified_time=self.modified_time).value
            for table, version in tables.items()
        }
        if None in versions.values():
            raise MarkInvalid(self.kind, value, reason="a table has no version")
        return FrozenMap({table: version for table, version in versions.items() if version is not None})

    def dump(self) -> Json:
        return dict(self.value.items())

    def show(self) -> Json:
        return dict(sorted(self.value.items()))

    def reaches(self, value: TableVersions) -> bool:
        return all(table in self.value and self.value[table] >= version for table, version in value.items())

    def joined(self, value: TableVersions) -> TableVersions:
        own = self.value
        return own.plus({table: max(version, own.get(table, version)) for table, version in value.items()})

"""Marks that are a map, where each key rises on its own: the offsets of a topic's partitions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from floodmark.errors import MarkInvalid
from floodmark.hwm.frozen import FrozenMap
from floodmark.hwm.json_text import from_json_text
from floodmark.hwm.kinds import register
from floodmark.hwm.mark import HWM, Json
from floodmark.hwm.numbers import shown_int, strict_int

V = TypeVar("V")

_EMPTY: FrozenMap[Any, Any] = FrozenMap()


class KeyValueHWM(HWM[FrozenMap[int, V]], Generic[V]):
    """A value for each key. The higher value of a key wins, and a key that an update does not name stays.

    `entity` is what the keys belong to, also spelled `topic`. Your own kind says how to `read` and `write` a value.
    """

    entity_alias: ClassVar[str | None] = "topic"
    empty: ClassVar[object] = _EMPTY

    @abstractmethod
    def read(self, value: object) -> V:
        """One value in its one true form; raises MarkInvalid."""

    def write(self, value: V) -> Json:
        """One value as JSON that `read` takes back; left alone, the value itself is JSON."""
        return value  # type: ignore[return-value]

    def shown(self, value: V) -> Json:
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
        return {str(key): self.shown(value) for key, value in sorted(self.value.items())}

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
    """A whole number for each key. For Kafka it is the next offset to read: 110 means that 0 to 109 were read."""

    kind: ClassVar[str] = "key_value_int"

    def read(self, value: object) -> int:
        return strict_int(self.kind, value)

    def shown(self, value: int) -> Json:
        return shown_int(value)

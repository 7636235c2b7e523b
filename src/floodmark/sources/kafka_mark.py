"""How the next offsets of a source stand in its mark: a map for one topic, a map of maps for several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from floodmark.errors import MarkInvalid, MarkKindMismatch
from floodmark.hwm import HWM, FrozenMap, Json, KeyValueIntHWM, register
from floodmark.hwm.json_text import from_json_text
from floodmark.probes.kafka import Offsets

TopicOffsets = FrozenMap[str, FrozenMap[int, int]]


@register
class TopicOffsetsHWM(HWM[TopicOffsets]):
    """The next offset of each partition of several topics; every partition rises on its own."""

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
        return all(self._own(topic).covers(offsets) for topic, offsets in value.items())

    def joined(self, value: TopicOffsets) -> TopicOffsets:
        return self.value.plus({topic: self._own(topic).update(offsets).value for topic, offsets in value.items()})

    def _own(self, topic: str) -> KeyValueIntHWM:
        return self._partitions(topic, self.value.get(topic, {}))

    def _partitions(self, topic: str, offsets: object) -> KeyValueIntHWM:
        return KeyValueIntHWM(topic, offsets, modified_time=self.modified_time)


def mark_of(name: str, topics: Sequence[str], offsets: Offsets) -> HWM[Any]:
    """The mark of a source: of the kind for one topic, or for several."""
    nested = by_topic(offsets)
    if len(topics) == 1:
        return KeyValueIntHWM(name, nested.get(topics[0], {}), topic=topics[0])
    return TopicOffsetsHWM(name, nested, topics=",".join(topics))


def offsets_in(mark: HWM[Any] | None, topics: Sequence[str]) -> dict[tuple[str, int], int]:
    """The next offsets that a mark holds. Raises MarkKindMismatch if it is not a mark of such a source."""
    if mark is None:
        return {}
    expected = mark_of(mark.name, topics, {})
    if type(mark) is not type(expected):
        raise MarkKindMismatch(mark, expected, reason="a Kafka source keeps the next offsets of its partitions")
    return flat(mark.value, topics)


def by_topic(offsets: Offsets) -> dict[str, dict[int, int]]:
    """Offsets as `{topic: {partition: offset}}`."""
    topics = sorted({topic for topic, _ in offsets})
    return {topic: {part: at for (name, part), at in sorted(offsets.items()) if name == topic} for topic in topics}


def flat(offsets: Mapping[Any, Any], topics: Sequence[str]) -> dict[tuple[str, int], int]:
    """The other way round; a map without topics belongs to the only one."""
    nested = {topics[0]: offsets} if len(topics) == 1 else offsets
    return {(topic, int(part)): at for topic, parts in nested.items() for part, at in parts.items()}


def shown(offsets: Offsets, topics: Iterable[str]) -> str:
    """Offsets as people read them, and as `--from` takes them back."""
    import json

    names, nested = list(topics), by_topic(offsets)
    return json.dumps(nested.get(names[0], {}) if len(names) == 1 else nested)

"""The mark of several topics that are read together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from floodmark.errors import MarkInvalid
from floodmark.hwm.frozen import FrozenMap
from floodmark.hwm.json_text import from_json_text
from floodmark.hwm.key_value import KeyValueIntHWM
from floodmark.hwm.kinds import register
from floodmark.hwm.mark import HWM, Json

TopicOffsets = FrozenMap[str, FrozenMap[int, int]]


@register
class TopicOffsetsHWM(HWM[TopicOffsets]):
    """The next offsets of several topics, a `KeyValueIntHWM` for each, that are read and committed together."""

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

"""How the next offsets of a source stand in its mark: a map for one topic, a map of maps for several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from floodmark.errors import MarkKindMismatch
from floodmark.hwm import HWM, KeyValueIntHWM, TopicOffsetsHWM
from floodmark.probes.kafka import Offsets


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

"""Where a source without a mark begins: at an end of the topic, where a consumer group stands, or at named offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from floodmark.errors import ConfigError, MarkInvalid, SourceUnreadable
from floodmark.probes.kafka import Bounds, KafkaProbe, Offsets, Place, Topic
from floodmark.sources.kafka_mark import flat, mark_of

StartOption: TypeAlias = "str | Mapping[int, int] | Mapping[str, Mapping[int, int]]"

GROUP = "group:"


@dataclass(frozen=True)
class Start:
    """A beginning as it was asked for: a word, the name of a group, or offsets."""

    word: str | None = None
    group: str | None = None
    offsets: Offsets | None = None

    @classmethod
    def parse(cls, given: StartOption, topics: Sequence[str]) -> Start:
        """From an option, or from the text of `--from`. Raises ConfigError for what is none of the four."""
        if given in ("earliest", "latest"):
            return cls(word=str(given))
        if isinstance(given, str) and given.startswith(GROUP) and len(given) > len(GROUP):
            return cls(group=given.removeprefix(GROUP))
        return cls(offsets=_named_offsets(given, topics))

    def offsets_in(self, probe: KafkaProbe, topics: Sequence[Topic], bounds: Mapping[Place, Bounds]) -> Offsets:
        """The first offset of each partition that the start says something about."""
        if self.word is not None:
            return {place: seen.earliest if self.word == "earliest" else seen.stable for place, seen in bounds.items()}
        if self.group is not None:
            return _of_group(self.group, probe, topics)
        return self._known_only(bounds)

    @property
    def is_earliest(self) -> bool:
        return self.word == "earliest"

    def _known_only(self, bounds: Mapping[Place, Bounds]) -> Offsets:
        named = self.offsets or {}
        unknown = [f"{topic}/{partition}" for topic, partition in named if (topic, partition) not in bounds]
        if unknown:
            raise ConfigError(f"start names {', '.join(unknown)}, which is not there.", hint="name partitions that are")
        return named


def _named_offsets(given: Any, topics: Sequence[str]) -> Offsets:  # noqa: ANN401 (whatever a user wrote)
    try:
        found = flat(mark_of("start", topics, {}).parse(given), topics)
    except MarkInvalid as error:
        raise ConfigError(
            f"start {given!r} is not known: {error.reason}.",
            hint="one of: earliest, latest, group:<id>, or offsets as "
            + ('{"0": 100}' if len(topics) == 1 else '{"topic": {"0": 100}}'),
        ) from error
    if not found or any(offset < 0 for offset in found.values()):
        raise ConfigError(f"start {given!r} names no offsets that could be read.", hint="offsets are 0 or higher")
    return found


def _of_group(group: str, probe: KafkaProbe, topics: Sequence[Topic]) -> Offsets:
    committed = probe.committed(group, topics)
    if committed:
        return committed
    names = ", ".join(topic.name for topic in topics)
    raise SourceUnreadable(
        f"kafka group {group}",
        reason=f"it has committed no offset of {names}, or they have expired",
        hint="check the group's name, or choose where to begin: earliest, latest or offsets",
    )

"""The topic of a Kafka sink: is it there, how many partitions has it, where do they end; made if that was asked for."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError
from floodmark.sinks.kafka_producer import persist

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from floodmark.probes.kafka_client import KafkaOptions


@dataclass(frozen=True)
class Topic:
    """A topic by name; `create` has its partitions and replication, for where it is missing."""

    options: KafkaOptions
    name: str
    create: Mapping[str, int] | None = None

    def partitions(self) -> int | None:
        """How many there are, or None if there is no such topic. Asking never makes it."""
        found = self._all().get(self.name)
        return len(found.partitions) if found is not None and found.error is None else None

    def names(self) -> list[str]:
        """All topics there are."""
        return sorted(self._all())

    def require(self) -> int:
        """The number of partitions; the topic is made if it may be. Raises ConfigError with names that are near."""
        topics = self._all()
        if self.name in topics:
            return len(topics[self.name].partitions)
        if self.create is None:
            near = difflib.get_close_matches(self.name, topics, n=3)
            meant = f"did you mean {', '.join(near)}? Else" if near else "make it, or"
            raise ConfigError(
                f"there is no topic '{self.name}' at {self.options.servers}.",
                hint=f"{meant} give `create: {{partitions: 6, replication: 3}}` to have it made",
            )
        return self._make(self.create)

    def ends(self) -> tuple[int, ...]:
        """The next offset of every partition, open transactions included."""
        return tuple(persist(lambda: self._offsets(latest=True)))

    def holds_records(self) -> bool:
        count = self.partitions()
        return bool(count) and persist(lambda: self._offsets(latest=True) != self._offsets(latest=False))

    def _offsets(self, *, latest: bool) -> list[int]:
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin._listoffsets import OffsetSpec

        spec = (OffsetSpec.latest if latest else OffsetSpec.earliest)()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(self.name, p): spec for p in range(self.require())}
        answers = self._admin.list_offsets(asked, request_timeout=self._seconds)
        found = {place.partition: answer.result(self._seconds).offset for place, answer in answers.items()}
        return [found[partition] for partition in sorted(found)]

    def _make(self, create: Mapping[str, int]) -> int:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.cimpl import NewTopic

        new = NewTopic(self.name, create["partitions"], create.get("replication", 1))
        try:
            self._admin.create_topics([new], operation_timeout=self._seconds)[self.name].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # somebody was faster
                raise
        return self.partitions() or create["partitions"]

    def _all(self) -> dict[str, Any]:
        return dict(self._admin.list_topics(timeout=self._seconds).topics)

    @property
    def _seconds(self) -> float:
        return self.options.call_seconds

    @cached_property
    def _admin(self) -> AdminClient:
        """Kept: to connect takes far longer than to ask."""
        return self.options.admin()

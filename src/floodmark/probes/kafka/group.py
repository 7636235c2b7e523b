"""A consumer group in Kafka: where its first run begins, and where lag tools find how far our own marks got."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from floodmark.errors import PublicationFailed
from floodmark.patience import patiently
from floodmark.probes.kafka import Place
from floodmark.probes.kafka.client import KafkaOptions

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError


PATIENCE_SECONDS, PAUSE_SECONDS = 15.0, 0.2
"""A coordinator that moves, or is made for the first group of a broker, answers within this time."""
PASSING = (
    *("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "REBALANCE_IN_PROGRESS"),
    *("REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "_WAIT_COORD", "_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN"),
)
"""librdkafka's names of what is over soon; its own `retriable` speaks of transactions alone."""


@dataclass
class GroupOffsets:
    """Publishes offsets under a group's name. They are never the truth: our own marks are, and come first."""

    group: str
    options: KafkaOptions
    last_published: dict[Place, int] = field(default_factory=dict)
    _consumer: Consumer | None = field(default=None, repr=False)
    _thread: threading.Thread | None = field(default=None, repr=False)
    _error: PublicationFailed | None = None

    def publish(self, offsets: Mapping[Place, int]) -> None:
        """Commit those that are not published yet. Raises PublicationFailed if Kafka refuses."""
        fresh = {place: offset for place, offset in offsets.items() if self.last_published.get(place) != offset}
        if fresh:
            self._commit(fresh)
            self.last_published.update(fresh)

    def publish_later(self, offsets: Mapping[Place, int]) -> None:
        """The same in the background, one publication after the other; what failed is raised by the next call."""
        self.flush()
        self._thread = threading.Thread(target=self._publish_quietly, args=(dict(offsets),), daemon=True)
        self._thread.start()

    def flush(self) -> None:
        """Wait for what is under way. Raises PublicationFailed if it failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def close(self) -> None:
        """Let go of the connection."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _publish_quietly(self, offsets: Mapping[Place, int]) -> None:
        try:
            self.publish(offsets)
        except PublicationFailed as error:
            self._error = error

    def _commit(self, offsets: Mapping[Place, int]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in sorted(offsets.items())]
        consumer = self._consumer = self._consumer or self.options.consumer(**{"group.id": self.group})

        def commit() -> None:
            for answer in consumer.commit(offsets=places, asynchronous=False) or []:
                if answer.error is not None:
                    raise KafkaException(answer.error)

        def is_passing(error: Exception) -> bool:
            return isinstance(error, KafkaException) and may_pass(error.args[0])

        try:
            patiently(commit, seconds=PATIENCE_SECONDS, passing=is_passing, pause_seconds=PAUSE_SECONDS)
        except KafkaException as error:
            reason = self.options.without_secrets(error.args[0].str())
            raise PublicationFailed(self.group, reason=reason) from None


def may_pass(error: KafkaError) -> bool:
    """Whether asking again in a moment may help."""
    from confluent_kafka import KafkaError

    return error.code() in {getattr(KafkaError, name) for name in PASSING}

"""Where the topics of a Kafka cluster begin and end, and how far a consumer group got: no JVM, no record read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from floodmark.errors import SourceUnreadable
from floodmark.patience import patiently
from floodmark.probes.kafka.client import KafkaOptions, driver, told

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient


T = TypeVar("T")

Place: TypeAlias = tuple[str, int]
"""A partition of a topic."""
Offsets: TypeAlias = Mapping[Place, int]

REQUEST_SECONDS = 10.0
LEADER_SECONDS = 5.0
PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class Topic:
    """A topic as it is now; a topic that was deleted and made anew has the name and another id."""

    name: str
    id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class Bounds:
    """What a partition holds: from `earliest`, for readers of committed records to before `stable`; `end` is where
    the records of open transactions end."""

    earliest: int
    stable: int
    end: int


class KafkaProbe:
    """Answers about one cluster, over a connection that is kept. Every answer is as of the moment it was asked for."""

    def __init__(self, options: KafkaOptions) -> None:
        self.options = options
        self._complaint: str | None = None

    @cached_property
    def cluster_id(self) -> str:
        """The cluster's own name for itself."""
        with_id = self._asked(lambda: self._admin.describe_cluster(request_timeout=REQUEST_SECONDS), "the cluster")
        return str(self._answer(with_id, "the cluster").cluster_id)

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """The topics with their ids and partitions. Raises SourceUnreadable if one is not there."""
        driver()
        from confluent_kafka import TopicCollection

        wanted = list(names)
        what = f"kafka topic {', '.join(wanted)}"
        asked = self._asked(
            lambda: self._admin.describe_topics(TopicCollection(wanted), request_timeout=REQUEST_SECONDS), what
        )
        found = {name: self._answer(asked[name], f"kafka topic {name}") for name in wanted}
        return {name: _topic(name, description) for name, description in found.items()}

    def bounds(self, topics: Iterable[Topic]) -> dict[Place, Bounds]:
        """The bounds of every partition, asked for at once. Raises SourceUnreadable if one stays without a leader."""
        driver()
        places = [(topic.name, partition) for topic in topics for partition in topic.partitions]
        return patiently(
            lambda: self._bounds(places),
            seconds=LEADER_SECONDS,
            passing=lambda error: isinstance(error, SourceUnreadable) and is_between_leaders(error.__context__),
            pause_seconds=PAUSE_SECONDS,
        )

    def _bounds(self, places: Sequence[Place]) -> dict[Place, Bounds]:
        from confluent_kafka import admin

        spec: Any = admin.OffsetSpec  # type: ignore[attr-defined]
        asked = (
            # In this order: what is stable never lies above an end that was asked for later.
            self._offsets(places, spec.earliest(), committed=True),
            self._offsets(places, spec.latest(), committed=True),
            self._offsets(places, spec.latest(), committed=False),
        )
        earliest, stable, end = (self._settled(futures) for futures in asked)
        return {place: Bounds(earliest[place], stable[place], max(end[place], stable[place])) for place in places}

    def committed(self, group: str, topics: Iterable[Topic]) -> dict[Place, int]:
        """The next offsets that a consumer group has committed; partitions without one are left out."""
        driver()
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        places = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
        request = [ConsumerGroupTopicPartitions(group, places)]
        what = f"kafka group {group}"
        asked = self._asked(
            lambda: self._admin.list_consumer_group_offsets(
                request, require_stable=True, request_timeout=REQUEST_SECONDS
            ),
            what,
        )
        found = self._answer(asked[group], what).topic_partitions
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    @cached_property
    def _admin(self) -> AdminClient:
        return self.options.admin(error_cb=self._complained)

    def _complained(self, error: KafkaError) -> None:
        """librdkafka tells the cause here, and a mere timeout to whoever asked."""
        self._complaint = str(error.str())

    def _offsets(self, places: Iterable[Place], spec: Any, *, committed: bool) -> dict[Place, Future[Any]]:  # noqa: ANN401 (the driver's)
        from confluent_kafka import IsolationLevel, TopicPartition

        wanted = {TopicPartition(topic, partition): spec for topic, partition in places}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        asked = self._asked(
            lambda: self._admin.list_offsets(wanted, isolation_level=level, request_timeout=REQUEST_SECONDS), "offsets"
        )
        return {(place.topic, place.partition): future for place, future in asked.items()}

    def _settled(self, futures: Mapping[Place, Future[Any]]) -> dict[Place, int]:
        return {
            (topic, partition): int(self._answer(future, f"kafka topic {topic}, partition {partition}").offset)
            for (topic, partition), future in futures.items()
        }

    def _asked(self, ask: Callable[[], T], what: str) -> T:
        from confluent_kafka import KafkaException

        try:
            return ask()
        except KafkaException as error:
            raise self._unreadable(what, error) from None

    def _answer(self, future: Future[T], what: str) -> T:
        from concurrent.futures import TimeoutError as NoAnswer

        from confluent_kafka import KafkaException

        try:
            return future.result(REQUEST_SECONDS + 5)
        except (KafkaException, NoAnswer) as error:
            raise self._unreadable(what, error) from None  # the driver's own text may hold a secret

    def _unreadable(self, what: str, error: Exception) -> SourceUnreadable:
        self._complaint = None
        self._admin.poll(0)
        cause = f" ({self._complaint})" if self._complaint else ""
        reason = self.options.without_secrets(f"{told(error) or type(error).__name__}{cause}".rstrip("."))
        return SourceUnreadable(
            f"{what} at {self.options.servers}", reason=reason, hint="check that the broker runs and may be read"
        )


def is_between_leaders(error: BaseException | None) -> bool:
    """Whether the same question has an answer a moment later: the topic was made just now, or its leader changes."""
    from confluent_kafka import KafkaError, KafkaException

    passing = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE}
    passing |= {KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.FENCED_LEADER_EPOCH}
    return isinstance(error, KafkaException) and error.args[0].code() in passing


def _topic(name: str, description: Any) -> Topic:  # noqa: ANN401 (the driver's own class)
    return Topic(name, str(description.topic_id), tuple(sorted(each.id for each in description.partitions)))


# The settings of a topic that decide how long its messages are there.
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Keeping:
    """How long a topic keeps its messages; None is for ever."""

    hours: float | None
    bytes: int | None
    is_compacted: bool

    def __str__(self) -> str:
        time = "for ever" if self.hours is None else f"for {self.hours:g} h"
        size = f", at most {self.bytes} bytes of a partition" if self.bytes is not None else ""
        return f"{time}{size}"


def keeping_of(options: KafkaOptions, topics: Sequence[str]) -> dict[str, Keeping]:
    """By topic. Raises SourceUnreadable if the broker does not tell."""
    driver()
    from concurrent.futures import TimeoutError as NoAnswer

    from confluent_kafka import KafkaException, admin

    told_by: Any = admin  # the driver does not say that it exports these two
    wanted = [told_by.ConfigResource(told_by.ResourceType.TOPIC, topic) for topic in topics]
    client = options.admin()  # has a name, since its answers end with it
    try:
        asked = client.describe_configs(wanted, request_timeout=REQUEST_SECONDS)
        found = {resource.name: future.result(REQUEST_SECONDS + 5) for resource, future in asked.items()}
    except (KafkaException, NoAnswer) as error:
        reason = options.without_secrets(told(error) or type(error).__name__)
        raise SourceUnreadable(f"the settings of {', '.join(topics)}", reason=reason) from None
    return {topic: _keeping({name: str(entry.value) for name, entry in each.items()}) for topic, each in found.items()}


def _keeping(settings: dict[str, str]) -> Keeping:
    policy = settings.get("cleanup.policy", "delete")
    deletes = "delete" in policy
    milliseconds, size = (int(settings.get(name, "-1")) for name in ("retention.ms", "retention.bytes"))
    hours = milliseconds / HOUR_MS if deletes and milliseconds >= 0 else None
    return Keeping(hours, size if deletes and size >= 0 else None, "compact" in policy)
